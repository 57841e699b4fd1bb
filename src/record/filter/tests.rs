use super::*;
use crate::testing::{notice, proved};

fn rule(field: Field, values: &[&str]) -> Rule {
    Rule::from([(field, values.iter().map(|value| (*value).to_owned()).collect())])
}

#[test]
fn of_each_field_one_value_has_to_fit() {
    let record = proved(r#""watcher_id":"W""#, r#"{"name":"Transfer","chain_event":{"address":"0xAb"}}"#);
    let takes = |rule: Rule| Filter(vec![rule]).takes(record.facts());
    assert!(takes(Rule::default()));
    assert!(takes(rule(Field::EventName, &["Mint", "Transfer"])));
    assert!(!takes(rule(Field::EventName, &["transfer"])), "names are told apart by case");
    assert!(takes(rule(Field::Address, &["0xAB"])), "addresses are not");
    let mut both = rule(Field::EventName, &["Transfer"]);
    both.append(&mut rule(Field::WatcherId, &["V"]));
    assert!(!takes(both));
    assert!(!takes(rule(Field::Status, &["failed"])), "what it has not fits nothing");
}

#[test]
fn failures_are_failures_of_each_kind_and_nothing_else() {
    for (kind, status, failure) in [
        ("watcher.status", "failed", true),
        ("watcher.status", "archive_failed", true),
        ("watcher.status", "expired", false),
        ("wallet.status", "failed", true),
        ("wallet.status", "deployed", false),
        ("operation.status", "failed", true),
        ("operation.status", "expired", true),
        ("operation.status", "accepted", false),
        ("query.status", "failed", true),
        ("query.status", "expired", true),
        ("comet.status", "failed", false),
    ] {
        let record = notice(kind, &format!(r#"{{"status":"{status}"}}"#));
        assert_eq!(Filter::failures().takes(record.facts()), failure, "{kind} {status}");
    }
}
