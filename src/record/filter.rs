//! Filters: which events a sink receives.

use std::collections::BTreeMap;

use super::{Facts, Field};

/// Takes an event that one of its rules takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Rule>);

/// Takes an event that has one of the named values in each named field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule(BTreeMap<Field, Vec<String>>);

impl Filter {
    /// A filter of these rules.
    #[must_use]
    pub fn any(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// Failures on the chain or at the service: of watchers, wallets, operations and queries.
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
    /// Also requires one of these values in that field.
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
mod tests;
