//! Commands accept times in place of offsets, and say which event is first.

use simulator::Window;

use crate::support::{LAST_SECOND, Receiver, Setup, created, deliverable, offsets, past_events};

#[tokio::test]
async fn a_cursor_set_to_a_time_delivers_the_events_since_this_time_next() {
    let simulator = past_events(400, Window::Oldest).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 400 && receiver.received() == 400).await;
    daemon.stop().await;

    let time = format!("@{}", LAST_SECOND - 30);
    let first = created(&setup, "--created-gte", &time).await[0];
    let set = ["cursor", "set", "c0", "--sink", "hook", "--to", &time];
    let asked = setup.tell(&set).await;
    let said = String::from_utf8_lossy(&asked.out);
    assert_eq!(asked.code, Some(64), "{asked:?}");
    assert!(said.starts_with(&format!("first event since 2025-10-09T08:52:50Z: offset {first}, event ")), "{said}");
    let done = setup.tell(&[&set[..], &["--yes", "--json"]].concat()).await;
    assert_eq!((done.each("to"), done.json()[0]["first"]["offset"].as_i64()), (vec![(first - 1).into()], Some(first)));

    let expected: Vec<_> = deliverable(&simulator, 0).into_iter().filter(|offset| *offset >= first).collect();
    let mut daemon = setup.start();
    daemon.until("the repeated events arrive", |_| receiver.received() == 400 + expected.len()).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered())[400..], expected);
}

#[tokio::test]
async fn a_cursor_set_to_a_time_without_later_events_is_the_newest_offset() {
    let simulator = past_events(20, Window::Oldest).await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(20).await;
    let time = format!("@{}", LAST_SECOND + 10);
    let asked = setup.tell(&["cursor", "set", "c0", "--to", &time, "--json"]).await;
    let said = String::from_utf8_lossy(&asked.out);
    assert!(said.contains(r#""to":20"#) && said.contains(r#""first":null"#), "{asked:?}");
    let future = setup.tell(&["cursor", "set", "c0", "--to", "2999-01-01"]).await;
    assert!(future.code == Some(64) && future.errors.contains("is in the future"), "{future:?}");
}

#[tokio::test]
async fn a_comparison_by_time_lists_only_what_is_missing_since_this_time() {
    let simulator = past_events(400, Window::Newest).await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(400).await;
    let time = format!("@{}", LAST_SECOND - 30);
    let first = created(&setup, "--created-gte", &time).await[0];
    let before = *created(&setup, "--created-lt", &format!("@{}", LAST_SECOND - 30 - 61)).await.last().unwrap();
    // One event a minute before the time and one event after it are removed from the file.
    let (path, removed) = (setup.path("events.jsonl"), [before, first + 1]);
    let lines = std::fs::read_to_string(&path).unwrap();
    let kept = lines.lines().zip(1..).filter(|(_, offset)| !removed.contains(offset)).map(|(line, _)| line);
    std::fs::write(&path, kept.collect::<Vec<_>>().join("\n") + "\n").unwrap();

    let check = async |options: &[&str]| {
        let told = setup.tell(&[&["check", "--history", "c0", "--json"], options].concat()).await;
        let found: serde_json::Value = serde_json::from_slice(&told.out).unwrap();
        let missing = found["sinks"][0]["missing_events"].as_array().unwrap().iter();
        let missing: Vec<_> = missing.map(|event| event["offset"].as_i64().unwrap()).collect();
        (told.code, missing, found["first"]["offset"].as_i64())
    };
    assert_eq!(check(&[]).await, (Some(1), removed.to_vec(), None));
    assert_eq!(check(&["--since", &time]).await, (Some(1), vec![first + 1], Some(first)));
}

#[tokio::test]
async fn a_replay_by_time_delivers_the_events_of_this_time() {
    let simulator = past_events(400, Window::Newest).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 400 && receiver.received() == 400).await;
    let recorded = |daemon: &crate::support::Daemon| {
        daemon.log().lines("batch recorded").iter().any(|line| line["sink"] == "hook" && line["offset"] == 400)
    };
    daemon.until("the cursor of the webhook is recorded", recorded).await;

    let [from, to] = [LAST_SECOND - 50, LAST_SECOND - 40].map(|second| format!("@{second}"));
    let first = created(&setup, "--created-gte", &from).await[0];
    let last = *created(&setup, "--created-lte", &to).await.last().unwrap();
    let range = ["replay", "--channel", "c0", "--sink", "hook", "--from", &from, "--to", &to];
    let told = setup.tell(&range).await;
    let said = String::from_utf8_lossy(&told.out);
    let count = usize::try_from(last - first + 1).unwrap();
    let range = format!("replay 1 of channel c0, from {first} to {last}, to hook: running");
    assert!(said.contains(&format!(": offset {first}, event ")), "{told:?}");
    assert!(said.contains(&range), "{told:?}");
    daemon.until("the replayed events arrive", |_| receiver.received() == 400 + count).await;
    let later = format!("@{}", LAST_SECOND + 10);
    let empty = setup.tell(&["replay", "--channel", "c0", "--sink", "hook", "--from", &later, "--to", "0s"]).await;
    assert!(empty.code == Some(1) && empty.errors.contains("has no event created at"), "{empty:?}");
    daemon.stop().await;

    let mut again = offsets(&receiver.delivered()).split_off(400);
    again.sort_unstable();
    assert_eq!(again, (first..=last).collect::<Vec<_>>());
}
