//! A sink with `min_confidence` receives exactly the events that are final enough.

use std::collections::BTreeSet;

use serde_json::Value;
use simulator::{EventSpec, Kind, Options, Simulator, WatcherConfidence};

use crate::support::{Admin, Answered, Delivered, Receiver, Setup, offsets, value};

const CHANNELS: usize = 6;
const EVENTS: usize = 20;

/// The channels and the offsets of records.
fn places(records: &[Delivered]) -> BTreeSet<(String, i64)> {
    records.iter().map(|record| (record.channel.clone(), record.offset)).collect()
}

/// The confidence in the signed content of a record.
fn signed(record: &Delivered) -> Option<String> {
    let decoded: Value = serde_json::from_str(record.decoded.as_ref()?.get()).unwrap();
    decoded["chain_event"]["confidence"].as_str().map(str::to_owned)
}

/// The sum of the counts of a sink in the JSON of `status`.
fn counted(status: &Value, sink: &str) -> u64 {
    let lanes = status["channels"].as_array().unwrap().iter().flat_map(|channel| channel["lanes"].as_array().unwrap());
    lanes.filter(|lane| lane["sink"] == sink).map(|lane| lane["without_confidence"].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn none_below_the_limit_arrives_and_none_above_is_missing() {
    let (channels, events) = (CHANNELS, EVENTS as u64);
    let options = Options { channels, events, confidence: WatcherConfidence::Mixed, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let (safe, last) = (Receiver::start().await, Receiver::start().await);
    let mut setup = Setup::reading(&simulator).with_webhook("safe", &safe).with_webhook("last", &last).with_admin();
    setup.set("sinks.safe.filter.min_confidence", "safe");
    for channel in 0..CHANNELS {
        setup.set(&format!("channels.c{channel}.filters.last.min_confidence"), "finalized");
    }
    let mut daemon = setup.start();
    daemon.until("the file has all events", |_| setup.lines() == CHANNELS * EVENTS).await;
    let all = setup.delivered();
    let passing = |levels: &[&str]| {
        let passes = |record: &&Delivered| {
            record.kind != "watcher.event" || signed(record).is_some_and(|level| levels.contains(&&*level))
        };
        all.iter().filter(passes).map(|record| (record.channel.clone(), record.offset)).collect::<BTreeSet<_>>()
    };
    let (expected_safe, expected_last) = (passing(&["safe", "finalized"]), passing(&["finalized"]));
    let without = all.iter().filter(|record| record.kind == "watcher.event" && signed(record).is_none()).count();
    assert!(without > 0 && expected_last.len() < expected_safe.len() && expected_safe.len() + without < all.len());

    let admin = Admin::of(&mut daemon).await;
    let count = |sink: &str| format!(r#"channeld_events_without_confidence_total{{sink="{sink}"}}"#);
    let expected = f64::from(u32::try_from(without).unwrap());
    let is_counted =
        |answer: &Answered| ["safe", "last"].iter().all(|sink| value(&answer.text, &count(sink)) == Some(expected));
    let answer = admin.until(&mut daemon, "/metrics", "the events without a confidence are counted", is_counted).await;
    assert_eq!(value(&answer.text, &count("file")), Some(0.0));
    let done = |answer: &Answered| {
        let status = answer.json();
        let channels = status["channels"].as_array().unwrap().iter();
        let mut lanes = channels.flat_map(|channel| channel["lanes"].as_array().unwrap());
        lanes.all(|lane| lane["cursor"] == EVENTS)
            && ["safe", "last"].iter().all(|sink| counted(&status, sink) == without as u64)
    };
    let status = admin.until(&mut daemon, "/status", "all cursors are at the end", done).await;
    assert_eq!(counted(&status.json(), "file"), 0);
    daemon.stop().await;
    assert_eq!(places(&safe.delivered()), expected_safe);
    assert_eq!(places(&last.delivered()), expected_last);
}

#[tokio::test]
async fn a_failed_operation_passes_and_an_operation_before_its_confirmation_does_not() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let kinds = [Kind::OperationAccepted, Kind::OperationConfirmed, Kind::OperationFailed, Kind::WalletStatus];
    for kind in kinds {
        simulator.publish_one(0, EventSpec::Honest(kind));
    }
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let setup = setup.with("sinks.hook.filter.min_confidence", "finalized");
    let mut daemon = setup.start();
    daemon.until("both sinks have their events", |_| setup.lines() == 4 && receiver.received() == 3).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), [2, 3, 4]);
}

#[tokio::test]
async fn records_and_commands_show_the_signed_confidence_and_the_network() {
    let options = Options { events: 8, confidence: WatcherConfidence::Safe, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(8).await;
    for record in setup.delivered() {
        let json: Value = serde_json::from_str(&record.json).unwrap();
        assert_eq!(json["confidence"].as_str().map(str::to_owned), signed(&record), "{json}");
        assert!(json["network"].is_string(), "{json}");
        if record.kind == "watcher.event" {
            assert_eq!(json["confidence"], "safe");
            let shown = setup.tell(&["get", "c0", &record.offset.to_string()]).await;
            let text = String::from_utf8(shown.out).unwrap();
            let network = json["network"].as_str().unwrap();
            assert!(text.contains(&format!("confidence: safe\nnetwork: {network}\n")), "{text}");
        }
    }
    let verified = setup.tell(&["verify", "--json", setup.path("events.jsonl").to_str().unwrap()]).await;
    assert_eq!(verified.code, Some(0), "the fields of the record agree with its event: {verified:?}");
    let path = setup.path("changed.jsonl");
    let line = std::fs::read_to_string(setup.path("events.jsonl")).unwrap();
    std::fs::write(&path, line.replace(r#""confidence":"safe","network""#, r#""confidence":"finalized","network""#))
        .unwrap();
    let verified = setup.tell(&["verify", "--json", path.to_str().unwrap()]).await;
    assert!(String::from_utf8(verified.out).unwrap().contains("record-mismatch"), "a changed confidence is noticed");
}
