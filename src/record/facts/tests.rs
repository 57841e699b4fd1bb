use super::*;
use crate::testing::{notice, proved};

#[test]
fn signed_values_take_precedence_over_the_services() {
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
fn signed_content_decides_what_an_event_is_about() {
    let confirmed = r#"{"service":"_crec","name":"OperationConfirmed"}"#;
    for (status, fact) in [("failed", None), ("confirmed_safe", Some("confirmed_safe"))] {
        let record = proved(&format!(r#""status":"{status}""#), confirmed);
        let facts = record.facts();
        assert_eq!((facts.get(Field::Type), facts.get(Field::Status)), (Some("operation.status"), fact));
    }
    let query = proved(r#""query_id":"Q""#, r#"{"service":"_crec","name":"ChainQuery","data":{"query_id":"R"}}"#);
    assert_eq!(query.facts().subject().as_deref(), Some("query/R"));
    let other = proved(r#""query_id":"Q""#, r#"{"service":"dvp","name":"ChainQuery","data":{"query_id":"R"}}"#);
    assert_eq!(other.facts().get(Field::QueryId), Some("Q"), "the data of a contract does not set the query");
}

#[test]
fn an_event_without_a_payload_has_few_facts_and_no_subject() {
    let record = notice("comet.sighted", "7");
    let facts = record.facts();
    assert_eq!((facts.get(Field::Type), facts.get(Field::Status)), (Some("comet.sighted"), None));
    assert_eq!(facts.subject(), None);
}

#[test]
fn facts_are_parsed_once_per_record() {
    let record = notice("wallet.status", r#"{"status":"failed"}"#);
    assert!(std::ptr::eq(record.facts(), record.facts()));
    assert_eq!(record.facts().get(Field::Status), Some("failed"));
}

#[test]
fn fields_have_their_configuration_names() {
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

fn rule(field: Field, values: &[&str]) -> Rule {
    Rule::from([(field, values.iter().map(|value| (*value).to_owned()).collect())])
}

#[test]
fn one_value_of_each_field_must_match() {
    let record = proved(r#""watcher_id":"W""#, r#"{"name":"Transfer","chain_event":{"address":"0xAb"}}"#);
    let takes = |rule: Rule| Filter::any_of(vec![rule]).takes(record.facts());
    assert!(takes(Rule::default()));
    assert!(takes(rule(Field::EventName, &["Mint", "Transfer"])));
    assert!(!takes(rule(Field::EventName, &["transfer"])), "the case of names matters");
    assert!(takes(rule(Field::Address, &["0xAB"])), "the case of addresses does not matter");
    let mut both = rule(Field::EventName, &["Transfer"]);
    both.append(&mut rule(Field::WatcherId, &["V"]));
    assert!(!takes(both));
    assert!(!takes(rule(Field::Status, &["failed"])), "a missing field matches no value");
}

#[test]
fn failures_selects_every_kind_of_failure_only() {
    for (kind, status, failure) in [
        ("watcher.status", "failed", true),
        ("watcher.status", "archive_failed", true),
        ("watcher.status", "expired", false),
        ("wallet.status", "failed", true),
        ("wallet.status", "deployed", false),
        ("operation.status", "failed", true),
        ("operation.status", "expired", true),
        ("operation.status", "reverted", true),
        ("operation.status", "accepted", false),
        ("query.status", "failed", true),
        ("query.status", "expired", true),
        ("comet.status", "failed", false),
    ] {
        let record = notice(kind, &format!(r#"{{"status":"{status}"}}"#));
        assert_eq!(Filter::failures().takes(record.facts()), failure, "{kind} {status}");
    }
}
