//! Which events a sink is given.

use std::collections::BTreeMap;

use super::{Facts, Field};

/// Takes what one at least of its rules takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Rule>);

/// Takes what has, of each field that it names, one of the values that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule(BTreeMap<Field, Vec<String>>);

impl Filter {
    /// Everything that one of these takes.
    #[must_use]
    pub fn any(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// What went wrong on the chain or at the service: watchers that failed or could not be archived, wallets that failed,
    /// operations and queries that failed or expired.
    #[must_use]
    pub fn failures() -> Self {
        let failed = |kind: &str, statuses: &[&str]| {
            let statuses = statuses.iter().map(|status| (*status).to_owned()).collect();
            Rule::default().with(Field::Type, vec![kind.to_owned()]).with(Field::Status, statuses)
        };
        Self(vec![
            failed("watcher.status", &["failed", "archive_failed"]),
            failed("wallet.status", &["failed"]),
            failed("operation.status", &["failed", "expired"]),
            failed("query.status", &["failed", "expired"]),
        ])
    }

    /// Whether an event with these facts is taken.
    #[must_use]
    pub fn takes(&self, facts: &Facts) -> bool {
        self.0.iter().any(|rule| rule.takes(facts))
    }
}

impl Rule {
    /// And has, of that field, one of these values.
    #[must_use]
    pub fn with(mut self, field: Field, values: Vec<String>) -> Self {
        self.0.insert(field, values);
        self
    }

    fn takes(&self, facts: &Facts) -> bool {
        self.0.iter().all(|(field, values)| {
            let same = |value: &String, fact: &str| {
                if field.ignores_case() { value.eq_ignore_ascii_case(fact) } else { value == fact }
            };
            facts.get(*field).is_some_and(|fact| values.iter().any(|value| same(value, fact)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{notice, proved};

    fn rule(field: Field, values: &[&str]) -> Rule {
        Rule::default().with(field, values.iter().map(|value| (*value).to_owned()).collect())
    }

    #[test]
    fn of_each_field_one_value_has_to_fit() {
        let record = proved(r#""watcher_id":"W""#, r#"{"name":"Transfer","chain_event":{"address":"0xAb"}}"#);
        let takes = |rule: Rule| Filter::any(vec![rule]).takes(&record.facts());
        assert!(takes(Rule::default()));
        assert!(takes(rule(Field::EventName, &["Mint", "Transfer"])));
        assert!(!takes(rule(Field::EventName, &["transfer"])), "names are told apart by case");
        assert!(takes(rule(Field::Address, &["0xAB"])), "addresses are not");
        assert!(!takes(rule(Field::EventName, &["Transfer"]).with(Field::WatcherId, vec!["V".to_owned()])));
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
            assert_eq!(Filter::failures().takes(&record.facts()), failure, "{kind} {status}");
        }
    }
}
