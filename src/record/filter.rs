//! Filters: which events a sink receives.

use std::collections::BTreeMap;

use super::{Facts, Field};

/// Takes an event that one of its rules takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(pub Vec<Rule>);

/// Takes an event that has one of the named values in each named field.
pub type Rule = BTreeMap<Field, Vec<String>>;

impl Filter {
    /// Failures on the chain or at the service: of watchers, wallets, operations and queries.
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

    /// Whether every rule names values of that field.
    pub fn names(&self, field: Field) -> bool {
        self.0.iter().all(|rule| rule.contains_key(&field))
    }

    /// Whether an event with these facts is taken.
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
mod tests;
