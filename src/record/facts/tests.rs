use super::*;
use crate::testing::{notice, proved};

#[test]
fn the_signed_word_counts_before_the_services_own() {
    let record = proved(
        r#""watcher_id":"W","chain_selector":"1""#,
        r#"{"name":"Transfer","service":"dvp","chain_selector":"2","chain_event":{"address":"0xAb"}}"#,
    );
    let facts = record.facts();
    let expected = [
        (Field::Type, "watcher.event"),
        (Field::Verification, "verified"),
        (Field::EventName, "Transfer"),
        (Field::Service, "dvp"),
        (Field::ChainSelector, "2"),
        (Field::Address, "0xAb"),
        (Field::WatcherId, "W"),
    ];
    for (field, value) in expected {
        assert_eq!(facts.get(field), Some(value), "{field:?}");
    }
    assert_eq!(facts.subject().as_deref(), Some("watcher/W"));
}

#[test]
fn an_event_whose_signed_content_names_another_thing_passes_for_that_thing_or_for_none() {
    let confirmed = r#"{"service":"_crec","name":"OperationConfirmed"}"#;
    for (status, fact) in [("failed", None), ("confirmed_safe", Some("confirmed_safe"))] {
        let record = proved(&format!(r#""status":"{status}""#), confirmed);
        let facts = record.facts();
        assert_eq!((facts.get(Field::Type), facts.get(Field::Status)), (Some("operation.status"), fact));
    }
    let query = proved(r#""query_id":"Q""#, r#"{"service":"_crec","name":"ChainQuery","data":{"query_id":"R"}}"#);
    assert_eq!(query.facts().subject().as_deref(), Some("query/R"));
    let other = proved(r#""query_id":"Q""#, r#"{"service":"dvp","name":"ChainQuery","data":{"query_id":"R"}}"#);
    assert_eq!(other.facts().get(Field::QueryId), Some("Q"), "what a contract emits says nothing of queries");
}

#[test]
fn an_event_without_a_payload_has_few_facts_and_no_subject() {
    let record = notice("comet.sighted", "7");
    let facts = record.facts();
    assert_eq!((facts.get(Field::Type), facts.get(Field::Status)), (Some("comet.sighted"), None));
    assert_eq!(facts.subject(), None);
}

#[test]
fn facts_are_read_once_a_record() {
    let record = notice("wallet.status", r#"{"status":"failed"}"#);
    assert!(std::ptr::eq(record.facts(), record.facts()));
    assert_eq!(record.facts().get(Field::Status), Some("failed"));
}

#[test]
fn fields_have_the_names_of_the_configuration() {
    let names: Vec<&str> = Field::VARIANTS.iter().map(Into::into).collect();
    let expected = [
        "type",
        "status",
        "event_name",
        "service",
        "chain_selector",
        "address",
        "watcher_id",
        "wallet_id",
        "operation_id",
        "wallet_operation_id",
        "query_id",
        "verification",
    ];
    assert_eq!(names, expected);
}
