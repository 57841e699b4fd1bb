//! A pending event is delivered late, or it is quarantined after the timeout. In strict order later events wait for it.

use super::{LATE, PROVED};
use crate::support::{Receiver, Setup, offsets, records};
use ledger::{Change, Commit};
use proof::event::Offset;
use simulator::{Options, Simulator};

const SETTLED_LATE: &str = "pending event delivered";
const BLOCKED: &str = "proof is pending: later events wait for it";

async fn service() -> Simulator {
    Simulator::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn a_pending_event_is_delivered_late_and_delays_nothing() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    for spec in [PROVED, LATE, PROVED, LATE, PROVED] {
        simulator.publish_one(0, spec);
    }
    let mut daemon = setup.start();
    daemon.until("the events with a proof arrive", |_| setup.lines() == 3 && receiver.received() == 3).await;

    let set_aside = jiff::Timestamp::now();
    simulator.prove(0, 2);
    daemon.until("the pending event arrives", |_| setup.lines() == 4 && receiver.received() == 4).await;
    // The next process continues to wait for the proof of event 4.
    daemon.stop().await;
    simulator.prove(0, 4);
    simulator.publish_one(0, PROVED);
    let mut daemon = setup.start();
    daemon.until("all events have arrived", |_| setup.lines() == 6 && receiver.received() == 6).await;
    daemon.until("it is recorded", |daemon| daemon.log().lines(SETTLED_LATE).len() == 2).await;
    daemon.stop().await;

    let expected = [1, 3, 5, 2, 6, 4];
    assert_eq!(setup.offsets("c0"), expected);
    assert_eq!(offsets(&receiver.delivered()), expected);
    assert!(setup.delivered().iter().all(|delivered| delivered.status() == "verified"));
    let received: Vec<_> = setup.delivered().iter().map(|delivered| delivered.received.clone()).collect();
    let at = |at: usize| received[at].parse::<jiff::Timestamp>().unwrap();
    assert!(received[3..=5].len() == 3 && at(3) < set_aside && at(5) < set_aside && at(4) > set_aside, "{received:?}");
    assert!(received.iter().all(|received| received.len() == "2024-05-14T12:00:16.120Z".len()), "{received:?}");
    assert!(setup.ledger(simulator.announcement().channels[0]).await.late().is_empty());
}

#[tokio::test]
async fn in_strict_order_everything_waits_for_a_pending_event_even_across_restarts() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("verification.ordering", "strict").with("api.page_limit", 10);
    for spec in [PROVED, LATE, PROVED, PROVED] {
        simulator.publish_one(0, spec);
    }
    for _ in 0..2 {
        let asked = simulator.requests().event;
        let mut daemon = setup.start();
        daemon
            .until("the channel waits for the proof", |daemon| {
                daemon.has_logged(BLOCKED) && simulator.requests().event > asked && setup.lines() == 1
            })
            .await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), [1]);
    }

    simulator.prove(0, 2);
    setup.run_until_lines(4).await;

    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4]);
}

#[tokio::test]
async fn in_strict_order_a_restart_does_not_restart_the_timeout() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("verification.ordering", "strict");
    let setup = setup.with("verification.proof_timeout", "1h");
    for spec in [PROVED, LATE, PROVED] {
        simulator.publish_one(0, spec);
    }
    let mut daemon = setup.start();
    daemon.until("the channel waits for the proof", |daemon| daemon.has_logged(BLOCKED) && setup.lines() == 1).await;
    daemon.stop().await;

    // Simulate that the proof has been requested for two hours, which is longer than the timeout.
    let channel = simulator.announcement().channels[0];
    let blocker = setup.ledger(channel).await.blocker().unwrap();
    assert_eq!(blocker.offset.get(), 2);
    setup.commit(channel, Commit(vec![Change::Asked(7200)])).await;

    setup.run_until_lines(2).await;
    assert_eq!(setup.offsets("c0"), [1, 3]);
    assert_eq!(setup.quarantined(channel, blocker.offset).await.reason, "proof-timeout");
}

#[tokio::test]
async fn a_proof_that_never_arrives_affects_only_its_own_event() {
    for ordering in ["available", "strict"] {
        let simulator = service().await;
        let setup =
            Setup::reading(&simulator).with("verification.ordering", ordering).with("verification.proof_timeout", "1s");
        for spec in [PROVED, LATE, PROVED] {
            simulator.publish_one(0, spec);
        }
        let mut daemon = setup.start();
        let rejected = "event rejected: not delivered";
        daemon.until("the event is rejected", |daemon| daemon.has_logged(rejected) && setup.lines() == 2).await;
        // The rejection is logged before it is recorded.
        let mirror = || std::fs::read_to_string(setup.path("state/cursors.json")).unwrap_or_default();
        daemon.until("the rejection is recorded", |_| mirror().contains(r#""quarantined": 1"#)).await;
        daemon.stop().await;

        assert_eq!(setup.offsets("c0"), [1, 3], "{ordering}");
        let channel = simulator.announcement().channels[0];
        let ledger = setup.ledger(channel).await;
        let kept = ledger.quarantined();
        let place = Offset::new(2).unwrap();
        assert_eq!(
            kept.iter().map(|(at, facts)| (at.offset, &*facts.reason)).collect::<Vec<_>>(),
            [(place, "proof-timeout")]
        );
        assert_eq!(setup.body(channel, place).await.unwrap(), records(&simulator, 0).await[&2].as_bytes());
        assert!(ledger.late().is_empty());
    }
}
