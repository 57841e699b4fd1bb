//! The entries of a ledger in the store. Each has a table, a key in the table, and a value.
//!
//! Values are JSON, so a plain dump of the store is readable. Bodies are the original bytes of the events, and proofs
//! are packed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::proofs::Place;
use super::{SinkName, StateError};
use proof::event::{ChannelId, EventId, EventKey, Offset};

/// The cursor of a lane: every event up to here was delivered, set aside until its late proof arrives, quarantined, or
/// stored as a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor {
    /// `None` is the position before the first event.
    pub through: Option<Offset>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.through {
            Some(offset) => offset.fmt(f),
            None => f.write_str("the start"),
        }
    }
}

/// A pending event: its proof has not arrived, or it must be delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// The id by which the event is read again. Only an event that left the quarantine may have none.
    pub event_id: Option<EventId>,
    /// When the wait started, in Unix seconds. Shown to operators. See also `asked_at`.
    pub first_seen: i64,
    /// When the wait started, on the channel's [`asked`](super::Ledger::asked) clock. States of version 0.1 do not have
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
    /// When the event was first read, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The sinks for which the event is pending: their lanes have passed its offset.
    pub owed: BTreeSet<SinkName>,
    /// Whether the event became visible below offsets that were read earlier. Otherwise its proof was late, or an
    /// operator asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub appeared: bool,
    /// The size of the body.
    #[serde(skip)]
    pub bytes: u64,
}

/// The position that a sink has confirmed for a lane. Nothing is recorded while the cursor comes from `start` or an
/// operator and the sink has not confirmed it yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The sink's own position. The cursor can be higher, because events that are not sent to the sink move only the
    /// cursor.
    pub position: Option<Offset>,
    /// The event that was written last. `None` if no event was written since the cursor was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EventKey>,
}

/// The facts about a quarantined event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The offset of the event.
    pub offset: Offset,
    /// The id of the event, if it has one that can be read.
    pub event_id: Option<EventId>,
    /// The constant name of the reason.
    pub reason: String,
    /// A description of the reason.
    pub detail: String,
    /// When the event was rejected, in Unix seconds.
    pub at: i64,
    /// When the event was first read, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The location where the event's proof or its other content was delivered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Place>,
    /// The event's proof, if another channel has shown it before, or if the event refers to something that does not
    /// belong to this channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The size of the body.
    #[serde(skip)]
    pub bytes: u64,
}

/// Quarantined events whose proofs were also shown by another channel, with the details of the first event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// The number of these events.
    pub events: u64,
    /// The offset of the first event.
    pub offset: Offset,
    /// The other location where its proof was shown.
    pub original: Place,
    /// The reason for its quarantine.
    pub reason: String,
    /// The proof of the first event.
    pub digest: String,
}

/// A workflow's id.
pub type WorkflowId = [u8; 32];

/// The number of workflows that are remembered for a channel.
pub const WORKFLOWS: usize = 1_000;

/// A workflow that appeared in a verified event of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownWorkflow {
    /// The channel that showed it before. `None` if this channel was the first.
    pub first_in: Option<ChannelId>,
    /// When this channel first showed it, in Unix seconds.
    pub since: i64,
}

/// A pause of a channel or a sink by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When it started.
    pub since: Timestamp,
    /// When it ends automatically. `None` if only an operator can end it.
    pub until: Option<Timestamp>,
}

/// The pauses of one channel and its sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The pause of the whole channel.
    pub channel: Option<Pause>,
    /// The pauses of single sinks.
    pub sinks: BTreeMap<SinkName, Pause>,
}

/// In strict ordering, an event that blocks all later events of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// The offset of the event.
    pub offset: Offset,
    /// When it was first seen, in Unix seconds. Shown to operators.
    pub first_seen: i64,
    /// When it was first seen, on the channel's [`asked`](super::Ledger::asked) clock. States of version 0.1 do not
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
}

/// The facts about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The offset of the event.
    pub offset: Offset,
    /// The id of the event, if it has one.
    pub event_id: Option<EventId>,
    /// The sink's last answer.
    pub reason: String,
    /// How often the event was offered to the sink.
    pub attempts: u32,
    /// When it was first refused, Unix seconds.
    pub since: i64,
    /// When the sink gave up the event, in Unix seconds.
    pub at: i64,
    /// When the event was first read, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The size of the body.
    #[serde(skip)]
    pub bytes: u64,
}

