//! Delivered events can be replayed to one sink, with the same ids, even if the daemon crashes meanwhile.

use simulator::{Options, Simulator};

use super::{PROVED, service};
use crate::support::{Daemon, Receiver, Reply, Setup, deliverable, offsets};

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
    assert_eq!(said, "16 events, from 5 to 20, will be delivered to hook\n", "{told:?}");
    daemon.until("the replayed events arrive", |_| receiver.received() == 46).await;
    let beyond = setup.tell(&["replay", "--channel", "c0", "--sink", "hook", "--from", "31", "--to", "40"]).await;
    assert!(beyond.code == Some(1) && beyond.errors.contains("channel c0 has no event from 31 to 40"), "{beyond:?}");
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

#[tokio::test]
async fn a_replay_of_too_many_events_is_refused_before_it_starts() {
    let options = Options { events: 10_001, unsigned: 1.0, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).with("channels.c0.start", "latest");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let told = setup.tell(&["replay", "--channel", "c0", "--sink", "file", "--from", "1", "--to", "10001"]).await;
    assert_eq!((told.code, told.out), (Some(64), Vec::new()));
    let said = "are more than 10,000 events or 64 MiB, the limit for one command: deliver them in parts, the first up to --to 10000; nothing is delivered";
    assert!(told.errors.contains(said), "{}", told.errors);
    assert!(setup.tell(&["cursor", "show", "--json"]).await.each("owed").iter().all(|owed| *owed == 0));
    daemon.stop().await;
}
