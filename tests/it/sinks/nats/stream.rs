//! The stream: created or only checked, purged, full, and examined by `check --connect`.

use serde_json::json;

use super::{assert_whole, setup};
use crate::sinks::streams::proved;
use crate::support::{Daemon, Nats, STREAM, Setup, deliverable};

/// Runs the daemon until the stream contains this many events.
pub(super) async fn deliver_all(nats: &Nats, setup: &Setup, count: usize) {
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    nats.until_count(count).await;
    daemon.stop().await;
}

/// Waits until the lane has recorded this event.
async fn until_recorded(daemon: &mut Daemon, offset: i64) {
    let is_recorded =
        |daemon: &Daemon| daemon.log().lines("batch recorded").iter().any(|line| line["offset"] == offset);
    daemon.until("the event is recorded", is_recorded).await;
}

#[tokio::test]
async fn a_stream_is_created_if_allowed_and_requested_otherwise() {
    let Some(nats) = Nats::start() else { return };
    let simulator = proved(5).await;
    let setup = setup(&simulator, nats.address()).with("sinks.bus.create", false);
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    let said = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
    assert!(told.code != Some(0) && said.contains("create it, or set create = true"), "{said}");
    let mut daemon = setup.start();
    daemon.until_logged("sink refused: its events wait and will be offered again").await;
    daemon.until_logged("channel started").await;
    daemon.stop().await;

    let setup = setup.with("sinks.bus.create", true);
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    assert!(told.code == Some(0) && String::from_utf8_lossy(&told.out).contains("will be created"), "{told:?}");
    deliver_all(&nats, &setup, 5).await;
    let made = nats.api(&format!("STREAM.INFO.{STREAM}"), json!({})).await;
    assert_eq!((&made["config"]["allow_atomic"], &made["config"]["storage"]), (&json!(true), &json!("file")), "{made}");
    let told = setup.tell(&["check", "--connect"]).await;
    let said = String::from_utf8_lossy(&told.out).into_owned();
    assert!(told.code == Some(0) && said.contains("exactly once, in atomic batches"), "{told:?}");
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn a_stream_that_would_lose_positions_is_refused_with_remedy() {
    let Some(nats) = Nats::start() else { return };
    nats.make(json!({"subjects": ["channeld.>"]})).await;
    let simulator = proved(1).await;
    let setup = setup(&simulator, nats.address());
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    let said = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
    assert!(told.code != Some(0) && said.contains("nats stream edit events --subjects="), "{said}");
}

#[tokio::test]
async fn a_replay_publishes_again_and_a_cursor_moved_back_repeats_nothing() {
    let Some(nats) = Nats::start() else { return };
    let window = 120_000_000_000_u64;
    for stream in [json!({"duplicate_window": window}), json!({"duplicate_window": window, "allow_atomic": false})] {
        let simulator = proved(20).await;
        nats.make(stream).await;
        let setup = setup(&simulator, nats.address()).with("api.page_limit", 7);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        nats.until_count(20).await;
        let range = ["replay", "--channel", "c0", "--sink", "bus", "--from", "3", "--to", "4"];
        assert_eq!(setup.tell(&range).await.code, Some(0));
        nats.until_count(22).await;
        daemon.stop().await;
        let mut offsets = nats.offsets().await;
        let mut again = offsets.split_off(20);
        again.sort_unstable();
        assert_eq!((&offsets, &again), (&deliverable(&simulator, 0), &vec![3, 4]));

        let set = ["cursor", "set", "c0", "--sink", "bus", "--to", "5", "--yes"];
        assert_eq!(setup.tell(&set).await.code, Some(0));
        simulator.publish(0, 1);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        nats.until_count(23).await;
        daemon.stop().await;
        let all = deliverable(&simulator, 0);
        assert_eq!(nats.offsets().await[22..], all[all.len() - 1..], "only the new event is published");
        nats.api(&format!("STREAM.DELETE.{STREAM}"), json!({})).await;
    }
}

#[tokio::test]
async fn a_stream_purged_while_in_use_gets_nothing_until_an_operator_decides() {
    let Some(nats) = Nats::start() else { return };
    for stream in [json!({}), json!({"allow_atomic": false})] {
        for what in ["PURGE", "DELETE"] {
            let simulator = proved(10).await;
            nats.make(stream.clone()).await;
            let setup = setup(&simulator, nats.address());
            let mut daemon = setup.start();
            daemon.until_logged("channel started").await;
            nats.until_count(10).await;
            until_recorded(&mut daemon, 10).await;
            nats.api(&format!("STREAM.{what}.{STREAM}"), json!({})).await;
            simulator.publish(0, 10);
            daemon.until("the loss is reported", |daemon| daemon.log().0.contains("has no position message")).await;
            assert_eq!(nats.count().await, 0);
            daemon.stop().await;
            nats.api(&format!("STREAM.DELETE.{STREAM}"), json!({})).await;
        }
    }
}

#[tokio::test]
async fn a_full_stream_is_retried_without_dead_letters() {
    let Some(nats) = Nats::start() else { return };
    let full = json!({"max_msgs": 15, "discard": "new"});
    nats.make(full).await;
    let simulator = proved(40).await;
    let setup = setup(&simulator, nats.address()).with("api.page_limit", 5).with("sinks.bus.give_up_after", "1s");
    let mut daemon = setup.start();
    daemon
        .until("the full stream is reported", |daemon| {
            daemon.log().0.contains("give the stream or the account more room")
        })
        .await;
    let began = std::time::Instant::now();
    let longer = std::time::Duration::from_millis(2_200);
    daemon.until("give_up_after has passed", |_| began.elapsed() > longer).await;
    nats.change(json!({"max_msgs": -1})).await;
    nats.until_count(40).await;
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event became a dead letter");
    daemon.stop().await;
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn a_stream_that_cannot_be_created_is_retried_without_dead_letters() {
    let Some(nats) = Nats::start() else { return };
    let simulator = proved(5).await;
    let setup = setup(&simulator, nats.address()).with("sinks.bus.replicas", 3);
    let setup = setup.with("sinks.bus.give_up_after", "1ms");
    let mut daemon = setup.start();
    daemon
        .until("the failure is reported", |daemon| {
            daemon.log().0.contains("making the stream events: replicas > 1 not supported")
        })
        .await;
    daemon.until_logged("sink refused again").await;
    nats.make(json!({})).await;
    nats.until_count(5).await;
    daemon.stop().await;
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn a_stream_changed_while_in_use_gets_the_following_events() {
    let Some(nats) = Nats::start() else { return };
    nats.make(json!({})).await;
    let simulator = proved(10).await;
    let setup = setup(&simulator, nats.address());
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let mut count = 10;
    nats.until_count(count).await;
    for allow_atomic in [false, true] {
        nats.change(json!({"allow_atomic": allow_atomic})).await;
        simulator.publish(0, 10);
        count += 10;
        nats.until_count(count).await;
    }
    daemon.stop().await;
    assert_whole(&nats, &simulator, &[]).await;
}
