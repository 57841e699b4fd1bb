//! An event without a valid proof is never delivered as verified. Covers forged, malformed and unsigned events.

use proof::event::Offset;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use super::PROVED;
use crate::support::{Delivered, Receiver, Setup, deliverable, offsets, records};

/// The reason that the quarantine shows for each kind of invalid event.
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

async fn service() -> Simulator {
    Simulator::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn forged_and_malformed_events_are_quarantined_with_their_bytes_and_never_delivered() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 4);
    let mut spoilt = Vec::new();
    for (spec, reason) in REASONS {
        spoilt.push((simulator.publish_one(0, spec), reason));
        simulator.publish_one(0, PROVED);
    }

    let mut daemon = setup.start();
    daemon.until("the valid events arrive", |_| setup.lines() == 10 && receiver.received() == 10).await;
    let log = daemon.stop().await;

    let good = deliverable(&simulator, 0);
    assert_eq!((setup.offsets("c0"), good.len()), (good.clone(), 10));
    assert_eq!(offsets(&receiver.delivered()), good);
    let truth = records(&simulator, 0).await;
    let channel = simulator.announcement().channels[0];
    let ledger = setup.ledger(channel).await;
    let kept = ledger.quarantined();
    let kept: Vec<_> = kept.iter().map(|(key, facts)| (key.offset.get(), facts.reason.as_str())).collect();
    assert_eq!(kept, spoilt);
    for (offset, reason) in spoilt {
        let kept = setup.body(channel, Offset::new(offset).unwrap()).await.unwrap();
        assert_eq!(kept, truth[&offset].as_bytes(), "{reason}");
    }
    assert_eq!(log.lines("event rejected: not delivered").len(), 10, "each is logged once");
}

#[tokio::test]
async fn nothing_is_delivered_as_verified_with_other_signers() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("verification.org_id", "org_of_somebody_else");
    simulator.publish_one(0, PROVED);
    simulator.publish_one(0, EventSpec::Honest(Kind::WalletStatus));

    setup.run_until_lines(1).await;

    let delivered = setup.delivered();
    assert_eq!((delivered.len(), delivered[0].offset, delivered[0].status()), (1, 2, "unsigned"));
}

#[tokio::test]
async fn unsigned_events_are_delivered_marked_or_dropped_as_configured() {
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
async fn an_event_without_an_id_is_delivered_under_its_offset() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    simulator.publish_one(0, EventSpec::WithoutId);
    simulator.publish_one(0, PROVED);

    let mut daemon = setup.start();
    daemon.until("both events arrive", |_| setup.lines() == 2 && receiver.received() == 2).await;
    daemon.stop().await;

    assert_eq!(receiver.ids()[0], format!("{}:1", simulator.announcement().channels[0]));
    assert_eq!(setup.delivered()[0].event_id, None);
}
