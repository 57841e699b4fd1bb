//! Delivered events can be replayed to one sink, with the same ids, even if the daemon crashes meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use simulator::{Options, Simulator};

use super::{PROVED, service};
use crate::support::{Daemon, LONGEST_WAIT, Receiver, Reply, Setup, deliverable, offsets};

fn has_recorded(daemon: &Daemon, sink: &str, offset: i64) -> bool {
    let recorded = daemon.log().lines("batch recorded");
    recorded.iter().any(|line| line["sink"] == sink && line["offset"] == offset)
}

/// A daemon that has delivered all events to its file and its webhook. The cursor of the webhook is recorded.
async fn all_delivered(simulator: &Simulator, events: usize) -> (Receiver, Setup, Daemon) {
    let receiver = Receiver::start().await;
    let setup = Setup::reading(simulator).with_webhook("hook", &receiver).with("api.page_limit", 7);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == events && receiver.received() == events).await;
    let last = i64::try_from(events).unwrap();
    daemon.until("the cursor of the webhook is recorded", |daemon| has_recorded(daemon, "hook", last)).await;
    (receiver, setup, daemon)
}

#[tokio::test]
async fn a_replay_goes_to_one_sink_and_moves_no_cursor() {
    let simulator = service(&[PROVED; 30]).await;
    let (receiver, setup, mut daemon) = all_delivered(&simulator, 30).await;
    let (first, cursors) = (receiver.ids(), setup.tell(&["cursor", "show", "--json"]).await.each("cursor"));

    let range = ["replay", "--channel", "c0", "--sink", "hook", "--from", "5", "--to", "20"];
    let told = setup.tell(&range).await;
    let said = String::from_utf8_lossy(&told.out);
    assert_eq!(said, "replay 1 of channel c0, from 5 to 20, to hook: running\n", "{told:?}");
    daemon.until("the replayed events arrive", |_| receiver.received() == 46).await;
    let beyond = setup.tell(&["replay", "--channel", "c0", "--sink", "hook", "--from", "31", "--to", "40"]).await;
    assert!(
        beyond.code == Some(64) && beyond.errors.contains("sink hook of channel c0 has reached offset 30"),
        "{beyond:?}"
    );
    let gone = setup.tell(&["replay", "--channel", "c0", "--sink", "gone", "--from", "1", "--to", "2"]).await;
    assert!(gone.code == Some(64) && gone.errors.contains("channel c0 has no sink gone; its sinks are: "), "{gone:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), cursors);
    let log = daemon.stop().await;
    assert_eq!(
        log.lines("pending event delivered"),
        Vec::<serde_json::Value>::new(),
        "a replay is not logged as a late proof"
    );

    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0), "the other sink receives no event again");
    let mut again = receiver.ids().split_off(30);
    again.sort();
    let mut expected = first[4..20].to_vec();
    expected.sort();
    assert_eq!(again, expected, "the replayed events have their original ids");
}

#[tokio::test]
async fn without_a_sink_each_sink_has_its_own_replay_and_a_paused_sink_delays_no_other() {
    const EVENTS: usize = 100;
    let simulator = notices(EVENTS).await;
    let (receiver, setup, mut daemon) = all_recorded(&simulator, EVENTS).await;
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "hook"]).await.code, Some(0));
    let told = setup.tell(&["replay", "c0", "--from", "1", "--to", &EVENTS.to_string()]).await;
    let said = String::from_utf8_lossy(&told.out);
    let mut lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{told:?}");
    lines.sort_unstable_by_key(|line| line.contains("to hook"));
    for (line, sink) in lines.into_iter().zip(["file", "hook"]) {
        assert!(line.ends_with(&format!(" of channel c0, from 1 to {EVENTS}, to {sink}: running")), "{told:?}");
    }
    daemon.until("the file receives every event again", |_| setup.lines() == 2 * EVENTS).await;
    assert_eq!(receiver.received(), EVENTS, "the webhook is paused");
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0));
    daemon.until("the webhook receives every event again", |_| receiver.received() == 2 * EVENTS).await;
    let deadline = Instant::now() + LONGEST_WAIT;
    while !replays(&setup).await.iter().all(|replay| replay["state"] == "done") {
        assert!(Instant::now() < deadline, "the replays do not end");
    }
    daemon.stop().await;
    let mut again = offsets(&receiver.delivered()).split_off(EVENTS);
    again.sort_unstable();
    assert!(again.into_iter().eq(1..=i64::try_from(EVENTS).unwrap()));
}

