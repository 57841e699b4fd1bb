//! The signed content of events conforms to spec/wire.md, "The decoded content".

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proof::verify::keccak256;
use serde_json::{Value, json};
use simulator::{ApiVersion, EventSpec, Kind, Simulator};

use super::client::{Client, json, on_each_version, playing};

on_each_version! {
    a_watcher_event_names_its_signature_and_hash,
    a_confirmed_operation_is_signed_under_the_services_name,
    a_completed_query_has_a_result_or_an_error,
}

/// The payloads of 40 events of this kind, each with its signed content.
async fn published(version: ApiVersion, kind: Kind) -> Vec<(Value, Value)> {
    let simulator = Simulator::start(playing(version)).await.unwrap();
    for _ in 0..40 {
        simulator.publish_one(0, EventSpec::Honest(kind));
    }
    let page = Client::of(&simulator).poll("").await;
    let read = |record: &String| {
        let payload = json(record)["payload"].take();
        let signed = payload["verifiable_event"].as_str().or(payload["verifiable_result"].as_str()).unwrap();
        let signed = BASE64_STANDARD.decode(signed).unwrap();
        (payload, serde_json::from_slice(&signed).unwrap())
    };
    page.records.iter().map(read).collect()
}

/// The member names of an object, sorted.
fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Asserts that the signature is the name of the event with its types, and that the topic is the hash of the signature.
fn assert_is_signature(event: &Value) {
    let signature = event["chain_event"]["event_signature"].as_str().unwrap();
    let types = signature.strip_prefix(event["name"].as_str().unwrap()).unwrap();
    assert!(types.starts_with('(') && types.ends_with(')'), "{signature}");
    assert_eq!(event["chain_event"]["topic_hash"], keccak256([signature.as_bytes()]).to_string());
}

async fn a_watcher_event_names_its_signature_and_hash(version: ApiVersion) {
    for (payload, signed) in published(version, Kind::WatcherEvent).await {
        assert_is_signature(&signed);
        assert_eq!(signed["chain_selector"], payload["chain_selector"]);
        assert_ne!(signed["service"], "_crec");
    }
}

async fn a_confirmed_operation_is_signed_under_the_services_name(version: ApiVersion) {
    for (payload, signed) in published(version, Kind::OperationConfirmed).await {
        assert_is_signature(&signed);
        assert_eq!((&signed["service"], &signed["name"]), (&json!("_crec"), &json!("OperationConfirmed")));
        assert_eq!(signed["chain_selector"], payload["chain_selector"]);
        let number = payload["wallet_operation_id"].as_str().unwrap();
        assert!(number.len() > 20 && number.len() <= 78 && number.bytes().all(|digit| digit.is_ascii_digit()));
    }
}

async fn a_completed_query_has_a_result_or_an_error(version: ApiVersion) {
    let (mut results, mut errors) = (0, 0);
    for (payload, signed) in published(version, Kind::QueryCompleted).await {
        assert_eq!((&signed["service"], &signed["name"]), (&json!("_crec"), &json!("ChainQuery")));
        let data = &signed["data"];
        assert_eq!((&data["query_id"], &data["query_kind"]), (&payload["query_id"], &json!("evm_call")));
        assert_eq!(members(&data["target"]), ["call_data", "contract_address", "from_address"]);
        assert_eq!(data["target"]["contract_address"], payload["target"]);
        assert_eq!(members(&data["block_selection"]), ["requested", "resolved"]);
        assert!(data["block_selection"]["requested"]["type"].is_string() && data["channel_id"].is_string());
        assert!(data["result"]["raw_return_data"].is_string() != data["error"].is_object(), "{data}");
        if data["error"].is_object() { errors += 1 } else { results += 1 }
    }
    assert!(results > errors && errors > 0, "{results} {errors}");
}
