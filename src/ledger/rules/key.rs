//! The entries of a ledger in the store. Each has a table, a key in the table, and a value.
//!
//! Most values are JSON. Bodies are the original bytes of the events, and proofs are packed without separators.
//!
//! In version 0.1 the keys of events were offsets. The new keys also contain the events' ids. [`rekey`] migrates old keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::entry::{DeadLetterFacts, PendingEvent, Quarantined, ReplayId, SinkName, WorkflowId, decode};
use crate::StateError;
use proof::event::{EventId, EventKey, Offset};

/// The key of an entry of one channel. Keys are ordered so that the facts about an event come before its body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumDiscriminants)]
#[strum_discriminants(name(Table), doc = "The table of a key. Its text is the name that a store gives the table.")]
#[strum_discriminants(
    derive(strum::EnumIter, strum::EnumString, strum::IntoStaticStr),
    strum(serialize_all = "kebab-case")
)]
pub enum Key {
    /// [`Cursor`](crate::Cursor).
    #[strum_discriminants(strum(serialize = "cursors"))]
    Cursor(SinkName),
    /// [`PendingEvent`].
    Late(EventKey),
    /// [`Quarantined`].
    #[strum_discriminants(strum(serialize = "quarantine"))]
    Quarantined(EventKey),
    /// The bytes of a pending or quarantined event.
    #[strum_discriminants(strum(serialize = "json"))]
    Body(EventKey),
    /// [`DeadLetterFacts`].
    #[strum_discriminants(strum(serialize = "dead-letters"))]
    DeadLetter(EventKey, SinkName),
    /// The bytes of a dead letter.
    #[strum_discriminants(strum(serialize = "dead-bodies"))]
    DeadBody(EventKey, SinkName),
    /// [`Blocker`](crate::Blocker).
    #[strum_discriminants(strum(serialize = "blockers"))]
    Blocker,
    /// [`Paused`](crate::Paused).
    #[strum_discriminants(strum(serialize = "pauses"))]
    Paused,
    /// Proofs that were delivered in one commit. Each such entry has a larger number than the previous one.
    Proofs(u64),
    /// [`ShownWorkflow`](crate::ShownWorkflow).
    #[strum_discriminants(strum(serialize = "workflows"))]
    Workflow(WorkflowId),
    /// The number of commits.
    #[strum_discriminants(strum(serialize = "versions"))]
    Version,
    /// [`Summary`](crate::Summary): the expected contents of the store.
    #[strum_discriminants(strum(serialize = "summaries"))]
    Summary,
    /// [`Confirmed`](crate::Confirmed).
    Confirmed(SinkName),
    /// [`History`](crate::History), packed.
    History,
    /// [`Contradiction`](crate::Contradiction).
    #[strum_discriminants(strum(serialize = "contradictions"))]
    Contradiction,
    /// [`Ledger::asked`](crate::Ledger::asked).
    Asked,
    /// [`Replay`](crate::Replay).
    #[strum_discriminants(strum(serialize = "replays"))]
    Replay(ReplayId),
    /// [`LateDelivery`](crate::LateDelivery). Each such entry of a sink has a larger number than the previous one.
    #[strum_discriminants(strum(serialize = "late-deliveries"))]
    LateDelivery(u64, SinkName),
    /// An entry of a kind that this version does not know, because a newer version wrote it. The entry is kept as it is.
    #[strum_discriminants(strum(disabled))]
    Other(OtherKey),
}

/// The key of an entry of an unknown kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the texts of a key describe the fields")]
pub struct OtherKey {
    pub kind: Arc<str>,
    pub key: Bytes,
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

/// Entries to write, in order. An entry without a value is removed.
pub(crate) type Changes = Vec<(Key, Option<Bytes>)>;

impl Value {
    /// Converts a stored value to the form that is returned when a channel is claimed.
    pub fn of(key: &Key, stored: &[u8]) -> Self {
        if Table::BODIES.contains(&key.into()) {
            Self::Size(stored.len() as u64)
        } else {
            Self::Bytes(Bytes::copy_from_slice(stored))
        }
    }
}

impl Table {
    /// The tables whose values are bodies. Bodies are loaded only on request.
    pub(crate) const BODIES: [Self; 2] = [Self::Body, Self::DeadBody];
}

impl Key {
    /// The name of the key's table.
    pub fn kind(&self) -> &str {
        match self {
            Self::Other(other) => &other.kind,
            known => Table::from(known).into(),
        }
    }

