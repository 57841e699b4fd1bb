use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::testing::{notice, proved};

fn shaped(record: Record, format: Format, include_proof: bool) -> (Message, Value) {
    let message = Message::new(&Arc::new(record), &Shape { format, include_proof, ..Shape::default() });
    let value = serde_json::from_slice(message.body()).unwrap();
    (message, value)
}

#[test]
fn a_cloud_event_has_the_record_as_its_data() {
    let record = proved(r#""watcher_id":"W","timestamp":1715688015"#, r#"{"name":"Transfer"}"#);
    let (plain, _) = shaped(record.clone(), Format::Json, false);
    let (message, event) = shaped(record, Format::CloudEvents, false);
    assert_eq!(message.content_type(), "application/cloudevents+json");
    let data: Value = serde_json::from_slice(plain.body()).unwrap();
    let expected = json!({
        "specversion": "1.0",
        "id": "00000000-0000-0000-0000-000000000002",
        "source": "urn:uuid:00000000-0000-0000-0000-000000000001",
        "type": "watcher.event",
        "subject": "watcher/W",
        "time": "2024-05-14T12:00:15Z",
        "datacontenttype": "application/json",
        "data": data,
    });
    assert_eq!(event, expected);
}

#[test]
fn a_cloud_event_has_the_signed_confidence_and_the_network_as_attributes() {
    let signed = r#"{"chain_selector":"15971525489660198786","chain_event":{"confidence":"safe"}}"#;
    let (_, event) = shaped(proved("", signed), Format::CloudEvents, false);
    assert_eq!((&event["confidence"], &event["network"]), (&json!("safe"), &json!("Base")));
    assert_eq!((&event["data"]["confidence"], &event["data"]["network"]), (&json!("safe"), &json!("Base")));
    let notice = notice("wallet.status", r#"{"confidence":"finalized","chain_selector":"15971525489660198786"}"#);
    let (_, event) = shaped(notice, Format::CloudEvents, false);
    assert_eq!((event.get("confidence"), &event["network"]), (None, &json!("Base")));
}

#[test]
fn a_template_can_use_the_confidence_and_the_network() {
    let text =
        "{{ confidence if confidence is defined else 'none' }} on {{ network if network is defined else 'none' }}";
    let template = Template::new(Source::Own(text.into()), "text/plain", BTreeMap::new()).unwrap();
    let shape = Shape { format: Format::Template, template: Some(Arc::new(template)), ..Shape::default() };
    let body = |record| Message::new(&Arc::new(record), &shape).body().clone();
    let signed = r#"{"chain_selector":"15971525489660198786","chain_event":{"confidence":"safe"}}"#;
    assert_eq!(body(proved("", signed)), "safe on Base");
    assert_eq!(body(notice("wallet.status", "{}")), "none on none");
}

#[test]
fn raw_is_only_the_services_event() {
    let record = notice("wallet.status", r#"{"status":"deployed"}"#);
    let event = record.event();
    assert_eq!(shaped(record, Format::Raw, false).0.body(), &event);
}

#[test]
fn a_proof_is_added_beside_its_event_if_there_is_one() {
    let proof = json!({"report": "0x01", "context": "0x02", "signatures": ["0x03", "0x04"]});
    let record = proved(r#""watcher_id":"W""#, "{}");
    assert_eq!(shaped(record.clone(), Format::Json, true).1["proof"], proof);
    assert_eq!(shaped(record, Format::CloudEvents, true).1["data"]["proof"], proof);
    assert_eq!(shaped(notice("wallet.status", "{}"), Format::Json, true).1["proof"], Value::Null);
}

#[test]
fn the_attributes_of_a_cloud_event_are_valid_or_left_out() {
    for kind in ["", "a\\u0007b", "a\\nb", "\\ufdd0", "\\uffff"] {
        let (_, event) = shaped(notice(kind, "{}"), Format::CloudEvents, false);
        assert_eq!(event["type"], UNNAMED, "{kind:?}");
    }
    assert_eq!(shaped(notice("a.b", "{}"), Format::CloudEvents, false).1["type"], "a.b");
    let (_, event) = shaped(notice("watcher.status", r#"{"watcher_id":"a\u0000"}"#), Format::CloudEvents, false);
    assert_eq!((&event["type"], event.get("subject")), (&json!("watcher.status"), None));
}

#[test]
fn a_time_that_rfc_3339_cannot_express_is_left_out() {
    let cases = [
        (-62_167_219_201, None),
        (-62_167_219_200, Some("0000-01-01T00:00:00Z")),
        (253_402_207_200, Some("9999-12-30T22:00:00Z")),
        (i64::MAX, None),
    ];
    for (second, expected) in cases {
        let record = proved(&format!(r#""timestamp":{second}"#), "{}");
        for format in [Format::Json, Format::CloudEvents] {
            let (_, value) = shaped(record.clone(), format, false);
            assert_eq!(value.get("time").and_then(Value::as_str), expected, "{second}");
        }
    }
}