/// The key of an entry of one channel. Keys are ordered so that the facts about an event come before its body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumDiscriminants)]
#[strum_discriminants(name(Table), doc = "A kind of keys, by the name that a store gives its table.")]
#[strum_discriminants(
    derive(strum::EnumIter, strum::EnumString, strum::IntoStaticStr),
    strum(serialize_all = "kebab-case")
)]
pub enum Key {
    /// [`Cursor`].
    #[strum_discriminants(strum(serialize = "cursors"))]
    Cursor(SinkName),
    /// [`Late`].
    Late(EventKey),
    /// [`Quarantined`].
    #[strum_discriminants(strum(serialize = "quarantine"))]
    Quarantined(EventKey),
    /// The bytes of a pending or quarantined event.
    #[strum_discriminants(strum(serialize = "json"))]
    Body(EventKey),
    /// [`GivenUp`].
    #[strum_discriminants(strum(serialize = "dead-letters"))]
    DeadLetter(EventKey, SinkName),
    /// The bytes of a dead letter.
    #[strum_discriminants(strum(serialize = "dead-bodies"))]
    DeadBody(EventKey, SinkName),
    /// [`Blocker`].
    #[strum_discriminants(strum(serialize = "blockers"))]
    Blocker,
    /// [`Paused`].
    #[strum_discriminants(strum(serialize = "pauses"))]
    Paused,
    /// Proofs that were delivered in one commit, under an increasing number.
    Proofs(u64),
    /// [`ShownWorkflow`].
    #[strum_discriminants(strum(serialize = "workflows"))]
    Workflow(WorkflowId),
    /// The number of commits.
    #[strum_discriminants(strum(serialize = "versions"))]
    Version,
    /// [`Summary`](super::Summary): the expected contents of the store.
    #[strum_discriminants(strum(serialize = "summaries"))]
    Summary,
    /// [`Confirmed`].
    #[strum_discriminants(strum(serialize = "confirmed"))]
    Confirmed(SinkName),
    /// [`History`](super::History), packed.
    #[strum_discriminants(strum(serialize = "history"))]
    History,
    /// [`Contradiction`](super::Contradiction).
    #[strum_discriminants(strum(serialize = "contradictions"))]
    Contradiction,
    /// [`Ledger::asked`](super::Ledger::asked).
    #[strum_discriminants(strum(serialize = "asked"))]
    Asked,
}

/// The value of an entry, as it is returned when a channel is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The complete value.
    Bytes(Bytes),
    /// Only the size, for a body.
    Size(u64),
}

/// The entries of a channel.
pub type Entries = BTreeMap<Key, Value>;

impl Value {
    /// Converts a stored value to the form that is returned when a channel is claimed.
    pub fn of(key: &Key, stored: &[u8]) -> Self {
        match key {
            Key::Body(_) | Key::DeadBody(..) => Self::Size(stored.len() as u64),
            _ => Self::Bytes(Bytes::copy_from_slice(stored)),
        }
    }
}

