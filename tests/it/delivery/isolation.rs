//! A failing sink does not affect the other sinks, and receives every event after it recovers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::support::{Daemon, Receiver, Reply, Setup, deliverable, offsets};

#[tokio::test]
async fn a_sink_that_was_down_and_its_neighbor_lose_nothing() {
    for refusal in
        [Reply::Refuse(503, None), Reply::Refuse(400, None), Reply::Refuse(429, Some(0)), Reply::Refuse(302, None)]
    {
        let simulator = Simulator::start(Options { events: 60, unsigned: 0.2, ..Options::default() }).await.unwrap();
        let receiver = Receiver::start().await;
        let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 10);
        receiver.always(Some(refusal));
        let mut daemon = setup.start();
        daemon.until("the webhook received many requests", |_| receiver.requests() > 10).await;
        daemon.until("the other sink has every event meanwhile", |_| setup.lines() == 60).await;
        assert_eq!(receiver.received(), 0);
        receiver.always(None);
        let expected = deliverable(&simulator, 0);
        daemon.until("everything arrives", |_| receiver.received() == 60).await;
        let log = daemon.stop().await;

        assert_eq!(setup.offsets("c0"), expected);
        assert_eq!(offsets(&receiver.delivered()), expected, "{refusal:?}");
        assert_eq!(
            log.lines("sink refused: its events wait and will be offered again").len(),
            1,
            "the refusal is logged once"
        );
        assert_eq!(log.lines("sink accepts events again").len(), 1);
    }
}

