//! What an event can be told apart by: for routing, and for keeping the order of each subject.
//!
//! Of a verified event the network's signed word counts before the service's own.

use std::collections::BTreeMap;

use super::Record;
use crate::event::{EventType, Object};

/// One thing that an event can be told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `headers.type`.
    Type,
    /// `payload.status`.
    Status,
    /// The watched event's name.
    EventName,
    /// The watcher's service.
    Service,
    /// The chain, by its selector.
    ChainSelector,
    /// The contract or wallet.
    Address,
    /// The watcher.
    WatcherId,
    /// The wallet.
    WalletId,
    /// The operation, by its id at the service.
    OperationId,
    /// The operation, by its id in its wallet.
    WalletOperationId,
    /// The chain query.
    QueryId,
    /// `verified` or `unsigned`.
    Verification,
}

impl Field {
    /// All of them, by their names in a configuration.
    pub const NAMES: [(&str, Self); 12] = [
        ("type", Self::Type),
        ("status", Self::Status),
        ("event_name", Self::EventName),
        ("service", Self::Service),
        ("chain_selector", Self::ChainSelector),
        ("address", Self::Address),
        ("watcher_id", Self::WatcherId),
        ("wallet_id", Self::WalletId),
        ("operation_id", Self::OperationId),
        ("wallet_operation_id", Self::WalletOperationId),
        ("query_id", Self::QueryId),
        ("verification", Self::Verification),
    ];

    /// Whether its values mean the same in upper and lower case.
    #[must_use]
    pub fn ignores_case(self) -> bool {
        matches!(self, Self::Address | Self::WatcherId | Self::WalletId | Self::OperationId | Self::QueryId)
    }
}

/// The facts of one event, as far as it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<Field, String>);

impl Facts {
    /// Reads them. What cannot be read is not there: nothing depends on it but where an event goes.
    pub(super) fn of(record: &Record) -> Self {
        let mut facts = Self::default();
        facts.put(Field::Type, Some(record.kind.as_str().to_owned()));
        let verification = if record.verified { super::line::VERIFIED } else { super::line::UNSIGNED };
        facts.put(Field::Verification, Some(verification.to_owned()));
        let event = record.event();
        if let Ok(event) = Object::read(&event)
            && let Ok(Some(payload)) = event.get::<Object<'_>>("payload")
        {
            facts.read_payload(&payload);
        }
        if let Some(Ok(signed)) = record.decoded().map(Object::read) {
            facts.read_signed(&signed);
        }
        facts
    }

    fn read_payload(&mut self, payload: &Object<'_>) {
        for (name, field) in [
            ("status", Field::Status),
            ("service", Field::Service),
            ("chain_selector", Field::ChainSelector),
            ("address", Field::Address),
            ("watcher_id", Field::WatcherId),
            ("wallet_id", Field::WalletId),
            ("operation_id", Field::OperationId),
            ("wallet_operation_id", Field::WalletOperationId),
            ("query_id", Field::QueryId),
        ] {
            self.put(field, text(payload, name));
        }
    }

    fn read_signed(&mut self, decoded: &Object<'_>) {
        self.put(Field::EventName, text(decoded, "name"));
        self.put(Field::Service, text(decoded, "service"));
        self.put(Field::ChainSelector, text(decoded, "chain_selector"));
        if let Ok(Some(chain_event)) = decoded.get::<Object<'_>>("chain_event") {
            self.put(Field::Address, text(&chain_event, "address"));
        }
    }

    fn put(&mut self, field: Field, value: Option<String>) {
        if let Some(value) = value {
            self.0.insert(field, value);
        }
    }

    /// What it is, of that field.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<&str> {
        self.0.get(&field).map(String::as_str)
    }

    /// What the event is about: events of one subject tell one story, and are delivered in its order.
    #[must_use]
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

/// A text or, as a chain selector may be written, a number.
fn text(object: &Object<'_>, name: &'static str) -> Option<String> {
    let value = object.raw(name).ok().flatten()?.get();
    serde_json::from_str(value)
        .ok()
        .or_else(|| value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{notice, proved};

    #[test]
    fn the_signed_word_counts_before_the_services_own() {
        let facts = proved(
            r#""watcher_id":"W","chain_selector":"1""#,
            r#"{"name":"Transfer","service":"dvp","chain_selector":"2","chain_event":{"address":"0xAb"}}"#,
        )
        .facts();
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
    fn an_event_without_a_payload_has_few_facts_and_no_subject() {
        let facts = notice("comet.sighted", "7").facts();
        assert_eq!((facts.get(Field::Type), facts.get(Field::Status)), (Some("comet.sighted"), None));
        assert_eq!(facts.subject(), None);
    }
}
