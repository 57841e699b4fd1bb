//! Each proof and each offset is compared with the events that the service showed before. Duplicate proofs and
//! contradictions are quarantined. Repeats of the same event are not.

use proof::event::Offset;
use rustix::process::Signal;
use simulator::{EventSpec, Kind, LateProofs, Options, ReplayedId, Simulator};

use super::{LATE, PROVED};
use crate::support::{Daemon, Receiver, Reply, Setup, deliverable, offsets};

const NOTICE: EventSpec = EventSpec::Honest(Kind::WalletStatus);
const REJECTED: &str = "event rejected: not delivered";
const EARLIER_DUPLICATE: &str = "an event that was delivered earlier is a duplicate of this event";

async fn service(channels: usize) -> Simulator {
    Simulator::start(Options { channels, ..Options::default() }).await.unwrap()
}

/// The quarantined events of a channel: offsets, reasons and details.
async fn quarantined(setup: &Setup, simulator: &Simulator, channel: usize) -> Vec<(i64, String, String)> {
    let ledger = setup.ledger(simulator.announcement().channels[channel]).await;
    let kept = ledger.quarantined().iter();
    kept.map(|(key, facts)| (key.offset.get(), facts.reason.clone(), facts.detail.clone())).collect()
}

/// The quarantine entry of the event at offset `at`, whose proof was accepted before at `offset` of `channel`.
fn duplicate_of(simulator: &Simulator, channel: usize, offset: i64, at: i64) -> (i64, String, String) {
    let channel = simulator.announcement().channels[channel];
    let detail = format!("its proof was shown before, at offset {offset} of channel {channel}");
    (at, "duplicate-proof".to_owned(), detail)
}

/// Like [`duplicate_of`], if the proof was accepted in another channel. The detail then contains the digest of the
/// proof.
fn shown_in(setup: &Setup, simulator: &Simulator, channel: usize, offset: i64, at: i64) -> (i64, String, String) {
    let shown = setup.offsets(&format!("c{channel}")).iter().position(|delivered| *delivered == offset).unwrap();
    let delivered = setup.delivered().into_iter().filter(|one| one.channel == format!("c{channel}"));
    let digest = delivered.map(|one| one.verification["digest"].clone()).nth(shown).unwrap();
    let (channel, digest) = (simulator.announcement().channels[channel], digest.as_str().unwrap());
    let detail =
        format!("its proof {digest} was shown before in another channel, at offset {offset} of channel {channel}");
    (at, "proof-of-channel".to_owned(), detail)
}

/// The quarantine entry of an event at offset `at`, if the service showed another event at this offset before.
fn contradiction(simulator: &Simulator, channel: usize, at: i64) -> (i64, String, String) {
    let channel = simulator.announcement().channels[channel];
    let detail =
        format!("a different event, or different content, was shown before at offset {at} of channel {channel}");
    (at, "contradiction".to_owned(), detail)
}

async fn until_lines(daemon: &mut Daemon, lines: usize, setup: &Setup) {
    daemon.until(&format!("{lines} lines"), |_| setup.lines() >= lines).await;
}

#[tokio::test]
async fn a_proof_repeated_at_another_offset_is_quarantined_and_delays_nothing() {
    for kind in [Kind::WatcherEvent, Kind::OperationConfirmed, Kind::QueryCompleted] {
        let simulator = service(1).await;
        let setup = Setup::reading(&simulator);
        for spec in [EventSpec::Honest(kind), PROVED] {
            simulator.publish_one(0, spec);
        }
        // The service repeats a proof in the same page, and later in other pages.
        simulator.replay(0, 1, 0, ReplayedId::New);
        simulator.publish_one(0, PROVED);
        let mut daemon = setup.start();
        until_lines(&mut daemon, 3, &setup).await;
        simulator.replay(0, 2, 0, ReplayedId::New);
        simulator.replay(0, 3, 0, ReplayedId::New);
        simulator.publish_one(0, PROVED);
        until_lines(&mut daemon, 4, &setup).await;
        let log = daemon.stop().await;

        assert_eq!(setup.offsets("c0"), [1, 2, 4, 7]);
        assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
        let expected = [(1, 3), (2, 5), (1, 6)].map(|(of, at)| duplicate_of(&simulator, 0, of, at));
        assert_eq!(quarantined(&setup, &simulator, 0).await, expected);
        assert_eq!(log.lines(REJECTED).len(), 3, "each is logged once");
    }
}