#[tokio::test]
async fn events_that_a_webhook_accepted_are_not_posted_again() {
    let simulator = Simulator::start(Options { events: 30, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    for _ in 0..5 {
        receiver.reply(Reply::Slow(std::time::Duration::ZERO), 4);
        receiver.reply(Reply::Refuse(500, None), 2);
    }
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 30).await;
    daemon.stop().await;
    assert_eq!((offsets(&receiver.delivered()), receiver.requests()), (deliverable(&simulator, 0), 40));
}

#[tokio::test]
async fn a_file_sink_delivers_everything_once_its_directory_exists() {
    let simulator = Simulator::start(Options { events: 12, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let path = setup.path("later").join("events.jsonl");
    setup.set("sinks.file.path", path.display().to_string());
    let mut daemon = setup.start();
    daemon.until("the other sink has every event", |_| receiver.received() == 12).await;
    daemon.until_logged("sink refused: its events wait and will be offered again").await;

    std::fs::create_dir(setup.path("later")).unwrap();

    let lines = || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    daemon.until("the file has every event", |_| lines() == 12).await;
    daemon.stop().await;
    assert_eq!(offsets(&crate::support::Delivered::read(&path)), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_sink_that_was_down_catches_up_while_the_others_continue() {
    let late = Some("0.1:1s".parse().unwrap());
    let options = Options { events: 200, unsigned: 0.2, late_proofs: late, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let (dead, healthy) = (Receiver::start().await, Receiver::start().await);
    let setup = Setup::reading(&simulator)
        .with_webhook("dead", &dead)
        .with_webhook("healthy", &healthy)
        .with("api.page_limit", 10);
    dead.always(Some(Reply::Refuse(503, None)));
    let mut daemon = setup.start();
    daemon.until("the other sinks have every event", |_| setup.lines() == 200 && healthy.received() == 200).await;

    dead.always(None);
    daemon.until("the sink has caught up", |_| dead.received() == 200).await;
    daemon.until_logged("lane has caught up").await;
    simulator.publish(0, 50);
    daemon
        .until("all sinks keep up", |_| setup.lines() == 250 && healthy.received() == 250 && dead.received() == 250)
        .await;
    daemon.stop().await;

    let expected = deliverable(&simulator, 0);
    for receiver in [&dead, &healthy] {
        let mut delivered = offsets(&receiver.delivered());
        delivered.sort_unstable();
        assert_eq!(delivered, expected, "each event exactly once");
    }
}

#[tokio::test]
async fn after_a_restart_each_lane_continues_from_its_own_cursor() {
    let simulator = Simulator::start(Options { events: 100, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 10);
    receiver.reply(Reply::Slow(std::time::Duration::ZERO), 15);
    receiver.always(Some(Reply::Refuse(503, None)));
    let mut daemon = setup.start();
    daemon.until("one sink is far ahead", |_| setup.lines() == 100 && receiver.received() == 15).await;
    daemon.stop().await;

    receiver.always(None);
    simulator.publish(0, 5);
    let mut daemon = setup.start();
    daemon.until("the other sink catches up", |_| receiver.received() == 105 && setup.lines() == 105).await;
    daemon.stop().await;

    let expected = deliverable(&simulator, 0);
    assert_eq!((setup.offsets("c0"), offsets(&receiver.delivered())), (expected.clone(), expected));
}

/// How much later the other sinks may receive an event because of a failing sink.
const BEHIND: Duration = Duration::from_secs(1);

/// The number of attempts. A delay that the failing sink causes occurs in every attempt. A delay that a busy machine
/// causes occurs only occasionally.
const TRIES: usize = 5;

/// The time from publication to delivery of each event, at two healthy webhooks beside a third one with this reply.
async fn delays(third: Option<Reply>) -> Vec<Duration> {
    const EVENTS: usize = 100;
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let healthy = [Receiver::start().await, Receiver::start().await];
    let troubled = Receiver::start().await;
    troubled.always(third);
    let setup = Setup::reading(&simulator)
        .with("channels.c0.sinks", serde_json::json!([]))
        .with("api.page_limit", 10)
        .with_webhook("one", &healthy[0])
        .with_webhook("troubled", &troubled)
        .with_webhook("two", &healthy[1]);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;

    let mut pace = tokio::time::interval(Duration::from_millis(25));
    let mut published = BTreeMap::new();
    for _ in 0..EVENTS {
        pace.tick().await;
        let offset = simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
        published.insert(offset, Instant::now());
    }
    daemon.until("the healthy sinks have every event", |_| healthy.iter().all(|sink| sink.received() == EVENTS)).await;
    if third.is_some() {
        assert!(troubled.requests() > 0, "the third sink received requests");
        // A stop would wait until the hanging request times out.
        daemon.kill().await;
    } else {
        daemon.stop().await;
    }
    let delays = healthy.iter().flat_map(|sink| {
        let took = |(delivered, at): (crate::support::Delivered, Instant)| at - published[&delivered.offset];
        sink.delivered().into_iter().zip(sink.arrivals()).map(took).collect::<Vec<_>>()
    });
    delays.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_never_accepts_delays_the_others_by_less_than_a_second() {
    for third in [Reply::Refuse(503, None), Reply::Refuse(429, Some(3600)), Reply::Hang] {
        let mut tries = Vec::new();
        while tries.len() < TRIES && tries.iter().all(|behind| *behind >= BEHIND) {
            // At the same time, so that other load on the machine slows down both.
            let (with, without) = tokio::join!(delays(Some(third)), delays(None));
            assert_eq!(with.len(), without.len());
            let behind = with.iter().zip(&without).map(|(with, without)| with.saturating_sub(*without));
            tries.push(behind.max().unwrap());
        }
        println!("{third:?}: at most {tries:?} behind");
        assert!(tries.iter().any(|behind| *behind < BEHIND), "{third:?}: {tries:?} behind");
    }
}

/// Earlier, all channels shared one quarantine, and a flood of forged events filled it. The other channels then stopped
/// at their next forged event.
#[tokio::test]
async fn a_flood_of_forged_events_fills_only_its_own_channels_quarantine() {
    const FLOOD: usize = 10_050;
    let simulator = Simulator::start(Options { channels: 2, ..Options::default() }).await.unwrap();
    // A channel that never had a verified event quarantines nothing.
    simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
    for _ in 0..FLOOD {
        simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    }
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    let full = |daemon: &Daemon| daemon.log().0.contains("the channel's quarantine is full: reading stops");
    daemon.until("the quarantine is full", full).await;
    for spec in [EventSpec::Forged(Tampering::ContentChanged), EventSpec::Honest(Kind::WatcherEvent)] {
        simulator.publish_one(1, spec);
    }
    daemon.until("the other channel continues", |_| setup.lines() == 2).await;

    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    let channels = &status["channels"];
    assert_eq!(
        (&channels[0]["state"], &channels[1]["quarantined"]),
        (&"quarantine_full".into(), &1.into()),
        "{status}"
    );
    let reasons = status["reasons"].as_array().unwrap();
    assert!(reasons.iter().all(|reason| reason.as_str().unwrap().starts_with("channel c0: ")), "{reasons:?}");
    assert_eq!(reasons.len(), 2, "none was verified, and the quarantine is full: {reasons:?}");
    daemon.stop().await;
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), (vec![1], vec![2]));
}
