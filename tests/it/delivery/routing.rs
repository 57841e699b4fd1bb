//! Each sink receives the events that pass its filter, in its own format.

use cloudevents::AttributesReader;
use cloudevents::event::SpecVersion;
use serde_json::Value;
use simulator::{EventSpec, Kind, Options, Simulator};

use crate::support::{Receiver, Setup, offsets, records};

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const WALLET: EventSpec = EventSpec::Honest(Kind::WalletStatus);

async fn service(specs: &[EventSpec]) -> Simulator {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in specs {
        simulator.publish_one(0, *spec);
    }
    simulator
}

#[tokio::test]
async fn filtered_events_are_not_delivered_and_move_the_cursor() {
    let simulator = service(&[PROVED, WALLET, PROVED, WALLET, PROVED]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let setup = setup.with("sinks.hook.filter.type", vec!["wallet.status"]);
    let setup = setup.with("channels.c0.filters.file.verification", vec!["verified"]);
    let mut daemon = setup.start();
    daemon.until("each sink has its events", |_| setup.lines() == 3 && receiver.received() == 2).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [1, 3, 5]);
    assert_eq!(offsets(&receiver.delivered()), [2, 4]);
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [5, 5]);
}

#[tokio::test]
async fn a_pending_event_that_the_filter_excludes_is_dropped_for_its_sink() {
    let simulator = service(&[EventSpec::Late(Kind::WatcherEvent), WALLET]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let setup = setup.with("sinks.hook.filter.type", vec!["wallet.status"]);
    let mut daemon = setup.start();
    daemon.until("the notice arrives", |_| setup.lines() == 1 && receiver.received() == 1).await;
    simulator.prove(0, 1);
    daemon.until("the late event arrives", |_| setup.lines() == 2).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), [2]);
    assert!(setup.ledger(simulator.announcement().channels[0]).await.late().is_empty());
}

#[tokio::test]
async fn each_sink_uses_its_own_format_and_can_include_the_proof() {
    let simulator = service(&[PROVED, WALLET]).await;
    let mut setup = Setup::reading(&simulator).with("sinks.file.include_proof", true);
    for (name, format) in [("clouds", "cloudevents"), ("bare", "raw")] {
        setup.set(&format!("sinks.{name}.type"), "file");
        setup.set(&format!("sinks.{name}.path"), setup.path(name).display().to_string());
        setup.set(&format!("sinks.{name}.format"), format);
        setup.set(&format!("sinks.{name}.filter.verification"), vec!["verified", "unsigned"]);
    }
    let setup = setup.with("channels.c0.sinks", vec!["file", "clouds", "bare"]);
    let lines = |name: &str| std::fs::read_to_string(setup.path(name)).unwrap_or_default();
    let mut daemon = setup.start();
    let all = ["events.jsonl", "clouds", "bare"];
    daemon.until("all files have both events", |_| all.iter().all(|name| lines(name).lines().count() == 2)).await;
    daemon.stop().await;

    let truth = records(&simulator, 0).await;
    assert!(lines("bare").lines().eq([&truth[&1], &truth[&2]]), "byte for byte");
    let parse =
        |name: &str| lines(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let (records, clouds) = (parse("events.jsonl"), parse("clouds"));
    for (record, cloud) in records.iter().zip(&clouds) {
        assert_eq!((&cloud["specversion"], &cloud["id"]), (&"1.0".into(), &record["event_id"]));
        assert_eq!((&cloud["data"]["offset"], &cloud["data"]["proof"]), (&record["offset"], &Value::Null));
    }
    for (line, record) in lines("clouds").lines().zip(&records) {
        let event: cloudevents::Event =
            serde_json::from_str(line).expect("the official library of the specification reads the line");
        assert_eq!((event.specversion(), event.ty()), (SpecVersion::V10, record["type"].as_str().unwrap()));
        assert_eq!((event.id(), event.subject().is_some()), (record["event_id"].as_str().unwrap(), true));
        assert_eq!(event.source(), &format!("urn:uuid:{}", record["channel_id"].as_str().unwrap()));
        assert!(event.time().is_some() && event.data().is_some());
    }
    let proof = &records[0]["event"]["headers"]["proofs"][0];
    let beside = &records[0]["proof"];
    assert_eq!((&beside["report"], &beside["context"]), (&proof["ocr_report"], &proof["ocr_context"]));
    assert_eq!((&beside["signatures"], &records[1]["proof"]), (&proof["signatures"], &Value::Null));

    // The signers and the output of a sink are enough to verify its events years later.
    for name in all {
        let verified = setup.tell(&["verify", "--json", setup.path(name).to_str().unwrap()]).await;
        let out = String::from_utf8(verified.out).unwrap();
        let each: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let statuses: Vec<_> = each.iter().map(|it| it["status"].as_str().unwrap()).collect();
        assert_eq!(
            (statuses, verified.code),
            (vec!["verified", "unsigned"], Some(1)),
            "{name}: a notice proves nothing"
        );
    }
}

#[tokio::test]
async fn failures_can_be_routed_to_a_sink_of_their_own() {
    let simulator = service(&[PROVED, WALLET]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("alerts", &receiver).with("sinks.alerts.filter", "failures");
    let mut daemon = setup.start();
    daemon.until("the file has both events", |_| setup.lines() == 2).await;
    simulator.publish_one(0, EventSpec::Honest(Kind::OperationFailed));
    daemon.until("the failure arrives", |_| receiver.received() == 1 && setup.lines() == 3).await;
    simulator.publish_one(0, EventSpec::Honest(Kind::OperationReverted));
    daemon.until("the reverted operation arrives", |_| receiver.received() == 2 && setup.lines() == 4).await;
    daemon.stop().await;
    let failure = &receiver.delivered()[0];
    assert_eq!(failure.offset, 3);
    let event: Value = serde_json::from_str(failure.event.get()).unwrap();
    assert_eq!(event["payload"]["status"], "failed");
    assert_eq!(event["payload"]["status_reason"], "execution reverted");
    let reverted: Value = serde_json::from_str(receiver.delivered()[1].event.get()).unwrap();
    assert_eq!((&reverted["payload"]["status"], receiver.delivered()[1].status()), (&"reverted".into(), "verified"));
}