#[tokio::test]
async fn a_duplicate_proof_with_the_same_id_is_quarantined_and_later_events_are_read() {
    let simulator = service(2).await;
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    for channel in [0, 1] {
        for lines in [2, 4] {
            let lines = 4 * channel + lines;
            simulator.publish_one(channel, PROVED);
            daemon.until("it arrives", |_| setup.lines() == lines - 1).await;
            simulator.replay(0, 1, channel, ReplayedId::Same);
            simulator.publish_one(channel, PROVED);
            daemon.until("the later event arrives", |_| setup.lines() == lines).await;
        }
    }
    daemon.stop().await;

    for (channel, name) in [(0, "c0"), (1, "c1")] {
        assert_eq!(setup.offsets(name), [1, 3, 4, 6]);
        let expected = [2, 5].map(|at| match channel {
            0 => duplicate_of(&simulator, 0, 1, at),
            _ => shown_in(&setup, &simulator, 0, 1, at),
        });
        assert_eq!(quarantined(&setup, &simulator, channel).await, expected);
    }
}

#[tokio::test]
async fn a_duplicate_proof_at_the_newest_offset_does_not_stop_the_cursor() {
    let simulator = service(1).await;
    let setup = Setup::reading(&simulator);
    simulator.publish_one(0, PROVED);
    simulator.replay(0, 1, 0, ReplayedId::New);
    let mut daemon = setup.start();
    daemon.until_logged(REJECTED).await;
    daemon
        .until("the cursor has passed the duplicate", |daemon| daemon.log().0.matches("batch recorded").count() > 0)
        .await;
    daemon.stop().await;
    let ledger = setup.ledger(simulator.announcement().channels[0]).await;
    assert_eq!(ledger.cursor("file").unwrap().through, Offset::new(2));
}

#[tokio::test]
async fn a_proof_in_another_channel_is_quarantined_after_a_reload_too() {
    let simulator = service(2).await;
    let setup = Setup::reading(&simulator);
    simulator.publish_one(0, PROVED);
    let mut daemon = setup.start();
    until_lines(&mut daemon, 1, &setup).await;
    simulator.replay(0, 1, 1, ReplayedId::New);
    simulator.publish_one(1, PROVED);
    until_lines(&mut daemon, 2, &setup).await;

    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    simulator.replay(1, 2, 0, ReplayedId::New);
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 3, &setup).await;
    daemon.stop().await;

    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), (vec![1, 3], vec![2]));
    assert_eq!(quarantined(&setup, &simulator, 1).await, [shown_in(&setup, &simulator, 0, 1, 1)]);
    assert_eq!(quarantined(&setup, &simulator, 0).await, [shown_in(&setup, &simulator, 1, 2, 2)]);
}

#[tokio::test]
async fn changed_content_at_a_processed_offset_is_quarantined_for_a_slower_lane() {
    let simulator = service(1).await;
    let behind = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("behind", &behind).with("api.page_limit", 4);
    behind.always(Some(Reply::Refuse(503, None)));
    for spec in [PROVED, NOTICE].repeat(20) {
        simulator.publish_one(0, spec);
    }
    let mut daemon = setup.start();
    until_lines(&mut daemon, 40, &setup).await;
    for offset in [31, 36] {
        simulator.contradict(0, offset);
    }
    behind.always(None);
    daemon.until("it has caught up", |_| behind.received() == 38).await;
    daemon.until_logged("lane has caught up").await;
    // The service is consistent again, so new events are read as usual.
    simulator.prove(0, 31);
    simulator.publish_one(0, PROVED);
    daemon.until("both sinks receive the new event", |_| behind.received() == 39 && setup.lines() == 41).await;
    daemon.stop().await;

    let expected: Vec<_> = (1..=41).filter(|offset| ![31, 36].contains(offset)).collect();
    assert_eq!(offsets(&behind.delivered()), expected);
    assert_eq!(setup.offsets("c0"), (1..=41).collect::<Vec<_>>());
    let expected = [31, 36].map(|at| contradiction(&simulator, 0, at));
    assert_eq!(quarantined(&setup, &simulator, 0).await, expected);
}