impl Key {
    /// The bytes of the key within the table and the channel. Numbers are big endian, so keys sort like offsets.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Cursor(sink) | Self::Confirmed(sink) => sink.as_bytes().to_vec(),
            Self::Late(key) | Self::Quarantined(key) | Self::Body(key) => {
                let id = key.id.as_ref().map_or(&[][..], |id| id.0.as_bytes());
                [&key.offset.get().to_be_bytes()[..], id].concat()
            }
            Self::DeadLetter(key, sink) | Self::DeadBody(key, sink) => {
                // NUL separates the sink from the id, because a sink's name never contains NUL.
                let id = key.id.as_ref().map_or_else(Vec::new, |id| [&[0][..], id.0.as_bytes()].concat());
                [&key.offset.get().to_be_bytes()[..], sink.as_bytes(), &id].concat()
            }
            Self::Blocker
            | Self::Paused
            | Self::Version
            | Self::Summary
            | Self::History
            | Self::Contradiction
            | Self::Asked => Vec::new(),
            Self::Proofs(number) => number.to_be_bytes().to_vec(),
            Self::Workflow(id) => id.to_vec(),
        }
    }

    /// Parses the bytes of a key.
    ///
    /// # Errors
    /// If the bytes are not a key of that table.
    pub fn parse(table: Table, bytes: &[u8]) -> Result<Self, StateError> {
        let key = match table {
            Table::Cursor => sink(bytes).map(Self::Cursor),
            Table::Late => event_key(bytes).map(Self::Late),
            Table::Quarantined => event_key(bytes).map(Self::Quarantined),
            Table::Body => event_key(bytes).map(Self::Body),
            Table::DeadLetter => event_and_sink(bytes).map(|(key, sink)| Self::DeadLetter(key, sink)),
            Table::DeadBody => event_and_sink(bytes).map(|(key, sink)| Self::DeadBody(key, sink)),
            Table::Confirmed => sink(bytes).map(Self::Confirmed),
            Table::History => bytes.is_empty().then_some(Self::History),
            Table::Contradiction => bytes.is_empty().then_some(Self::Contradiction),
            Table::Asked => bytes.is_empty().then_some(Self::Asked),
            Table::Blocker => bytes.is_empty().then_some(Self::Blocker),
            Table::Paused => bytes.is_empty().then_some(Self::Paused),
            Table::Proofs => bytes.try_into().ok().map(u64::from_be_bytes).map(Self::Proofs),
            Table::Workflow => bytes.try_into().ok().map(Self::Workflow),
            Table::Version => bytes.is_empty().then_some(Self::Version),
            Table::Summary => bytes.is_empty().then_some(Self::Summary),
        };
        key.ok_or_else(|| StateError::Damaged("a key cannot be read".to_owned()))
    }
}

fn sink(bytes: &[u8]) -> Option<SinkName> {
    std::str::from_utf8(bytes).ok().map(SinkName::from)
}

fn offset(bytes: &[u8]) -> Option<Offset> {
    bytes.try_into().ok().map(i64::from_be_bytes).and_then(Offset::new)
}

fn event_id(bytes: &[u8]) -> Option<EventId> {
    Some(EventId(Uuid::from_bytes(bytes.try_into().ok()?)))
}

/// Version 0.1 wrote no ids. A key without an id is replaced when the channel is claimed.
fn event_key(bytes: &[u8]) -> Option<EventKey> {
    let (number, id) = bytes.split_first_chunk::<8>()?;
    let id = if id.is_empty() { None } else { Some(event_id(id)?) };
    Some(EventKey { offset: offset(number)?, id })
}

fn event_and_sink(bytes: &[u8]) -> Option<(EventKey, SinkName)> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (name, id) = (parts.next()?, parts.next());
    let id = if let Some(id) = id { Some(event_id(id)?) } else { None };
    Some((EventKey { offset: offset(number)?, id }, sink(name)?))
}

impl Quarantined {
    /// The key of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

impl GivenUp {
    /// The key of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

impl Paused {
    /// Whether neither the channel nor a sink is paused.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pauses a sink or, if `sink` is `None`, the channel. If `pause` is `None`, resumes it. A second pause keeps the
    /// start time of the first.
    pub fn set(&mut self, sink: Option<SinkName>, pause: Option<Pause>) {
        let since =
            |before: &Option<Pause>, pause: Pause| Pause { since: before.map_or(pause.since, |it| it.since), ..pause };
        let Some(sink) = sink else {
            self.channel = pause.map(|pause| since(&self.channel, pause));
            return;
        };
        let before = self.sinks.remove(&sink);
        self.sinks.extend(pause.map(|pause| (sink, since(&before, pause))));
    }

    /// All pauses. The pause of the channel has the sink `None`.
    pub fn each(&self) -> impl Iterator<Item = (Option<&SinkName>, Pause)> {
        let channel = self.channel.iter().map(|pause| (None, *pause));
        channel.chain(self.sinks.iter().map(|(sink, pause)| (Some(sink), *pause)))
    }
}

pub(super) fn encode<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("entries have text keys and no value that can fail").into()
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StateError> {
    serde_json::from_slice(bytes).map_err(|_| StateError::Damaged("a stored value cannot be read".to_owned()))
}
