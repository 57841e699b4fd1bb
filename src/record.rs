//! The delivered record: one JSON object on one line, the same for every sink.
//!
//! # Invariants
//!
//! * **Bytes survive.** `event` is the service's JSON and `decoded` the signed JSON, byte for byte, numbers of any size
//!   included. One thing only is changed: a line break between two tokens becomes a space, so that a record is a line.
//! * **`decoded` is signed.** It is there only in a verified record: without a proof it would be the service's word in
//!   the network's clothes.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::event::{ChannelId, Event, EventId, Offset, RawEvent};
use crate::verify::{Address, Hash, Unsigned, Verdict, Verified};

const VERIFIED: &str = "verified";

/// A channel, by the operator's name for it and the service's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelRef {
    /// The key of its table in the configuration; labels logs, metrics and records.
    pub name: Arc<str>,
    /// The service's id.
    pub id: ChannelId,
}

/// An event ready for delivery. Made of a [`Verified`] or [`Unsigned`] event and of nothing else.
#[derive(Clone, Debug)]
pub struct Record {
    offset: Offset,
    event_id: Option<EventId>,
    verified: bool,
    json: Bytes,
}

impl Record {
    /// The record of an event whose proof holds.
    #[must_use]
    pub fn verified(channel: &ChannelRef, verified: &Verified) -> Self {
        Self::new(channel, verified.event(), Verification::verified(verified))
    }

    /// The record of a notice that nobody signs, marked as such.
    #[must_use]
    pub fn unsigned(channel: &ChannelRef, unsigned: &Unsigned) -> Self {
        Self::new(channel, unsigned.event(), Verification::status("unsigned"))
    }

    fn new(channel: &ChannelRef, event: &Event, verification: Verification<'_>) -> Self {
        let verified = verification.status == VERIFIED;
        let json = render(channel, event.raw(), Some(event), verification);
        Self { offset: event.offset(), event_id: event.id(), verified, json: json.into() }
    }

    /// The event's place in its channel.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// The event's id, where the service gave one.
    #[must_use]
    pub fn event_id(&self) -> Option<EventId> {
        self.event_id
    }

    /// Whether it was proved; otherwise it is a notice that nobody signs.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// What a consumer deduplicates on: the event's id, or else its channel and offset.
    #[must_use]
    pub fn key(&self, channel: &ChannelRef) -> String {
        match self.event_id {
            Some(id) => id.to_string(),
            None => format!("{}:{}", channel.id, self.offset),
        }
    }

    /// The JSON object, on one line, without the line break at its end.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

/// The record of an event with any verdict, for showing it to a person or a program: never delivered.
#[must_use]
pub fn shown(channel: &ChannelRef, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Verified(verified) => {
            render(channel, verified.event().raw(), Some(verified.event()), Verification::verified(verified))
        }
        Verdict::Unsigned(unsigned) => {
            render(channel, unsigned.event().raw(), Some(unsigned.event()), Verification::status("unsigned"))
        }
        Verdict::Pending(raw) | Verdict::Rejected(raw, _) => {
            let verification = Verification { reason: reason(verdict), ..Verification::status(verdict.name()) };
            render(channel, raw, Event::parse(raw.json.clone()).ok().as_ref(), verification)
        }
    }
}

fn reason(verdict: &Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Rejected(_, reason) => Some(reason.name()),
        _ => None,
    }
}

#[derive(Serialize)]
struct Line<'a> {
    channel: &'a str,
    channel_id: ChannelId,
    offset: Offset,
    event_id: Option<EventId>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    verification: Verification<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decoded: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
}

#[derive(Default, Serialize)]
struct Verification<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signers: Option<&'a [Address]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_hash: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_owner: Option<Address>,
}

impl<'a> Verification<'a> {
    fn status(status: &'static str) -> Self {
        Self { status, ..Self::default() }
    }

    fn verified(verified: &'a Verified) -> Self {
        let proof = verified.proof();
        Self {
            status: VERIFIED,
            reason: None,
            signers: Some(&proof.signers),
            required: Some(proof.required),
            event_hash: Some(proof.event_hash),
            workflow_owner: Some(proof.workflow_owner),
        }
    }
}

fn render(channel: &ChannelRef, raw: &RawEvent, event: Option<&Event>, verification: Verification<'_>) -> String {
    let json = one_line(String::from_utf8_lossy(&raw.json));
    let signed = event.filter(|_| verification.status == VERIFIED).and_then(Event::signed);
    let decoded = signed.and_then(decode);
    let line = Line {
        channel: &channel.name,
        channel_id: channel.id,
        offset: raw.offset,
        event_id: raw.id,
        kind: event.map(|event| event.kind().as_str()),
        time: event.and_then(Event::timestamp).and_then(rfc3339),
        verification,
        decoded: decoded.as_deref(),
        event: serde_json::from_str(&json).ok(),
    };
    serde_json::to_string(&line).expect("a record has text keys and no value that can fail")
}

/// The JSON inside the signed text; `None` where the text is not base64 of JSON, which is no fault: the proof is over
/// the text.
#[must_use]
pub fn decode(signed: &str) -> Option<Box<RawValue>> {
    let json = String::from_utf8(STANDARD.decode(signed).ok()?).ok()?;
    let json = RawValue::from_string(json).ok()?;
    // Valid before it is on one line: a line break inside a text makes it no JSON, and must not be mended.
    if json.get().contains(LINE_BREAKS) {
        RawValue::from_string(one_line(json.get().into()).into_owned()).ok()
    } else {
        Some(json)
    }
}

const LINE_BREAKS: [char; 2] = ['\n', '\r'];

/// In JSON a raw line break stands only between tokens, where a space means the same.
fn one_line(json: Cow<'_, str>) -> Cow<'_, str> {
    if json.contains(LINE_BREAKS) { Cow::Owned(json.replace(LINE_BREAKS, " ")) } else { json }
}

/// `None` for a time that no calendar here has: the event's own field still says it.
pub(crate) fn rfc3339(unix_seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(unix_seconds).ok().map(|time| time.to_string())
}
