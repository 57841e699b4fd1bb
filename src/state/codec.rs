//! Keys and values as they stand in the database.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DeadLetter, LaneKey, StateError};
use crate::event::{ChannelId, EventId, Offset};

const UUID_LENGTH: usize = 16;
const OFFSET_LENGTH: usize = 8;

/// An event that waits for its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// What it is read again by. None has only what left the quarantine.
    pub event_id: Option<EventId>,
    /// When it was first seen, Unix seconds.
    pub first_seen: i64,
    /// The sinks that have passed its offset and are owed it.
    pub owed: BTreeSet<String>,
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
    /// When it was condemned, Unix seconds.
    pub at: i64,
}

/// An event that everything else of its channel waits for, in strict ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Its place.
    pub offset: Offset,
    /// When it was first seen, Unix seconds.
    pub first_seen: i64,
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
}

/// The key of a dead letter: the event's key and the sink's name.
pub(super) fn dead_letter_key(lane: &LaneKey, offset: Offset) -> Vec<u8> {
    [&event_key(lane.channel, offset)[..], lane.sink.as_bytes()].concat()
}

/// The lane of a dead letter's key.
pub(super) fn dead_letter_lane(key: &[u8]) -> Result<LaneKey, StateError> {
    let (channel, rest) = split_channel(key)?;
    let sink = rest.get(OFFSET_LENGTH..).and_then(|sink| std::str::from_utf8(sink).ok());
    Ok(LaneKey { channel, sink: sink.ok_or_else(|| damaged("a dead letter's key"))?.into() })
}

/// A dead letter: what is known of it on one line, and the event below it.
pub(super) fn encode_dead_letter(letter: &DeadLetter) -> Vec<u8> {
    [&encode(&letter.facts)[..], b"\n", &letter.json].concat()
}

pub(super) fn decode_dead_letter(value: &[u8]) -> Result<DeadLetter, StateError> {
    let end = value.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("a dead letter"))?;
    Ok(DeadLetter { facts: decode(&value[..end])?, json: Bytes::copy_from_slice(&value[end + 1..]) })
}

/// The key of a lane's cursor: the channel's 16 bytes and the sink's name.
pub(super) fn lane_key(lane: &LaneKey) -> Vec<u8> {
    [lane.channel.0.as_bytes(), lane.sink.as_bytes()].concat()
}

/// The lane of a key.
pub(super) fn lane_of(key: &[u8]) -> Result<LaneKey, StateError> {
    let (channel, sink) = split_channel(key)?;
    let sink = std::str::from_utf8(sink).map_err(|_| damaged("a cursor's key"))?;
    Ok(LaneKey { channel, sink: sink.into() })
}

/// The key of an event: the channel's 16 bytes and the offset, big endian, so that keys sort as offsets do.
pub(super) fn event_key(channel: ChannelId, offset: Offset) -> Vec<u8> {
    [&channel.0.as_bytes()[..], &offset.get().to_be_bytes()].concat()
}

/// The channel and offset of an event's key.
pub(super) fn event_of(key: &[u8]) -> Result<(ChannelId, Offset), StateError> {
    let (channel, offset) = split_channel(key)?;
    let offset = offset.try_into().ok().map(i64::from_be_bytes).and_then(Offset::new);
    Ok((channel, offset.ok_or_else(|| damaged("an event's key"))?))
}

fn split_channel(key: &[u8]) -> Result<(ChannelId, &[u8]), StateError> {
    let (channel, rest) = key.split_at_checked(UUID_LENGTH).ok_or_else(|| damaged("a key"))?;
    Ok((ChannelId(Uuid::from_slice(channel).map_err(|_| damaged("a key"))?), rest))
}

/// Values are JSON: small, and readable with nothing but a database dump.
pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("state values have text keys and no value that can fail")
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StateError> {
    serde_json::from_slice(bytes).map_err(|_| damaged("a stored value"))
}

fn damaged(what: &str) -> StateError {
    StateError::Damaged(format!("{what} cannot be read"))
}
