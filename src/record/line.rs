//! Renders the record as one line of JSON, in memory that the lines of a batch share.
//!
//! A line is allocated on one thread and freed on another, and it outlives the rest of its event. If each line had its
//! own allocation, the heap would fragment, and memory would grow for as long as a channel catches up. Other allocators
//! do not prevent this. The measurements are in the head of `src/api/buffers.rs`.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::facts::text;
use crate::finality::{self, Confidence};
use crate::network::network_name;
use net::memory::{ChannelMemory, Reserved};
use proof::event::{ChannelId, Event, EventId, Object, Offset, RawEvent, has_half_surrogate, is_nested_too_deeply};
use proof::verify::Proof;

/// The `status` of a record whose proof is valid.
pub const VERIFIED: &str = "verified";
/// The `status` of a record that never has a proof.
pub const UNSIGNED: &str = "unsigned";

/// The approximate length of the members before `decoded` and `event`, without the signers.
const HEAD: usize = 800;

/// The length of the address of a signer in JSON.
const SIGNER: usize = 45;

/// The most memory, in bytes, that is allocated in advance for later lines. The allocator reuses a block of this size. It
/// returns blocks of 256 KiB to the system when they are freed (see `ALLOCATOR` in src/main.rs), and the system must then clear each
/// page of the next block.
const AHEAD: usize = 128 << 10;

/// A channel: its name in the configuration, and its id in the service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelRef {
    /// The key of its table in the configuration. It labels logs, metrics and records.
    pub name: Arc<str>,
    /// The channel's id in the service.
    pub id: ChannelId,
}

/// The members before `decoded` and `event`.
#[derive(Serialize)]
struct Head<'a> {
    channel: &'a str,
    channel_id: ChannelId,
    offset: Offset,
    event_id: Option<EventId>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Confidence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<&'a str>,
    verification: &'a Verification<'a>,
}

#[derive(Serialize)]
pub(super) struct Verification<'a> {
    pub(super) status: &'static str,
    /// The members of the record that the network signed.
    pub(super) covers: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    #[serde(flatten)]
    pub(super) proof: Option<&'a Proof>,
}

impl Verification<'_> {
    pub(super) fn status(status: &'static str) -> Self {
        Self { status, covers: &[], reason: None, proof: None }
    }
}

/// The byte ranges of the parts of a record within its JSON.
#[derive(Clone, Debug)]
pub(super) struct MemberRanges {
    pub(super) decoded: Option<Range<usize>>,
    pub(super) event: Range<usize>,
}

/// The parts of a record that was written.
pub(super) struct Rendered {
    pub(super) ranges: MemberRanges,
    pub(super) confidence: Option<Confidence>,
    pub(super) network: Option<&'static str>,
}

/// Writes a record into `json`, which must be empty. `event` is `None` if the service's event is malformed.
pub(super) fn render(
    json: &mut Vec<u8>,
    channel: &ChannelRef,
    raw: &RawEvent,
    event: Option<&Event>,
    received: Option<&str>,
    verification: &Verification<'_>,
) -> Rendered {
    const DECODED: &str = "decoded";
    let signed = event.filter(|_| verification.status == VERIFIED).and_then(|event| event.payload.signed.as_deref());
    let signers = verification.proof.map_or(0, |proof| proof.signers.len());
    let decoded = signed.and_then(decoded);
    let (confidence, network) = match (verification.status, &decoded) {
        (VERIFIED, Some(decoded)) => signed_members(decoded),
        (VERIFIED, None) => (None, None),
        _ => (None, event.and_then(|event| event.payload.chain_selector.as_deref()).and_then(network_name)),
    };
    let covers: &[_] = if decoded.is_some() { &[DECODED] } else { &[] };
    json.reserve(HEAD + signers * SIGNER + decoded.as_ref().map_or(0, Vec::len) + raw.json.len());
    let head = Head {
        channel: &channel.name,
        channel_id: channel.id,
        offset: raw.offset,
        event_id: raw.id,
        kind: event.map(|event| event.kind.as_ref()),
        time: event.and_then(|event| event.payload.timestamp).and_then(rfc3339),
        confidence,
        network,
        received,
        verification: &Verification { covers, ..*verification },
    };
    serde_json::to_writer(&mut *json, &head).expect("a record has text keys and no value that can fail");
    json.pop();
    let decoded = decoded.map(|decoded| member(json, DECODED, &decoded));
    let mut shown;
    let value = if event.is_some() {
        // The text was already parsed as JSON, so only white space can surround the value.
        Some(raw.json.trim_ascii())
    } else {
        shown = String::from_utf8_lossy(&raw.json).into_owned().into_bytes();
        put_on_one_line(&mut shown);
        serde_json::from_slice::<&RawValue>(&shown).ok().map(|value| value.get().as_bytes())
    };
    let event = value.map(|value| member(json, "event", value));
    json.push(b'}');
    // A record without `event` gets an empty range at the end.
    let event = event.unwrap_or(json.len() - 1..json.len() - 1);
    put_on_one_line(&mut json[event.clone()]);
    Rendered { ranges: MemberRanges { decoded, event }, confidence, network }
}

