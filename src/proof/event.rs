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
use serde_json::value::RawValue;
use strum::{AsRefStr, Display, EnumString};
use uuid::Uuid;

mod json;
mod payload;

pub use json::{Malformed, Object, has_half_surrogate, is_nested_too_deeply};
pub use payload::Payload;

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

impl EventType {
    /// The types that this version knows, as the service writes them.
    pub const KNOWN: [&str; 5] =
        ["watcher.event", "watcher.status", "operation.status", "wallet.status", "query.status"];
}

/// The type of an event, from the service's `headers.type`.
///
/// New types appear over time. An unknown type keeps its name and is treated as a notice, which is never signed. The
/// `*Status` types report a new state.
#[expect(missing_docs, reason = "the names of the service describe the variants")]
#[derive(Clone, Debug, PartialEq, Eq, AsRefStr, Display, EnumString, Deserialize)]
#[serde(from = "String")]
pub enum EventType {
    /// An event emitted by a watched contract.
    #[strum(serialize = "watcher.event")]
    WatcherEvent,
    #[strum(serialize = "watcher.status")]
    WatcherStatus,
    #[strum(serialize = "operation.status")]
    OperationStatus,
    #[strum(serialize = "wallet.status")]
    WalletStatus,
    #[strum(serialize = "query.status")]
    QueryStatus,
    /// A type that this version does not know.
    #[strum(default, transparent)]
    Other(Box<str>),
}

impl From<String> for EventType {
    fn from(name: String) -> Self {
        Self::from(&*name)
    }
}

impl Serialize for EventType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_ref())
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
        let proofs = Proofs::read(&headers)?;
        let payload = Payload::read(&kind, &record)?;
        drop((record, headers));
        Ok(Self { raw: RawEvent { offset, id, json }, kind, proofs, payload })
    }

    /// Whether this event must have a proof. A missing proof of such an event has not arrived yet (spec/wire.md, "Which events
    /// carry a proof").
    pub fn proof_is_due(&self) -> bool {
        match (&self.kind, self.payload.status.as_deref()) {
            (EventType::WatcherEvent, _)
            | (EventType::OperationStatus, Some("confirmed_latest" | "confirmed_safe" | "confirmed"))
            | (EventType::QueryStatus, Some("completed")) => true,
            // Whatever the status is, an event that has a text to sign but no proof is still waiting for the proof.
            _ => self.payload.signed.is_some(),
        }
    }

    /// Whether this type of event can have a proof at all.
    pub fn can_be_proved(&self) -> bool {
        matches!(self.kind, EventType::WatcherEvent | EventType::OperationStatus | EventType::QueryStatus)
    }
}

/// The contents of `headers.proofs`. An event can be verified only if it has exactly one OCR proof.
#[derive(Clone, Debug)]
pub enum Proofs {
    /// No proof. If the event must have a proof, the proof has not arrived yet.
    None,
    /// Exactly one proof.
    One(OcrProof),
    /// One proof that is incomplete or not an object.
    Unreadable,
    /// More than one proof. The reference counts every object, including other kinds of proof, and refuses such an event.
    Many,
}

/// An oracle network's proof: the report, its context and the signatures, in hex as they arrived.
#[derive(Clone, Debug, Serialize)]
pub struct OcrProof {
    /// `0x` and the report's bytes.
    pub report: Box<str>,
    /// `0x` and the bytes that are hashed with the report.
    pub context: Box<str>,
    /// `0x` and 65 bytes for each signature. `None` represents `null`, which makes the proof malformed only if the verifier
    /// reaches that signature.
    pub signatures: Vec<Option<Box<str>>>,
}

impl Proofs {
    fn read(headers: &Object<'_>) -> Result<Self, Malformed> {
        // Stricter than the reference, which skips array items that are not objects. Here they count.
        let items = headers.get::<Vec<&RawValue>>("proofs")?.unwrap_or_default();
        Ok(match items.as_slice() {
            [] => Self::None,
            [item] => OcrProof::read(item.get()).map_or(Self::Unreadable, Self::One),
            _ => Self::Many,
        })
    }
}

impl OcrProof {
    fn read(json: &str) -> Result<Self, Malformed> {
        let proof = Object::read(json.as_bytes())?;
        let required = |name| Ok::<Box<str>, _>(proof.text(name)?.ok_or(Malformed::Missing(name))?.into());
        proof.text("alg")?;
        Ok(Self {
            report: required("ocr_report")?,
            context: required("ocr_context")?,
            signatures: proof.get("signatures")?.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests;
