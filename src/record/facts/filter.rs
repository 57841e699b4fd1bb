//! Filters: which events a sink receives.

use std::collections::BTreeMap;

use super::{Facts, Field};

/// Accepts an event if at least one of its rules accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(pub Vec<Rule>);

/// Accepts an event if each named field has one of the listed values.
pub type Rule = BTreeMap<Field, Vec<String>>;

impl Filter {
    /// Accepts failures on the chain or at the service: of watchers, wallets, operations and queries.
    pub fn failures() -> Self {
        let failed = |kind: &str, statuses: &[&str]| {
            let statuses = statuses.iter().map(|status| (*status).to_owned()).collect();
            Rule::from([(Field::Type, vec![kind.to_owned()]), (Field::Status, statuses)])
        };
        Self(vec![
            failed("watcher.status", &["failed", "archive_failed"]),
            failed("wallet.status", &["failed"]),
            failed("operation.status", &["failed", "expired"]),
            failed("query.status", &["failed", "expired"]),
        ])
    }

    /// Whether every rule lists values for this field.
    pub fn names(&self, field: Field) -> bool {
        self.0.iter().all(|rule| rule.contains_key(&field))
    }

    /// Whether the filter accepts an event with these facts.
    pub fn takes(&self, facts: &Facts) -> bool {
        self.0.iter().any(|rule| rule.iter().all(|(field, values)| has_one_of(facts, *field, values)))
    }
}

fn has_one_of(facts: &Facts, field: Field, values: &[String]) -> bool {
    facts.get(field).is_some_and(|fact| {
        let is_fact =
            |value: &String| if field.ignores_case() { value.eq_ignore_ascii_case(fact) } else { value == fact };
        values.iter().any(is_fact)
    })
}

#[cfg(test)]
mod tests {
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
}