/// Returns the confidence in signed content, and the name of its network.
pub(super) fn signed_members(decoded: &[u8]) -> (Option<Confidence>, Option<&'static str>) {
    let Ok(decoded) = Object::read(decoded) else { return (None, None) };
    let chain_selector = text(&decoded, "chain_selector");
    (finality::confidence(&decoded), chain_selector.as_deref().and_then(network_name))
}

fn member(json: &mut Vec<u8>, name: &str, value: &[u8]) -> Range<usize> {
    json.extend_from_slice(b",\"");
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
    let start = json.len();
    json.extend_from_slice(value);
    start..json.len()
}

/// Returns the JSON inside a signed text, on one line. `None` if the text is not base64 of JSON, or if some readers of the
/// record cannot read this JSON. It then appears only inside `event`, as base64.
pub(super) fn decoded(signed: &str) -> Option<Vec<u8>> {
    let is_readable = |json: &Vec<u8>| !is_nested_too_deeply(json) && !has_half_surrogate(json);
    let mut decoded = STANDARD.decode(signed).ok().filter(is_readable)?;
    // Check the JSON before line breaks are replaced. A line break inside a string makes the JSON invalid, and
    // replacing it would hide this.
    let length = serde_json::from_slice::<&RawValue>(&decoded).ok()?.get().len();
    let space = decoded.len() - decoded.trim_ascii_start().len();
    decoded.drain(..space);
    decoded.truncate(length);
    put_on_one_line(&mut decoded);
    Some(decoded)
}

/// The start of the year 0. RFC 3339 cannot express an earlier time.
const YEAR_ZERO: i64 = -62_167_219_200;

/// Formats a time. Returns `None` if the time is not in the years 0 to 9999. The member `event` still contains the time.
pub fn rfc3339(unix_seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(unix_seconds).ok().filter(|_| unix_seconds >= YEAR_ZERO)?;
    Some(time.to_string())
}

/// Replaces line breaks with spaces, which have the same meaning: in JSON a raw line break occurs only between tokens.
fn put_on_one_line(json: &mut [u8]) {
    for byte in json {
        // The store is unconditional so that the compiler vectorizes the loop.
        *byte = if matches!(*byte, b'\n' | b'\r') { b' ' } else { *byte };
    }
}

/// Writes lines one after another into a shared block of memory. The block is freed when its last line is dropped.
#[derive(Debug, Default)]
pub struct Lines {
    expected: usize,
    /// When the events were first read, as a timestamp and as text.
    pub(super) received: Option<(Timestamp, Arc<str>)>,
    line: Vec<u8>,
    block: BytesMut,
    /// The reservation that accounts for the block.
    counted: Option<Arc<Reserved>>,
    memory: Arc<ChannelMemory>,
}

impl Lines {
    /// Prepares for about `expected` lines.
    pub fn of(expected: usize) -> Self {
        Self { expected, ..Self::default() }
    }

    /// Sets the time when the events of these lines were first read.
    #[must_use]
    pub fn received(self, at: Timestamp) -> Self {
        Self { received: Some((at, format!("{at:.3}").into())), ..self }
    }

    /// Counts the lines as memory of this channel.
    #[must_use]
    pub fn counted_by(self, memory: Arc<ChannelMemory>) -> Self {
        Self { memory, ..self }
    }

    /// Returns the line that `write` writes, its result, and the reservation, which must be kept as long as the line.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (Bytes, T, Option<Arc<Reserved>>) {
        self.line.clear();
        let written = write(&mut self.line);
        let length = self.line.len();
        if self.block.capacity() < length {
            // Assume that the remaining lines have the same length.
            let ahead = AHEAD.min(length.saturating_mul(self.expected));
            self.block = BytesMut::with_capacity(ahead.max(length));
            self.counted = Some(Arc::new(self.memory.exceed(ahead.max(length))));
        }
        self.expected = self.expected.saturating_sub(1);
        self.block.extend_from_slice(&self.line);
        (self.block.split().freeze(), written, self.counted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(lines: &mut Lines, length: usize) -> Bytes {
        let (line, said, _) = lines.write(|line| line.resize(length, 7));
        assert_eq!((line.to_vec(), said), (vec![7; length], ()));
        line
    }

    #[test]
    fn lines_are_packed_while_there_is_room() {
        let mut lines = Lines::of(3);
        let [first, second, too_long, fourth] = [100, 200, 300, 50].map(|length| line(&mut lines, length));
        assert_eq!(second.as_ptr(), first.as_ptr_range().end);
        assert_ne!(too_long.as_ptr(), second.as_ptr_range().end);
        drop((first, second, too_long));
        assert_eq!(fourth, [7; 50][..]);
    }

    #[test]
    fn memory_is_reserved_only_as_needed() {
        let mut lines = Lines::default();
        line(&mut lines, 100);
        assert_eq!(lines.block.capacity(), 0);
        let mut lines = Lines::of(usize::MAX);
        line(&mut lines, 100);
        assert_eq!(lines.block.capacity(), AHEAD - 100);
        line(&mut lines, 2 * AHEAD);
        assert_eq!(lines.block.capacity(), 0);
    }
}