#[tokio::test]
async fn events_repeated_by_the_service_lanes_or_restarts_are_not_duplicates() {
    for inclusive in [false, true] {
        let late_proofs = Some(LateProofs { share: 0.1, delay: std::time::Duration::from_secs(1) });
        let options =
            Options { events: 150, unsigned: 0.3, late_proofs, inclusive, sparse: true, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let behind = Receiver::start().await;
        let setup = Setup::reading(&simulator).with_webhook("behind", &behind).with("api.page_limit", 10);
        behind.always(Some(Reply::Refuse(503, None)));
        let mut daemon = setup.start();
        until_lines(&mut daemon, 150, &setup).await;
        daemon.signal(Signal::HUP);
        daemon.until_logged("configuration reloaded").await;
        behind.always(None);
        daemon.until("it has caught up", |_| behind.received() == 150).await;
        let first = daemon.stop().await;

        simulator.publish(0, 30);
        let mut daemon = setup.start();
        daemon.until("everything arrives", |_| setup.lines() == 180 && behind.received() == 180).await;
        let second = daemon.stop().await;

        for log in [first, second] {
            assert_eq!((log.lines(REJECTED).len(), log.lines(EARLIER_DUPLICATE).len()), (0, 0));
        }
        assert_eq!(quarantined(&setup, &simulator, 0).await, []);
    }
}

#[tokio::test]
async fn a_pending_event_is_delivered_although_its_duplicate_arrived_first() {
    let simulator = service(1).await;
    let setup = Setup::reading(&simulator);
    simulator.publish_one(0, LATE);
    simulator.replay(0, 1, 0, ReplayedId::New);
    let mut daemon = setup.start();
    until_lines(&mut daemon, 1, &setup).await;
    simulator.prove(0, 1);
    daemon.until_logged("pending event delivered").await;
    // The proof is known now, so another replay is recognized as a duplicate.
    simulator.replay(0, 1, 0, ReplayedId::New);
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 3, &setup).await;
    let log = daemon.stop().await;

    assert_eq!(setup.offsets("c0"), [2, 1, 4]);
    assert_eq!(log.lines(EARLIER_DUPLICATE).len(), 1);
    assert_eq!(quarantined(&setup, &simulator, 0).await, [duplicate_of(&simulator, 0, 1, 3)]);
}

#[tokio::test]
async fn after_a_restart_a_slower_lane_still_accepts_the_original() {
    let simulator = service(1).await;
    let behind = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("behind", &behind).with("api.page_limit", 4);
    behind.always(Some(Reply::Refuse(503, None)));
    simulator.publish(0, 30);
    let mut daemon = setup.start();
    until_lines(&mut daemon, 30, &setup).await;
    daemon.stop().await;

    // The daemon reads the duplicate of event 25 before the lane that is behind reads event 25 itself.
    simulator.replay(0, 25, 0, ReplayedId::New);
    simulator.publish_one(0, PROVED);
    let mut daemon = setup.start();
    until_lines(&mut daemon, 31, &setup).await;
    behind.always(None);
    daemon.until("the other lane catches up", |_| offsets(&behind.delivered()).contains(&32)).await;
    daemon.stop().await;

    let expected: Vec<_> = (1..=30).chain([32]).collect();
    assert_eq!(offsets(&behind.delivered()), expected);
    assert_eq!(quarantined(&setup, &simulator, 0).await, [duplicate_of(&simulator, 0, 25, 31)]);
}

#[tokio::test]
async fn a_delivered_proof_is_a_duplicate_after_a_restart_and_retry_keeps_it_quarantined() {
    let simulator = service(2).await;
    let setup = Setup::reading(&simulator);
    for spec in [PROVED, EventSpec::Honest(Kind::OperationConfirmed)] {
        simulator.publish_one(0, spec);
    }
    setup.run_until_lines(2).await;

    // The proofs reappear at other offsets, with a new id and with the same id, and in another channel.
    simulator.replay(0, 1, 0, ReplayedId::New);
    simulator.replay(0, 2, 0, ReplayedId::Same);
    simulator.publish_one(0, PROVED);
    simulator.replay(0, 1, 1, ReplayedId::New);
    simulator.publish_one(1, PROVED);
    let mut daemon = setup.start();
    until_lines(&mut daemon, 4, &setup).await;
    let log = daemon.stop().await;
    let expected = [(1, 3), (2, 4)].map(|(of, at)| duplicate_of(&simulator, 0, of, at));
    assert_eq!(quarantined(&setup, &simulator, 0).await, expected);
    assert_eq!(quarantined(&setup, &simulator, 1).await, [shown_in(&setup, &simulator, 0, 1, 1)]);
    let told = log.lines(
        "a proof of this channel was also shown in the channel `other`: in at least one of the two, the service showed an event that does not belong to that channel",
    );
    assert_eq!(told.len(), 1, "it is logged for the first channel too");

    let facts = setup.quarantined(simulator.announcement().channels[1], Offset::new(1).unwrap()).await;
    assert_eq!(facts.original.map(|place| place.offset.get()), Some(1), "the entry has the location of the original");
    let retried = setup.tell(&["quarantine", "retry", "c0", "--all", "--json"]).await;
    assert!(retried.out.is_empty(), "{retried:?}");
    let named = setup.tell(&["quarantine", "retry", "c0", "--all", "--reason", "duplicate-proof", "--json"]).await;
    let fates = String::from_utf8(named.out).unwrap();
    assert_eq!(
        fates.matches(r#""fate":"kept","reason":"duplicate-proof""#).count(),
        2,
        "they are still duplicates: {fates}"
    );
    setup.run_until_lines(4).await;
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), (vec![1, 2, 5], vec![2]));
}
