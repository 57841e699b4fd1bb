//! Ids, offsets and events, as the service returns them. Nothing in this module has been verified.
//!
//! # Invariants
//!
//! * **Bytes survive.** A [`RawEvent`] keeps the service's JSON as it arrived, including unknown fields.
//! * **One reading.** A record is [`Malformed`] if two JSON readers could read it differently, because a known name
//!   occurs twice, or with different capitalization. If a name is repeated, the reference verifier uses the last
//!   occurrence, and other readers use the first. A proof must not be valid for only one of these readings.
//! * **No I/O, no clock.**

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

mod json;
mod kind;
mod payload;
mod proofs;
mod unknown;

pub use json::{Malformed, Object, has_half_surrogate, is_nested_too_deeply};
pub use kind::EventType;
pub use payload::Payload;
pub use proofs::{OcrProof, Proofs};
pub use unknown::{MAX_UNKNOWN_LENGTH, UnknownPart, UnknownValue};

use payload::KnownPayload;
use unknown::UnknownValues;

/// A UUID of the service, as a separate type.
macro_rules! id {
    ($(#[doc = $doc:literal] $name:ident;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    )*};
}

id! {
    /// A channel's id at the service.
    ChannelId;
    /// An event's id: the same each time the service returns the event. Consumers deduplicate on it.
    EventId;
}

/// The position of an event in its channel. A larger offset is newer. The service assigns it, and it is never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Offset(i64);

impl Offset {
    /// The smallest possible offset.
    pub const ZERO: Self = Self(0);

    /// Returns `None` for a negative number, which the service does not use.
    pub fn new(value: i64) -> Option<Self> {
        (value >= 0).then_some(Self(value))
    }

    /// The number as the service writes it.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The offset before this one; `None` at zero.
    pub fn before(self) -> Option<Self> {
        Self::new(self.0 - 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Offset {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().and_then(Self::new).ok_or("an offset must be a whole number, 0 or larger")
    }
}

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(deserializer)?;
        Self::new(value).ok_or_else(|| serde::de::Error::custom("an offset must not be negative"))
    }
}

/// Identifies an event of a channel. Keys sort by offset.
///
/// An offset alone does not identify an event, because a service that was restored from a backup reuses offsets. Two events
/// at one offset are the same event only if their ids are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventKey {
    /// `headers.offset`.
    pub offset: Offset,
    /// `event_id`; `None` if the service gave the event no readable id.
    pub id: Option<EventId>,
}

impl EventKey {
    /// The first possible key at an offset, for range queries.
    pub fn first_at(offset: Offset) -> Self {
        Self { offset, id: None }
    }

    /// The last possible key at an offset, for range queries.
    pub fn last_at(offset: Offset) -> Self {
        Self { offset, id: Some(EventId(Uuid::max())) }
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "offset {} ({id})", self.offset),
            None => write!(f, "offset {}", self.offset),
        }
    }
}

/// A record as the service returned it. Only its offset and id have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// `headers.offset`.
    pub offset: Offset,
    /// `event_id`, if the record has a readable one.
    pub id: Option<EventId>,
    /// The record's JSON, byte for byte. Only its offset is known to be readable. The rest can be malformed. In a record from
    /// a page, the rest can contain bytes that are not UTF-8. [`locate`](Self::locate) does not accept such bytes.
    pub json: Bytes,
}

impl RawEvent {
    /// Reads the offset and the id of a record. Returns `None` if the record is not UTF-8 or its offset cannot be read.
    ///
    /// Nothing else is checked, because a record that is malformed elsewhere must still be quarantined under its
    /// offset.
    pub fn locate(json: Bytes) -> Option<Self> {
        let (offset, id) = Self::place(std::str::from_utf8(&json).ok()?)?;
        Some(Self { offset, id, json })
    }

    /// The offset and id of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.id }
    }

    /// Reads the offset and the id from a record's text.
    pub fn place(json: &str) -> Option<(Offset, Option<EventId>)> {
        let [headers, id] = json::last(json, ["headers", "event_id"])?;
        let [offset] = json::last(headers?.get(), ["offset"])?;
        let offset = serde_json::from_str(offset?.get()).ok()?;
        Some((offset, id.and_then(|id| serde_json::from_str(id.get()).ok())))
    }
}

/// A well-formed event. Nothing in it has been verified.
#[derive(Clone, Debug)]
pub struct Event {
    /// The record as it arrived.
    pub raw: RawEvent,
    /// The event's type.
    pub kind: EventType,
    /// The proofs that arrived with the event.
    pub proofs: Proofs,
    /// The fields of the payload that channeld uses.
    pub payload: Payload,
    /// The values of the event that this version does not know.
    pub unknown: Vec<UnknownValue>,
}

impl Event {
    /// Reads a record completely.
    ///
    /// # Errors
    /// [`Malformed`] if a field that this version knows is missing, ambiguous or of the wrong shape. This is stricter
    /// than the reference: it also rejects JSON that two readers could interpret differently, or that only one of two
    /// readers could parse. Unknown fields and types are accepted.
    pub fn parse(json: Bytes) -> Result<Self, Malformed> {
        json::check(&json)?;
        let record = Object::read(&json)?;
        let id = record.get::<EventId>("event_id")?;
        let headers = record.require::<Object<'_>>("headers")?;
        let kind = EventType::from(&*headers.text("type")?.ok_or(Malformed::Missing("type"))?);
        let offset = headers.require::<Offset>("offset")?;
        let mut unknown = UnknownValues::default();
        // The reference pages of the service also show the last three members of a record there.
        unknown.add_members(UnknownPart::EnvelopeMember, &record, |name| {
            matches!(name, "event_id" | "headers" | "payload" | "channel_id" | "created_at" | "type")
        });
        unknown.add_members(UnknownPart::EnvelopeMember, &headers, |name| matches!(name, "type" | "offset" | "proofs"));
        let proofs = Proofs::read(&headers, &mut unknown)?;
        let payload = Payload::read(&kind, &record, &mut unknown)?;
        if let EventType::Other(name) = &kind {
            unknown.add(UnknownPart::Type, name);
        } else if let (Some(status), Some(known)) = (&payload.status, KnownPayload::of(&kind))
            && !known.knows_status(status)
        {
            unknown.add(UnknownPart::Status, status);
        }
        drop((record, headers));
        Ok(Self { raw: RawEvent { offset, id, json }, kind, proofs, payload, unknown: unknown.0 })
    }

    /// Whether this event must have a proof. A missing proof of such an event has not arrived yet (spec/wire.md, "Which events
    /// carry a proof").
    ///
    /// Statuses do not decide this: the service can sign new steps, and it signs some failures. The event of a watcher always
    /// has signed text. An operation or a query has signed text if the network reports it. Otherwise it is a notice of the
    /// service, and a proof may never arrive.
    pub fn proof_is_due(&self) -> bool {
        match self.kind {
            EventType::WatcherEvent => true,
            EventType::OperationStatus | EventType::QueryStatus => self.payload.signed.is_some(),
            EventType::WatcherStatus | EventType::WalletStatus | EventType::Other(_) => false,
        }
    }

    /// Whether this type of event can have a proof at all.
    pub fn can_be_proved(&self) -> bool {
        matches!(self.kind, EventType::WatcherEvent | EventType::OperationStatus | EventType::QueryStatus)
    }
}

#[cfg(test)]
mod tests;
