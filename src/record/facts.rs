//! The facts of an event, and filters over these facts. Facts also determine the subject of an event. A sink delivers
//! the events of one subject in order.
//!
//! A verified event's signed text takes precedence over the unsigned payload.

use std::collections::BTreeMap;

use strum::{IntoStaticStr, VariantArray};

use crate::finality::{Finality, LogOrigin};
use crate::{Confidence, Record, UNSIGNED, VERIFIED};
use proof::event::{EventType, Object};

/// The service name in the signed content of the service's own events.
const OWN_SERVICE: &str = "_crec";

/// One kind of fact. Its name in the configuration is the name of the variant in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "the service defines these names")]
pub enum Field {
    /// `headers.type`.
    Type,
    /// `payload.status`.
    Status,
    EventName,
    Service,
    /// The chain, identified by its selector.
    ChainSelector,
    Address,
    WatcherId,
    WalletId,
    /// The operation, identified by the service's id.
    OperationId,
    /// The operation, identified by its id in its wallet.
    WalletOperationId,
    QueryId,
    /// `verified` or `unsigned`.
    Verification,
}

/// The facts of one event: the fields that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    fields: BTreeMap<Field, Box<str>>,
    /// `payload.status_reason`. It is not signed, and filters cannot use it.
    status_reason: Option<Box<str>>,
    finality: Finality,
}

impl Facts {
    /// Reads the facts of an event. A field that cannot be read is absent. This cannot change a verdict: facts decide
    /// only which sinks receive an event, and its subject.
    pub(super) fn of(record: &Record) -> Self {
        let mut facts = Self::default();
        if let Ok(event) = Object::read(&record.event())
            && let Ok(Some(payload)) = event.get::<Object<'_>>("payload")
        {
            for &field in Field::VARIANTS {
                let is_elsewhere = matches!(field, Field::Type | Field::EventName | Field::Verification);
                facts.put(field, text(&payload, field.into()).filter(|_| !is_elsewhere));
            }
            facts.status_reason = text(&payload, "status_reason").filter(|reason| !reason.is_empty());
        }
        facts.put(Field::Type, Some(record.kind.as_ref().into()));
        let mut log = LogOrigin::Other;
        if let Some(Ok(signed)) = record.decoded().map(Object::read) {
            log = facts.read_signed(&signed);
        }
        facts.finality = Finality::of(record, &facts, log);
        facts.put(Field::Verification, Some(if record.is_verified() { VERIFIED } else { UNSIGNED }.into()));
        facts
    }

    fn read_signed(&mut self, decoded: &Object<'_>) -> LogOrigin {
        self.put(Field::EventName, text(decoded, "name"));
        self.put(Field::Service, text(decoded, "service"));
        self.put(Field::ChainSelector, text(decoded, "chain_selector"));
        let chain_event = decoded.get::<Object<'_>>("chain_event");
        if let Ok(Some(chain_event)) = &chain_event {
            self.put(Field::Address, text(chain_event, "address"));
        }
        if text(decoded, "service").as_deref() != Some(OWN_SERVICE) {
            return if matches!(chain_event, Ok(None)) { LogOrigin::Other } else { LogOrigin::Watched };
        }
        // The signed content of the service's own events names their type. A status that contradicts the type is removed.
        match self.get(Field::EventName) {
            Some("OperationConfirmed") => {
                self.put(Field::Type, Some("operation.status".into()));
                self.fields.retain(|field, value| *field != Field::Status || value.starts_with("confirmed"));
            }
            Some("ChainQuery") => {
                self.put(Field::Type, Some("query.status".into()));
                if let Ok(Some(data)) = decoded.get::<Object<'_>>("data") {
                    self.put(Field::QueryId, text(&data, "query_id"));
                }
            }
            _ => {}
        }
        LogOrigin::Other
    }

    /// Sets a field and overwrites an earlier value. Does nothing if `value` is `None`.
    fn put(&mut self, field: Field, value: Option<Box<str>>) {
        self.fields.extend(value.map(|value| (field, value)));
    }

    /// The value of a field, if the event has it.
    pub fn get(&self, field: Field) -> Option<&str> {
        self.fields.get(&field).map(|value| &**value)
    }

    /// The reason that the service gives for the status.
    pub fn status_reason(&self) -> Option<&str> {
        self.status_reason.as_deref()
    }

    /// The subject of the event, such as `watcher/ID`. A sink delivers the events of one subject in order.
    pub fn subject(&self) -> Option<String> {
        let kind = EventType::from(self.get(Field::Type)?);
        let (subject, field) = match kind {
            EventType::WatcherEvent | EventType::WatcherStatus => ("watcher", Field::WatcherId),
            EventType::WalletStatus => ("wallet", Field::WalletId),
            EventType::OperationStatus => ("operation", Field::OperationId),
            EventType::QueryStatus => ("query", Field::QueryId),
            EventType::Other(_) => return None,
        };
        Some(format!("{subject}/{}", self.get(field)?))
    }
}

