//! The facts of an event: for filters, and for keeping the order of each subject.
//!
//! A verified event's signed text takes precedence over the unsigned payload.

use std::collections::BTreeMap;

use strum::{IntoStaticStr, VariantArray};

use crate::line::{UNSIGNED, VERIFIED};
use proof::event::{EventType, Object};

mod filter;

pub use filter::{Filter, Rule};

/// The service name in the signed content of the service's own events.
const OWN_SERVICE: &str = "_crec";

/// One kind of fact. Its name in the configuration is the name of the variant in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Field {
    /// `headers.type`.
    Type,
    /// `payload.status`.
    Status,
    /// The watched event's name.
    EventName,
    /// The watcher's service.
    Service,
    /// The chain, identified by its selector.
    ChainSelector,
    /// The contract or wallet.
    Address,
    /// The watcher.
    WatcherId,
    /// The wallet.
    WalletId,
    /// The operation, identified by the service's id.
    OperationId,
    /// The operation, identified by its id in its wallet.
    WalletOperationId,
    /// The chain query.
    QueryId,
    /// `verified` or `unsigned`.
    Verification,
}

impl Field {
    /// Whether its values are compared without regard to case.
    pub fn ignores_case(self) -> bool {
        matches!(self, Self::Address | Self::WatcherId | Self::WalletId | Self::OperationId | Self::QueryId)
    }
}

/// The facts of one event: the fields that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    fields: BTreeMap<Field, Box<str>>,
    /// `payload.status_reason`. It is not signed, and filters cannot use it.
    status_reason: Option<Box<str>>,
}

impl Facts {
    /// Reads the facts of an event. `decoded` is its signed JSON. A field that cannot be read is absent, because only the
    /// choice of sinks depends on it.
    pub(super) fn of(kind: &EventType, event: &[u8], decoded: Option<&[u8]>, is_verified: bool) -> Self {
        let mut facts = Self::default();
        if let Ok(event) = Object::read(event)
            && let Ok(Some(payload)) = event.get::<Object<'_>>("payload")
        {
            for &field in Field::VARIANTS {
                let is_elsewhere = matches!(field, Field::Type | Field::EventName | Field::Verification);
                facts.put(field, text(&payload, field.into()).filter(|_| !is_elsewhere));
            }
            facts.status_reason = text(&payload, "status_reason").filter(|reason| !reason.is_empty());
        }
        facts.put(Field::Type, Some(kind.as_ref().into()));
        if let Some(Ok(signed)) = decoded.map(Object::read) {
            facts.read_signed(&signed);
        }
        facts.put(Field::Verification, Some(if is_verified { VERIFIED } else { UNSIGNED }.into()));
        facts
    }

    fn read_signed(&mut self, decoded: &Object<'_>) {
        self.put(Field::EventName, text(decoded, "name"));
        self.put(Field::Service, text(decoded, "service"));
        self.put(Field::ChainSelector, text(decoded, "chain_selector"));
        if let Ok(Some(chain_event)) = decoded.get::<Object<'_>>("chain_event") {
            self.put(Field::Address, text(&chain_event, "address"));
        }
        if text(decoded, "service").as_deref() == Some(OWN_SERVICE) {
            self.read_own(decoded);
        }
    }

    /// Reads the type from the signed content of the service's own events. A status that contradicts this content is
    /// removed.
    fn read_own(&mut self, decoded: &Object<'_>) {
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
    }

    /// Sets a field and overwrites an earlier value. Does nothing if `value` is `None`.
    fn put(&mut self, field: Field, value: Option<Box<str>>) {
        self.fields.extend(value.map(|value| (field, value)));
    }

    /// The value of a field, if the event has it.
    pub fn get(&self, field: Field) -> Option<&str> {
        self.fields.get(&field).map(|value| &**value)
    }

    /// The service's reason for the status.
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

#[cfg(test)]
mod tests;
