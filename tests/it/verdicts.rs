//! What is not proved never arrives as proved: forged, malformed, unsigned and late events, each treated as promised.

use channeld::event::Offset;
use channeld::simulator::{EventSpec, Kind, Options, Simulator, Tampering};
use channeld::state::{Blocker, Commit};

use crate::support::{Delivered, Receiver, Setup, deliverable, offsets, records};

const SETTLED_LATE: &str = "late proof came: delivered";
const HELD: &str = "proof pending: later events wait for it";

/// What each way to spoil an event is called in the quarantine.
const REASONS: [(EventSpec, &str); 10] = [
    (EventSpec::Forged(Tampering::ContentChanged), "event-hash-mismatch"),
    (EventSpec::Forged(Tampering::Strangers), "too-few-signatures"),
    (EventSpec::Forged(Tampering::TooFewSignatures), "too-few-signatures"),
    (EventSpec::Forged(Tampering::RepeatedSigner), "too-few-signatures"),
    (EventSpec::Forged(Tampering::MalformedSignature), "malformed-signature"),
    (EventSpec::Forged(Tampering::OtherOwner), "wrong-owner"),
    (EventSpec::Forged(Tampering::OtherEvent), "event-hash-mismatch"),
    (EventSpec::Forged(Tampering::ReportTruncated), "malformed-report"),
    (EventSpec::Forged(Tampering::TwoProofs), "multiple-proofs"),
    (EventSpec::Malformed, "malformed"),
];

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const LATE: EventSpec = EventSpec::Late(Kind::WatcherEvent);

async fn service() -> Simulator {
    Simulator::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn what_is_forged_or_malformed_never_arrives_and_is_kept_as_evidence() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 4);
    let mut spoilt = Vec::new();
    for (spec, reason) in REASONS {
        spoilt.push((simulator.publish_one(0, spec), reason));
        simulator.publish_one(0, PROVED);
    }

    let mut daemon = setup.start();
    daemon.until("the good ones arrive", |_| setup.lines() == 10 && receiver.received() == 10).await;
    let log = daemon.stop().await;

    let good = deliverable(&simulator, 0);
    assert_eq!((setup.offsets("c0"), good.len()), (good.clone(), 10));
    assert_eq!(offsets(&receiver.delivered()), good);
    let truth = records(&simulator, 0).await;
    let state = setup.state();
    let channel = simulator.announcement().channels[0];
    let kept = state.quarantined(channel).unwrap();
    let kept: Vec<_> = kept.iter().map(|(offset, facts)| (offset.get(), facts.reason.as_str())).collect();
    assert_eq!(kept, spoilt);
    for (offset, reason) in spoilt {
        let evidence = state.json(channel, Offset::new(offset).unwrap()).unwrap().unwrap();
        assert_eq!(evidence, truth[&offset].as_bytes(), "{reason}");
    }
    assert_eq!(log.lines("event rejected: quarantined, not delivered").len(), 10, "each is said once");
}

#[tokio::test]
async fn nothing_is_delivered_as_verified_where_the_signers_are_others() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("verification.org_id", "org_of_somebody_else");
    simulator.publish_one(0, PROVED);
    simulator.publish_one(0, EventSpec::Honest(Kind::WalletStatus));

    setup.run_until_lines(1).await;

    let delivered = setup.delivered();
    assert_eq!((delivered.len(), delivered[0].offset, delivered[0].status()), (1, 2, "unsigned"));
}

#[tokio::test]
async fn notices_are_delivered_and_marked_or_left_out_as_configured() {
    let notices =
        [Kind::OperationAccepted, Kind::QueryAccepted, Kind::WatcherStatus, Kind::WalletStatus, Kind::Unknown];
    let simulator = service().await;
    for kind in notices {
        simulator.publish_one(0, EventSpec::Honest(kind));
        simulator.publish_one(0, PROVED);
    }
    for (policy, expected) in [("deliver", ["unsigned", "verified"].repeat(5)), ("drop", vec!["verified"; 5])] {
        let setup = Setup::reading(&simulator).with("verification.unsigned", policy);
        setup.run_until_lines(expected.len()).await;
        let delivered = setup.delivered();
        assert_eq!(delivered.iter().map(Delivered::status).collect::<Vec<_>>(), expected);
        assert!(delivered.iter().all(|delivered| delivered.decoded.is_some() == (delivered.status() == "verified")));
    }
}