/// Returns a string member. Also accepts a number, because a chain selector may be written as one.
pub(super) fn text(object: &Object<'_>, name: &'static str) -> Option<Box<str>> {
    let value = object.raw(name).ok().flatten()?.get();
    serde_json::from_str(value).ok().or_else(|| value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.into()))
}

/// Accepts an event if at least one of its rules accepts it, and if the event has the least confidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    rules: Vec<Rule>,
    /// The least confidence of a watcher event, and the corresponding step of an operation. Other events, and operations that
    /// failed, always have it.
    min_confidence: Option<Confidence>,
}

/// Accepts an event if each named field has one of the listed values.
pub type Rule = BTreeMap<Field, Vec<String>>;

impl Filter {
    /// Accepts an event that at least one of the rules accepts.
    pub fn any_of(rules: Vec<Rule>) -> Self {
        Self { rules, min_confidence: None }
    }

    /// Accepts an event with at least this confidence.
    pub fn at_least(confidence: Confidence) -> Self {
        Self::any_of(vec![Rule::default()]).and_at_least(Some(confidence))
    }

    /// The same filter with another limit of confidence.
    #[must_use]
    pub fn and_at_least(self, min_confidence: Option<Confidence>) -> Self {
        Self { min_confidence, ..self }
    }

    /// Accepts failures on the chain or at the service: of watchers, wallets, operations and queries.
    pub fn failures() -> Self {
        let failed = |kind: &str, statuses: &[&str]| {
            let statuses = statuses.iter().map(|status| (*status).to_owned()).collect();
            Rule::from([(Field::Type, vec![kind.to_owned()]), (Field::Status, statuses)])
        };
        Self::any_of(vec![
            failed("watcher.status", &["failed", "archive_failed"]),
            failed("wallet.status", &["failed"]),
            failed("operation.status", &["failed", "reverted", "expired"]),
            failed("query.status", &["failed", "expired"]),
        ])
    }

    /// Whether every rule lists values for this field.
    pub fn names(&self, field: Field) -> bool {
        self.rules.iter().all(|rule| rule.contains_key(&field))
    }

    /// Whether the filter accepts an event with these facts.
    pub fn takes(&self, facts: &Facts) -> bool {
        self.min_confidence.is_none_or(|least| facts.finality.reaches(least)) && self.has_rule_for(facts)
    }

    /// Whether a missing confidence is the only reason why the filter excludes a watcher event.
    pub fn lacks_confidence(&self, facts: &Facts) -> bool {
        facts.finality == Finality::Unknown && !self.takes(facts) && self.has_rule_for(facts)
    }

    fn has_rule_for(&self, facts: &Facts) -> bool {
        self.rules.iter().any(|rule| rule.iter().all(|(field, values)| has_one_of(facts, *field, values)))
    }
}

fn has_one_of(facts: &Facts, field: Field, values: &[String]) -> bool {
    use Field::{Address, OperationId, QueryId, WalletId, WatcherId};
    let ignores_case = matches!(field, Address | WatcherId | WalletId | OperationId | QueryId);
    facts.get(field).is_some_and(|fact| {
        values.iter().any(|value| if ignores_case { value.eq_ignore_ascii_case(fact) } else { value == fact })
    })
}

#[cfg(test)]
mod tests;