    /// The bytes of the key within the table and the channel. Numbers are big endian, so the keys of events sort like
    /// their offsets.
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
            Self::Proofs(number) | Self::Replay(number) => number.to_be_bytes().to_vec(),
            Self::LateDelivery(number, sink) => [&number.to_be_bytes()[..], sink.as_bytes()].concat(),
            Self::Workflow(id) => id.to_vec(),
            Self::Other(other) => other.key.to_vec(),
        }
    }

    /// Parses the bytes of a key of the table with this name.
    pub(crate) fn parse(kind: &str, bytes: &[u8]) -> Result<Self, StateError> {
        let Ok(table) = kind.parse::<Table>() else { return Ok(Self::other(kind, bytes)) };
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
            Table::Replay => bytes.try_into().ok().map(u64::from_be_bytes).map(Self::Replay),
            Table::LateDelivery => number_and_sink(bytes).map(|(number, sink)| Self::LateDelivery(number, sink)),
            Table::Workflow => bytes.try_into().ok().map(Self::Workflow),
            Table::Version => bytes.is_empty().then_some(Self::Version),
            Table::Summary => bytes.is_empty().then_some(Self::Summary),
            Table::Other => Some(Self::other(kind, bytes)),
        };
        key.ok_or_else(|| StateError::unreadable_entry(kind, bytes, "its key has another format"))
    }

    fn other(kind: &str, bytes: &[u8]) -> Self {
        Self::Other(OtherKey { kind: kind.into(), key: Bytes::copy_from_slice(bytes) })
    }

    /// The error that the value of this key cannot be read.
    pub(crate) fn unreadable(&self, why: impl std::fmt::Display) -> StateError {
        StateError::unreadable_entry(self.kind(), &self.bytes(), why)
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

fn number_and_sink(bytes: &[u8]) -> Option<(u64, SinkName)> {
    let (number, name) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), sink(name)?))
}

fn event_and_sink(bytes: &[u8]) -> Option<(EventKey, SinkName)> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (name, id) = (parts.next()?, parts.next());
    let id = if let Some(id) = id { Some(event_id(id)?) } else { None };
    Some((EventKey { offset: offset(number)?, id }, sink(name)?))
}

/// Two entries to move: one that version 0.1 stored under an offset alone although its event has an id, and the entry of
/// that event's body. Each pair of keys consists of the old key and the new key.
#[derive(Debug)]
pub(crate) struct MovedEntry {
    entry: (Key, Key),
    value: Bytes,
    pub(crate) body: (Key, Key),
}

/// Replaces the keys of version 0.1 in `entries`, and returns the entries that the store must move.
pub(crate) fn rekey(entries: &mut Entries) -> Result<Vec<MovedEntry>, StateError> {
    let mut moves = Vec::new();
    for (key, value) in &*entries {
        let Value::Bytes(value) = value else { continue };
        let unreadable = |error| key.unreadable(error);
        let with = |old: &EventKey, id: Option<EventId>| EventKey { id, ..*old };
        let (entry, body, new_body) = match key {
            Key::Late(old @ EventKey { id: None, .. }) => {
                let new = with(old, decode::<PendingEvent>(value).map_err(unreadable)?.event_id);
                (Key::Late(new), Key::Body(*old), Key::Body(new))
            }
            Key::Quarantined(old @ EventKey { id: None, .. }) => {
                let new = with(old, decode::<Quarantined>(value).map_err(unreadable)?.event_id);
                (Key::Quarantined(new), Key::Body(*old), Key::Body(new))
            }
            Key::DeadLetter(old @ EventKey { id: None, .. }, sink) => {
                let new = with(old, decode::<DeadLetterFacts>(value).map_err(unreadable)?.event_id);
                let body = |event| Key::DeadBody(event, sink.clone());
                (Key::DeadLetter(new, sink.clone()), body(*old), body(new))
            }
            _ => continue,
        };
        // An event without an id keeps its key.
        if entry != *key {
            moves.push(MovedEntry { entry: (key.clone(), entry), value: value.clone(), body: (body, new_body) });
        }
    }
    for MovedEntry { entry: (old, new), body: (old_body, new_body), .. } in &moves {
        for (old, new) in [(old, new), (old_body, new_body)] {
            if let Some(value) = entries.remove(old) {
                entries.insert(new.clone(), value);
            }
        }
    }
    Ok(moves)
}

impl MovedEntry {
    /// The changes that move the entry. `json` is the event's body. It is `None` if the body was lost, or was already
    /// moved with another entry of the event.
    pub(crate) fn changes(self, json: Option<Bytes>) -> Changes {
        let (entry, body) = (self.entry, self.body);
        let mut changes = vec![(entry.1, Some(self.value)), (entry.0, None)];
        if json.is_some() {
            changes.extend([(body.1, json), (body.0, None)]);
        }
        changes
    }
}
