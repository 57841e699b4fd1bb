//! A ledger's entries as a store has them: a table, a key in it, a value.
//!
//! Values are JSON, readable with nothing but a dump of the store. Bodies are the events' own bytes, proofs are packed.

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

/// How far a lane has got: everything up to here was delivered, set aside for its late proof, quarantined, or kept as a
/// dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor {
    /// `None` is before the first event.
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

/// An event that waits for its proof, or to be delivered once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// What it is read again by. Only an event that left the quarantine has none.
    pub event_id: Option<EventId>,
    /// When the wait for it began, Unix seconds: for an operator. See `asked_at`.
    pub first_seen: i64,
    /// When the wait for it began, by the channel's [`asked`](super::Ledger::asked) time. States of version 0.1 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
    /// When it was first read, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The sinks whose lanes have passed its offset and are owed it.
    pub owed: BTreeSet<SinkName>,
    /// It became visible below offsets that were read before. Otherwise its proof was late, or an operator asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub appeared: bool,
    /// The size of its body.
    #[serde(skip)]
    pub bytes: u64,
}

/// What a sink has confirmed of a lane. None is recorded while the cursor was chosen by `start` or by an operator, and the sink
/// has not taken it over yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The sink's own position. The cursor can be higher: events that the sink does not get move the cursor alone.
    pub position: Option<Offset>,
    /// The event that was written last; `None` if none was written since the cursor was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EventKey>,
}

/// What is known about a quarantined event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Its place.
    pub offset: Offset,
    /// Its id, where it has one that can be read.
    pub event_id: Option<EventId>,
    /// The reason's constant name.
    pub reason: String,
    /// The reason in words.
    pub detail: String,
    /// When it was rejected, Unix seconds.
    pub at: i64,
    /// When it was first read, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// Where its proof, or other content of it, was delivered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Place>,
    /// Its proof, where another channel has shown it before, or it names what is not this channel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The size of its body.
    #[serde(skip)]
    pub bytes: u64,
}

/// Quarantined events whose proofs another channel showed too, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// How many.
    pub events: u64,
    /// The first of them.
    pub offset: Offset,
    /// Where else its proof was shown.
    pub original: Place,
    /// Why it is quarantined.
    pub reason: String,
    /// Its proof.
    pub digest: String,
}

/// A workflow's id.
pub type WorkflowId = [u8; 32];

/// The workflows that are remembered of a channel.
pub const WORKFLOWS: usize = 1_000;

/// A workflow that the channel has shown verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownWorkflow {
    /// The channel that had shown it before; `None`: this one was the first.
    pub first_in: Option<ChannelId>,
    /// When it was first shown here, Unix seconds.
    pub since: i64,
}

/// A channel or a sink that stands still because an operator asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself; `None`: when an operator resumes it.
    pub until: Option<Timestamp>,
}

/// Everything of one channel that is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The channel as a whole.
    pub channel: Option<Pause>,
    /// These of its sinks.
    pub sinks: BTreeMap<SinkName, Pause>,
}

/// An event that everything else of its channel waits for, in strict ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Its place.
    pub offset: Offset,
    /// When it was first seen, Unix seconds: for an operator.
    pub first_seen: i64,
    /// The same by the channel's [`asked`](super::Ledger::asked) time. States of version 0.1 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
}

/// What is known about an event that a sink gave up on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// Its place.
    pub offset: Offset,
    /// Its id, where it has one.
    pub event_id: Option<EventId>,
    /// The sink's last answer.
    pub reason: String,
    /// How many times it was offered.
    pub attempts: u32,
    /// When it was first refused, Unix seconds.
    pub since: i64,
    /// When the sink gave up, Unix seconds.
    pub at: i64,
    /// When it was first read, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The size of its body.
    #[serde(skip)]
    pub bytes: u64,
}

/// Where an entry of one channel stands. In their order, what is known of an event comes before its body.
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
    /// The bytes of what is late or quarantined.
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
    /// Some proofs that were delivered one after the other, by a number that grows.
    Proofs(u64),
    /// [`ShownWorkflow`].
    #[strum_discriminants(strum(serialize = "workflows"))]
    Workflow(WorkflowId),
    /// How many commits there have been.
    #[strum_discriminants(strum(serialize = "versions"))]
    Version,
    /// [`Summary`](super::Summary): what a store must have beside it.
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

/// An entry's value as a claim is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// All of it.
    Bytes(Bytes),
    /// Of a body, its size alone.
    Size(u64),
}

/// The entries of a channel.
pub type Entries = BTreeMap<Key, Value>;

impl Value {
    /// The value that is stored at a key, as a claim is given it.
    pub fn of(key: &Key, stored: &[u8]) -> Self {
        match key {
            Key::Body(_) | Key::DeadBody(..) => Self::Size(stored.len() as u64),
            _ => Self::Bytes(Bytes::copy_from_slice(stored)),
        }
    }
}

impl Key {
    /// Its bytes within the table and the channel. Numbers are big endian, so that keys sort as offsets do.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Cursor(sink) | Self::Confirmed(sink) => sink.as_bytes().to_vec(),
            Self::Late(key) | Self::Quarantined(key) | Self::Body(key) => {
                let id = key.id.as_ref().map_or(&[][..], |id| id.0.as_bytes());
                [&key.offset.get().to_be_bytes()[..], id].concat()
            }
            Self::DeadLetter(key, sink) | Self::DeadBody(key, sink) => {
                // No sink's name has a NUL in it.
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

    /// The key with these bytes.
    ///
    /// # Errors
    /// If they are no key of that table.
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

/// Version 0.1 wrote no ids: such a key is replaced when the channel is claimed.
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
    /// Which event it is.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

impl GivenUp {
    /// Which event it is.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

impl Paused {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pauses a sink or, without one, the channel; with `None`, resumes it. Paused again, it has been since the first time.
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

    /// The channel, as `None`, and its sinks, each with its pause.
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
