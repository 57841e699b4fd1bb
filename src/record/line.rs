//! Renders the record as one line of JSON.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use proof::event::{ChannelId, Event, EventId, Offset, RawEvent, is_nested_too_deeply};
use proof::verify::Proof;

/// The `status` of a record whose proof is valid.
pub const VERIFIED: &str = "verified";
/// The `status` of a record that never has a proof.
pub const UNSIGNED: &str = "unsigned";

/// The approximate length of the members before `decoded` and `event`, without the signers.
const HEAD: usize = 800;

/// The length of one signer in the JSON.
const SIGNER: usize = 45;

/// A channel: the operator's name for it and the service's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelRef {
    /// The key of its table in the configuration. It labels logs, metrics and records.
    pub name: Arc<str>,
    /// The service's id.
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
    received: Option<&'a str>,
    verification: &'a Verification<'a>,
}

#[derive(Serialize)]
pub(super) struct Verification<'a> {
    pub(super) status: &'static str,
    /// The members of the record that the network signed.
    pub(super) covers: &'static [&'static str],
    /// Why the event was rejected.
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
pub(super) struct Parts {
    pub(super) decoded: Option<Range<usize>>,
    pub(super) event: Range<usize>,
}

/// Writes a record into `json`, which must be empty.
pub(super) fn render(
    json: &mut Vec<u8>,
    channel: &ChannelRef,
    raw: &RawEvent,
    event: Option<&Event>,
    received: Option<&str>,
    verification: &Verification<'_>,
) -> Parts {
    const DECODED: &str = "decoded";
    let signed = event.filter(|_| verification.status == VERIFIED).and_then(|event| event.payload.signed.as_deref());
    let signers = verification.proof.map_or(0, |proof| proof.signers.len());
    let decoded = signed.and_then(decoded);
    let covers: &[_] = if decoded.is_some() { &[DECODED] } else { &[] };
    json.reserve(HEAD + signers * SIGNER + decoded.as_ref().map_or(0, Vec::len) + raw.json.len());
    let head = Head {
        channel: &channel.name,
        channel_id: channel.id,
        offset: raw.offset,
        event_id: raw.id,
        kind: event.map(|event| event.kind.as_ref()),
        time: event.and_then(|event| event.payload.timestamp).and_then(rfc3339),
        received,
        verification: &Verification { covers, ..*verification },
    };
    serde_json::to_writer(&mut *json, &head).expect("a record has text keys and no value that can fail");
    json.pop();
    let decoded = decoded.and_then(|decoded| {
        member(json, DECODED, |json| {
            json.extend_from_slice(&decoded);
            Some(())
        })
    });
    let event = member(json, "event", |json| append_event(json, raw, event));
    json.push(b'}');
    // An event that is not JSON gets an empty range at the end.
    let event = event.unwrap_or(json.len() - 1..json.len() - 1);
    Parts { decoded, event }
}

/// Appends a member and returns the range of its value. Appends nothing if `append` returns no value.
fn member(json: &mut Vec<u8>, name: &str, append: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<Range<usize>> {
    let before = json.len();
    json.extend_from_slice(b",\"");
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
    let start = json.len();
    if append(json).is_none() {
        json.truncate(before);
        return None;
    }
    Some(start..json.len())
}

/// Returns the JSON inside a signed text, on one line. Returns `None` if the text is not base64 of JSON, or if the JSON is
/// nested too deeply.
pub(super) fn decoded(signed: &str) -> Option<Vec<u8>> {
    // JSON that is too deep for the readers of the record appears only inside `event`.
    let mut decoded = STANDARD.decode(signed).ok().filter(|decoded| !is_nested_too_deeply(decoded))?;
    // Check the JSON before line breaks are replaced. A line break inside a string makes it invalid and must not be
    // repaired.
    let length = serde_json::from_slice::<&RawValue>(&decoded).ok()?.get().len();
    let space = decoded.len() - decoded.trim_ascii_start().len();
    decoded.drain(..space);
    decoded.truncate(length);
    put_on_one_line(&mut decoded);
    Some(decoded)
}

/// Appends the service's JSON. Returns `None` if the bytes are not JSON.
fn append_event(json: &mut Vec<u8>, raw: &RawEvent, event: Option<&Event>) -> Option<()> {
    let start = json.len();
    if event.is_some() {
        // This was already parsed as JSON, so only white space can surround it.
        json.extend_from_slice(raw.json.trim_ascii());
        put_on_one_line(&mut json[start..]);
    } else {
        let mut shown = String::from_utf8_lossy(&raw.json).into_owned().into_bytes();
        put_on_one_line(&mut shown);
        json.extend_from_slice(serde_json::from_slice::<&RawValue>(&shown).ok()?.get().as_bytes());
    }
    Some(())
}

/// Formats a time. Returns `None` if it is outside the calendar. The event's own field still contains it.
pub fn rfc3339(unix_seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(unix_seconds).ok().map(|time| time.to_string())
}

/// Replaces line breaks with spaces. In JSON a raw line break occurs only between tokens, and a space means the same.
fn put_on_one_line(json: &mut [u8]) {
    for byte in json {
        // The store is unconditional so that the compiler vectorizes the loop.
        *byte = if matches!(*byte, b'\n' | b'\r') { b' ' } else { *byte };
    }
}