#[tokio::test]
async fn a_requested_replay_survives_a_crash() {
    let simulator = service(&[PROVED; 4]).await;
    let (receiver, setup, mut daemon) = all_delivered(&simulator, 4).await;
    receiver.always(Some(Reply::Refuse(503, None)));
    let range = ["replay", "--channel", "c0", "--sink", "hook", "--from", "2", "--to", "3"];
    assert_eq!(setup.tell(&range).await.code, Some(0));
    let requests = receiver.requests();
    daemon.until("the sink receives a request", |_| receiver.requests() > requests).await;
    daemon.kill().await;

    receiver.always(None);
    let mut daemon = setup.start();
    daemon.until("the replayed events arrive", |_| receiver.received() == 6).await;
    daemon.stop().await;
    let mut again = offsets(&receiver.delivered()).split_off(4);
    again.sort_unstable();
    assert_eq!(again, [2, 3]);
}

#[tokio::test]
async fn a_replay_above_the_sinks_cursor_is_refused() {
    let simulator = service(&[PROVED; 30]).await;
    let (receiver, setup, mut daemon) = all_delivered(&simulator, 30).await;
    receiver.always(Some(Reply::Refuse(503, None)));
    simulator.publish(0, 10);
    daemon.until("the other sink has the new events", |_| setup.lines() == 40).await;

    let told = setup.tell(&["replay", "--channel", "c0", "--sink", "hook", "--from", "1", "--to", "40"]).await;
    assert_eq!((told.code, told.out), (Some(64), Vec::new()));
    let said =
        "sink hook of channel c0 has reached offset 30, and receives later events in order: nothing is delivered";
    assert!(told.errors.contains(said), "{}", told.errors);
    assert!(setup.tell(&["cursor", "show", "--json"]).await.each("owed").iter().all(|owed| *owed == 0));
    daemon.stop().await;
}

/// A service with one channel and this number of events, which need no proof.
async fn notices(events: usize) -> Simulator {
    let events = u64::try_from(events).unwrap();
    Simulator::start(Options { events, unsigned: 1.0, ..Options::default() }).await.unwrap()
}

/// A daemon that has delivered all events to its file and its webhook, and has recorded both cursors. Its pages are small.
async fn all_recorded(simulator: &Simulator, events: usize) -> (Receiver, Setup, Daemon) {
    let receiver = Receiver::start().await;
    let setup = Setup::reading(simulator).with_webhook("hook", &receiver).with("api.page_limit", 7);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| receiver.received() == events).await;
    let deadline = Instant::now() + LONGEST_WAIT;
    while !setup.tell(&["cursor", "show", "--json"]).await.each("cursor").iter().all(|cursor| *cursor == events) {
        assert!(Instant::now() < deadline, "the cursors are not recorded");
    }
    (receiver, setup, daemon)
}

/// The replays of channel `c0`.
async fn replays(setup: &Setup) -> Vec<Value> {
    setup.tell(&["replay", "--list", "c0", "--json"]).await.json()
}

/// Waits until `holds` accepts the last replay, and returns it. The deadline is extended while the replay delivers events.
async fn until_replay(setup: &Setup, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let (mut delivered, mut deadline) = (Value::Null, Instant::now());
    loop {
        let replay = replays(setup).await.pop().unwrap();
        if holds(&replay) {
            return replay;
        }
        if replay["events"] != delivered {
            (delivered, deadline) = (replay["events"].clone(), Instant::now() + LONGEST_WAIT);
        }
        assert!(Instant::now() < deadline, "{what}: {replay}");
    }
}

#[tokio::test]
async fn a_replay_of_25_000_events_continues_after_a_kill() {
    const EVENTS: usize = 25_000;
    let simulator = notices(EVENTS).await;
    let setup = Setup::reading(&simulator).with("log.level", "info");
    let mut daemon = setup.start();
    daemon.while_it_moves("all events arrive", |_| Some(setup.lines()).filter(|lines| *lines < EVENTS)).await;
    daemon.stop().await;

    // A command without a daemon records the replay.
    let range = ["replay", "c0", "--from", "1", "--to", &EVENTS.to_string()];
    assert_eq!(setup.tell(&range).await.code, Some(0));
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    until_replay(&setup, "half of the events are delivered", |replay| replay["events"].as_u64() > Some(10_000)).await;
    daemon.kill().await;
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let replay = until_replay(&setup, "the replay ends", |replay| replay["state"] == "done").await;
    assert_eq!((&replay["events"], &replay["total"]), (&EVENTS.into(), &EVENTS.into()), "{replay}");
    daemon.stop().await;

    let mut times = BTreeMap::<i64, usize>::new();
    for offset in setup.offsets("c0") {
        *times.entry(offset).or_default() += 1;
    }
    let others: Vec<_> = times.iter().filter(|(_, times)| **times != 2).collect();
    assert!(times.len() == EVENTS && others.is_empty(), "the file receives each event once per delivery: {others:?}");
}

