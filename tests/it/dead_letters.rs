//! What a sink gives up on is kept, shown and delivered once more; what was delivered can be delivered again on purpose.

use channeld::simulator::{EventSpec, Kind, Options, Simulator};

use crate::support::{Daemon, Receiver, Reply, Setup, deliverable, offsets, records};

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const GIVEN_UP: &str = "given up: it is a dead letter now, see `channeld dead-letters list`";

async fn service(events: usize) -> Simulator {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for _ in 0..events {
        simulator.publish_one(0, PROVED);
    }
    simulator
}

/// The webhook gives up after a second of refusals.
fn impatient(simulator: &Simulator, receiver: &Receiver) -> Setup {
    Setup::reading(simulator).with_webhook("hook", receiver).with("sinks.hook.give_up_after", "1s")
}

fn has_recorded(daemon: &Daemon, sink: &str, offset: &str) -> bool {
    let recorded = daemon.log().lines("batch recorded");
    recorded.iter().any(|line| line["sink"] == sink && line["offset"] == offset)
}

#[tokio::test]
async fn what_is_refused_for_too_long_is_a_dead_letter_and_comes_with_its_id_when_it_is_replayed() {
    let simulator = service(3).await;
    let receiver = Receiver::start().await;
    let setup = impatient(&simulator, &receiver);
    receiver.always(Some(Reply::Refuse(422, None)));
    let mut daemon = setup.start();
    daemon.until("all are given up", |daemon| daemon.log().lines(GIVEN_UP).len() == 3).await;
    assert_eq!((setup.lines(), receiver.received()), (3, 0), "the other sink has them");

    let listed = setup.tell(&["dead-letters", "list", "--json"]).await;
    assert_eq!(listed.each("offset"), [1, 2, 3]);
    assert_eq!(listed.each("reason"), ["answered 422"; 3]);
    assert!(listed.each("attempts").iter().all(|attempts| attempts.as_u64() > Some(1)), "{listed:?}");
    let ids = listed.each("event_id");
    let truth = records(&simulator, 0).await;
    let shown = setup.tell(&["dead-letters", "show", "c0", "2", "--sink", "hook"]).await;
    assert!(String::from_utf8(shown.out).unwrap().contains(&truth[&2]));
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(report["dead_letters"]["events"], 3);
    assert_eq!(report["channels"][0]["lanes"][1]["cursor"], 3, "the lane has gone on");

    receiver.always(None);
    let replay = ["dead-letters", "replay", "c0", "--sink", "hook"];
    assert_eq!(setup.tell(&[&replay[..], &["2"]].concat()).await.code, Some(0));
    daemon.until("it arrives", |_| receiver.received() == 1).await;
    assert_eq!(setup.tell(&["dead-letters", "list", "--json"]).await.each("offset"), [1, 3]);
    assert_eq!(setup.tell(&[&replay[..], &["--since", "2020-01-01T00:00:00Z"]].concat()).await.code, Some(0));
    daemon.until("all arrive", |_| receiver.received() == 3).await;
    daemon.stop().await;

    assert_eq!(offsets(&receiver.delivered()), [2, 1, 3]);
    assert_eq!(receiver.ids(), [&ids[1], &ids[0], &ids[2]].map(|id| id.as_str().unwrap()));
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());
}

#[tokio::test]
async fn one_event_that_nobody_wants_holds_up_no_other_and_is_dropped_by_word_only() {
    let simulator = service(3).await;
    let receiver = Receiver::start().await;
    let setup = impatient(&simulator, &receiver);
    let poison = id_of(&simulator, 2).await;
    receiver.refuse(Some(Box::new(move |body| body.contains(&poison))));
    let mut daemon = setup.start();
    daemon.until("the others arrive", |_| receiver.received() == 2).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), [1, 3]);

    // The daemon is stopped now: the command opens the state itself.
    let drop = ["dead-letters", "drop", "c0", "--sink", "hook", "--all"];
    assert_eq!(setup.tell(&drop).await.code, Some(64));
    assert_eq!(setup.tell(&["dead-letters", "list", "c0", "--sink", "hook", "--json"]).await.each("offset"), [2]);
    assert_eq!(setup.tell(&[&drop[..], &["--yes"]].concat()).await.code, Some(0));
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());
}

async fn id_of(simulator: &Simulator, offset: i64) -> String {
    let record: serde_json::Value = serde_json::from_str(&records(simulator, 0).await[&offset]).unwrap();
    record["event_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn history_is_replayed_to_one_sink_and_moves_no_cursor() {
    let simulator = service(30).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 7);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 30 && receiver.received() == 30).await;
    daemon.until("that is recorded", |daemon| has_recorded(daemon, "hook", "30")).await;
    let (first, cursors) = (receiver.ids(), setup.tell(&["cursor", "show", "--json"]).await.each("cursor"));

    let range = ["replay", "--channel", "c0", "--sink", "hook", "--from", "5", "--to", "20"];
    let told = setup.tell(&range).await;
    assert!(String::from_utf8_lossy(&told.out).ends_with("16 events in all\n"), "{told:?}");
    daemon.until("they arrive again", |_| receiver.received() == 46).await;
    let beyond = setup.tell(&["replay", "--channel", "c0", "--sink", "hook", "--from", "31", "--to", "40"]).await;
    assert!(String::from_utf8_lossy(&beyond.out).ends_with("0 events in all\n"), "{beyond:?}");
    assert_eq!(
        setup.tell(&["replay", "--channel", "c0", "--sink", "gone", "--from", "1", "--to", "2"]).await.code,
        Some(64)
    );
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), cursors);
    daemon.stop().await;

    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0), "the other sink gets nothing again");
    let mut again = receiver.ids().split_off(30);
    again.sort();
    let mut expected = first[4..20].to_vec();
    expected.sort();
    assert_eq!(again, expected, "with the ids that they had");
}

#[tokio::test]
async fn what_is_to_be_replayed_outlasts_a_crash() {
    let simulator = service(4).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;
    daemon.until("that is recorded", |daemon| has_recorded(daemon, "hook", "4")).await;
    receiver.always(Some(Reply::Refuse(503, None)));
    let range = ["replay", "--channel", "c0", "--sink", "hook", "--from", "2", "--to", "3"];
    assert_eq!(setup.tell(&range).await.code, Some(0));
    let requests = receiver.requests();
    daemon.until("one is offered", |_| receiver.requests() > requests).await;
    daemon.kill().await;

    receiver.always(None);
    let mut daemon = setup.start();
    daemon.until("they arrive", |_| receiver.received() == 6).await;
    daemon.stop().await;
    let mut again = offsets(&receiver.delivered()).split_off(4);
    again.sort_unstable();
    assert_eq!(again, [2, 3]);
}
