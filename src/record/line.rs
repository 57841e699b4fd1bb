//! The record as one line of JSON.

use std::ops::Range;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{ChannelRef, decode, one_line, rfc3339};
use crate::event::{ChannelId, Event, EventId, Offset, RawEvent};
use crate::verify::{Address, Hash, Verified};

pub(super) const VERIFIED: &str = "verified";
pub(super) const UNSIGNED: &str = "unsigned";

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
pub(super) struct Verification<'a> {
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
    pub(super) fn status(status: &'static str) -> Self {
        Self { status, ..Self::default() }
    }

    pub(super) fn rejected(reason: &'static str) -> Self {
        Self { reason: Some(reason), ..Self::status("rejected") }
    }

    pub(super) fn verified(verified: &'a Verified) -> Self {
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

/// A record, and where the event stands in it.
pub(super) struct Rendered {
    pub(super) json: String,
    pub(super) event: Range<usize>,
}

pub(super) fn render(
    channel: &ChannelRef,
    raw: &RawEvent,
    event: Option<&Event>,
    verification: Verification<'_>,
) -> Rendered {
    let json = one_line(String::from_utf8_lossy(&raw.json));
    let signed = event.filter(|_| verification.status == VERIFIED).and_then(Event::signed);
    let decoded = signed.and_then(decode);
    let whole: Option<&RawValue> = serde_json::from_str(&json).ok();
    let line = Line {
        channel: &channel.name,
        channel_id: channel.id,
        offset: raw.offset,
        event_id: raw.id,
        kind: event.map(|event| event.kind().as_str()),
        time: event.and_then(Event::timestamp).and_then(rfc3339),
        verification,
        decoded: decoded.as_deref(),
        event: whole,
    };
    let line = serde_json::to_string(&line).expect("a record has text keys and no value that can fail");
    // It is the last member, as it came.
    let end = line.len() - 1;
    Rendered { event: end - whole.map_or(0, |event| event.get().len())..end, json: line }
}