#[tokio::test]
async fn an_event_without_an_id_is_delivered_under_its_place() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    simulator.publish_one(0, EventSpec::WithoutId);
    simulator.publish_one(0, PROVED);

    let mut daemon = setup.start();
    daemon.until("both arrive", |_| setup.lines() == 2 && receiver.received() == 2).await;
    daemon.stop().await;

    assert_eq!(receiver.ids()[0], format!("{}:1", simulator.announcement().channels[0]));
    assert_eq!(setup.delivered()[0].event_id, None);
}

#[tokio::test]
async fn a_late_proof_is_delivered_late_and_holds_nothing_back() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    for spec in [PROVED, LATE, PROVED, LATE, PROVED] {
        simulator.publish_one(0, spec);
    }
    let mut daemon = setup.start();
    daemon.until("those with a proof arrive", |_| setup.lines() == 3 && receiver.received() == 3).await;

    simulator.prove(0, 2);
    daemon.until("the late one arrives", |_| setup.lines() == 4 && receiver.received() == 4).await;
    // The other is still waited for by the next process.
    daemon.stop().await;
    simulator.prove(0, 4);
    simulator.publish_one(0, PROVED);
    let mut daemon = setup.start();
    daemon.until("all have arrived", |_| setup.lines() == 6 && receiver.received() == 6).await;
    daemon.until("it is recorded", |daemon| daemon.log().lines(SETTLED_LATE).len() == 2).await;
    daemon.stop().await;

    let expected = [1, 3, 5, 2, 6, 4];
    assert_eq!(setup.offsets("c0"), expected);
    assert_eq!(offsets(&receiver.delivered()), expected);
    assert!(setup.delivered().iter().all(|delivered| delivered.status() == "verified"));
    assert!(setup.state().late(simulator.announcement().channels[0]).unwrap().is_empty());
}

#[tokio::test]
async fn in_strict_order_everything_waits_for_a_late_proof_across_restarts_too() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("verification.ordering", "strict").with("api.page_limit", 10);
    for spec in [PROVED, LATE, PROVED, PROVED] {
        simulator.publish_one(0, spec);
    }
    for _ in 0..2 {
        let asked = simulator.requests().event;
        let mut daemon = setup.start();
        daemon
            .until("the proof is waited for", |daemon| {
                daemon.has_logged(HELD) && simulator.requests().event > asked && setup.lines() == 1
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
async fn in_strict_order_a_restart_does_not_wait_anew() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("verification.ordering", "strict");
    let setup = setup.with("verification.proof_timeout", "1h");
    for spec in [PROVED, LATE, PROVED] {
        simulator.publish_one(0, spec);
    }
    let mut daemon = setup.start();
    daemon.until("the proof is waited for", |daemon| daemon.has_logged(HELD) && setup.lines() == 1).await;
    daemon.stop().await;

    // As if that had been two hours ago.
    let channel = simulator.announcement().channels[0];
    let state = setup.state();
    let blocker = state.blocker(channel).unwrap().unwrap();
    assert_eq!(blocker.offset.get(), 2);
    let earlier = Blocker { first_seen: blocker.first_seen - 7200, ..blocker };
    state.commit(Commit { blocker: Some((channel, earlier)), ..Commit::default() }).await.unwrap();
    drop(state);

    setup.run_until_lines(2).await;
    assert_eq!(setup.offsets("c0"), [1, 3]);
    assert_eq!(setup.state().quarantined_at(channel, blocker.offset).unwrap().unwrap().reason, "proof-timeout");
}

#[tokio::test]
async fn a_proof_that_does_not_come_in_time_costs_only_its_own_event() {
    for ordering in ["available", "strict"] {
        let simulator = service().await;
        let setup =
            Setup::reading(&simulator).with("verification.ordering", ordering).with("verification.proof_timeout", "1s");
        for spec in [PROVED, LATE, PROVED] {
            simulator.publish_one(0, spec);
        }
        let mut daemon = setup.start();
        let rejected = "event rejected: quarantined, not delivered";
        daemon.until("it is given up", |daemon| daemon.has_logged(rejected) && setup.lines() == 2).await;
        daemon.stop().await;

        assert_eq!(setup.offsets("c0"), [1, 3], "{ordering}");
        let channel = simulator.announcement().channels[0];
        let state = setup.state();
        let kept = state.quarantined(channel).unwrap();
        let place = Offset::new(2).unwrap();
        assert_eq!(
            kept.iter().map(|(at, facts)| (*at, &*facts.reason)).collect::<Vec<_>>(),
            [(place, "proof-timeout")]
        );
        assert_eq!(state.json(channel, place).unwrap().unwrap(), records(&simulator, 0).await[&2].as_bytes());
        assert!(state.late(channel).unwrap().is_empty());
    }
}