#[tokio::test]
async fn a_replay_is_listed_paused_resumed_and_cancelled() {
    const EVENTS: usize = 600;
    let simulator = notices(EVENTS).await;
    let (receiver, setup, daemon) = all_recorded(&simulator, EVENTS).await;
    assert_eq!(setup.tell(&["replay", "--list"]).await.out, b"No replays.\n");
    let range = ["replay", "c0", "--sink", "hook", "--from", "1", "--to", &EVENTS.to_string()];
    receiver.always(Some(Reply::Refuse(503, None)));
    assert_eq!(setup.tell(&range).await.code, Some(0));
    until_replay(&setup, "a part is pending", |replay| replay["pending"].as_u64() > Some(0)).await;
    let paused = setup.tell(&["replay", "c0", "--pause", "1", "--json"]).await;
    assert_eq!(paused.each("state"), ["paused"]);
    receiver.always(None);
    let replay = until_replay(&setup, "the part is delivered", |replay| replay["pending"] == 0).await;
    let delivered = replay["events"].as_u64().unwrap();
    assert!((1..100).contains(&delivered) && replay["total"].is_null(), "only a part is read at once: {replay}");
    let status = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    let said = format!("replay: channel c0, 1 to hook: paused, {delivered} events of 1 to 600 delivered");
    assert!(status.contains(&said), "{status}");

    assert_eq!(setup.tell(&["replay", "c0", "--resume", "1", "--json"]).await.each("state"), ["running"]);
    let replay = until_replay(&setup, "the replay ends", |replay| replay["state"] == "done").await;
    assert_eq!((&replay["events"], receiver.received()), (&EVENTS.into(), 2 * EVENTS), "{replay}");

    receiver.always(Some(Reply::Refuse(503, None)));
    assert_eq!(setup.tell(&range).await.code, Some(0));
    until_replay(&setup, "a part is pending", |replay| replay["pending"].as_u64() > Some(0)).await;
    assert_eq!(setup.tell(&["replay", "c0", "--cancel", "2", "--json"]).await.each("state"), ["cancelled"]);
    let again = setup.tell(&["replay", "c0", "--resume", "2"]).await;
    assert!(again.code == Some(64) && again.errors.contains("already ended: it is cancelled"), "{again:?}");
    let unknown = setup.tell(&["replay", "c0", "--cancel", "9"]).await;
    assert!(unknown.code == Some(64) && unknown.errors.contains("channel c0 has no replay 9"), "{unknown:?}");
    receiver.always(None);
    // The part that was read is still delivered.
    let deadline = Instant::now() + LONGEST_WAIT;
    while !setup.tell(&["cursor", "show", "--json"]).await.each("owed").iter().all(|owed| *owed == 0) {
        assert!(Instant::now() < deadline, "the part is not delivered");
    }
    daemon.stop().await;
    assert!(receiver.received() < 2 * EVENTS + 100, "{}", receiver.received());
    let listed = replays(&setup).await;
    let states: Vec<_> = listed.iter().map(|replay| &replay["state"]).collect();
    assert_eq!(states, ["done", "cancelled"], "also without a daemon");
}

#[tokio::test]
async fn a_replay_does_not_delay_new_events() {
    const EVENTS: usize = 600;
    let simulator = notices(EVENTS).await;
    let (receiver, setup, mut daemon) = all_recorded(&simulator, EVENTS).await;
    receiver.always(Some(Reply::Slow(Duration::from_millis(10))));
    let range = ["replay", "c0", "--sink", "hook", "--from", "1", "--to", &EVENTS.to_string()];
    assert_eq!(setup.tell(&range).await.code, Some(0));
    daemon.until("the replay delivers", |_| receiver.received() > EVENTS).await;
    simulator.publish(0, 1);
    daemon.until("the replay ends", |_| receiver.received() == 2 * EVENTS + 1).await;
    daemon.stop().await;
    let delivered = offsets(&receiver.delivered());
    let new = delivered.iter().position(|offset| *offset == i64::try_from(EVENTS).unwrap() + 1).unwrap();
    assert!(new < 2 * EVENTS - 100, "the new event is delivered at {new} of {}", delivered.len());
}
