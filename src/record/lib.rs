//! The delivered record: one JSON object on one line, and the other shapes that sinks write.
//!
//! # Invariants
//!
//! * **Bytes survive.** `event` is the service's JSON and `decoded` is the signed JSON. Both are copied byte for byte,
//!   including numbers of any size. Only line breaks between two tokens become spaces, so that a record is one line.
//! * **`decoded` is signed.** Only a verified record has it. Without a proof it would be an unsigned claim of the service.

#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use net::memory::Reserved;
use proof::event::{ChannelId, Event, EventId, EventKey, EventType, Offset, Proofs};
use proof::verify::{Hash, Proof, Unsigned, Verdict, Verified};

mod facts;
mod finality;
mod line;
mod manual;
mod network;
mod object_verdict;
mod shape;

pub use facts::{Facts, Field, Filter, Rule};
pub use finality::Confidence;
pub use manual::{EXAMPLE, MANUAL, schema};
pub use network::{learn_networks, learned_networks, network_name};
pub use object_verdict::ObjectVerdict;
pub use shape::{
    BuiltInTarget, Format, JSON, Message, Readable, Shape, Source, Template, UrlSuffix, VOCABULARY, printable,
};

pub use line::{ChannelRef, Lines, UNSIGNED, VERIFIED, rfc3339};
use line::{MemberRanges, Verification};

/// An event that is ready for delivery. It can only be made from a [`Verified`] or [`Unsigned`] event.
#[derive(Clone, Debug)]
pub struct Record {
    /// The event's channel.
    pub channel: ChannelRef,
    /// The event's offset in its channel.
    pub offset: Offset,
    /// The event's id, if the service gave one.
    pub event_id: Option<EventId>,
    /// The event's type.
    pub kind: EventType,
    /// When the event happened, in Unix seconds. Not signed.
    pub time: Option<i64>,
    /// The confidence that the network signed. `None` without a proof, or if the signed content has none.
    pub confidence: Option<Confidence>,
    /// The name of the event's network, if the network is published. The chain selector is the signed one or, for a notice,
    /// the service's.
    pub network: Option<&'static str>,
    /// When the event was first read, if known.
    pub received: Option<Timestamp>,
    /// Identifies the proof: two records with the same digest are the same event. `None` without a proof.
    pub digest: Option<Hash>,
    /// The workflow that the report names. `None` without a proof.
    pub workflow_id: Option<Hash>,
    /// The number of signatures that count, and the number that is required. `None` without a proof.
    signatures: Option<(usize, usize)>,
    /// The JSON object, on one line, without a trailing line break.
    pub json: Bytes,
    ranges: MemberRanges,
    /// Parsed on first use. Stays empty if no sink uses filters or subjects.
    facts: OnceLock<Box<Facts>>,
    _counted: Option<Arc<Reserved>>,
}

impl Record {
    /// Makes the record of an event whose proof is valid.
    pub fn verified(channel: &ChannelRef, verified: &Verified, lines: &mut Lines) -> Self {
        Self::proved(channel, verified.event(), verified.proof(), lines)
    }

    fn proved(channel: &ChannelRef, event: &Event, proof: &Proof, lines: &mut Lines) -> Self {
        let verification = Verification { proof: Some(proof), ..Verification::status(VERIFIED) };
        Self {
            digest: Some(proof.digest),
            workflow_id: Some(proof.workflow_id),
            signatures: Some((proof.signers.len(), proof.required)),
            ..Self::new(channel, event, &verification, lines)
        }
    }

    /// Makes the record of a notice. Notices are never signed, and the record is marked as unsigned.
    pub fn unsigned(channel: &ChannelRef, unsigned: &Unsigned, lines: &mut Lines) -> Self {
        Self::new(channel, unsigned.event(), &Verification::status(UNSIGNED), lines)
    }

    /// Makes a notice whose text says that it is a test of the sink `sink`. `id` is its event id and `at` its time.
    ///
    /// The notice cannot be mistaken for a real event: no real event has its type, and its channel id belongs to no
    /// channel.
    #[expect(clippy::missing_panics_doc, reason = "the event is well-formed")]
    pub fn of_test(sink: &str, id: Uuid, at: Timestamp) -> Self {
        let event = json!({
            "event_id": id,
            "headers": {"type": "channeld.test", "offset": 0, "proofs": []},
            "payload": {
                "test": true,
                "status": "test",
                "status_reason": format!("a test of the sink {sink}: nothing has happened"),
                "timestamp": at.as_second(),
            },
        });
        let event = Event::parse(event.to_string().into()).expect("the notice is a well-formed event");
        let channel = ChannelRef { name: "channeld-test".into(), id: ChannelId(Uuid::nil()) };
        Self::new(&channel, &event, &Verification::status(UNSIGNED), &mut Lines::default().received(at))
    }

    fn new(channel: &ChannelRef, event: &Event, verification: &Verification<'_>, lines: &mut Lines) -> Self {
        let received = lines.received.clone();
        let text = received.as_ref().map(|(_, text)| &**text);
        let (json, rendered, counted) =
            lines.write(|json| line::render(json, channel, &event.raw, Some(event), text, verification));
        Self {
            channel: channel.clone(),
            offset: event.raw.offset,
            event_id: event.raw.id,
            kind: event.kind.clone(),
            time: event.payload.timestamp,
            confidence: rendered.confidence,
            network: rendered.network,
            received: received.map(|(at, _)| at),
            digest: None,
            workflow_id: None,
            signatures: None,
            json,
            ranges: rendered.ranges,
            facts: OnceLock::new(),
            _counted: counted,
        }
    }

    /// Whether the event has a valid proof. An event without one is a notice, which is never signed.
    pub fn is_verified(&self) -> bool {
        self.digest.is_some()
    }

    /// The offset and id of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }

    /// The key for deduplication: the event's id, or its channel and offset if it has no id.
    pub fn key(&self) -> String {
        match self.event_id {
            Some(id) => id.to_string(),
            None => format!("{}:{}", self.channel.id, self.offset),
        }
    }

    /// Returns a copy that does not keep the batch's memory alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { json: Bytes::copy_from_slice(&self.json), facts: OnceLock::new(), _counted: None, ..self.clone() }
    }

    /// The service's JSON alone, on one line.
    pub fn event(&self) -> Bytes {
        self.json.slice(self.ranges.event.clone())
    }

    /// The JSON that the network signed, on one line. `None` without a proof, or if the signed text is not JSON.
    pub fn decoded(&self) -> Option<&[u8]> {
        self.ranges.decoded.clone().map(|decoded| &self.json[decoded])
    }

    /// The JSON object, with the proof if `include_proof` is set and the event is verified.
    fn data(&self, include_proof: bool) -> Bytes {
        if !include_proof || !self.is_verified() {
            return self.json.clone();
        }
        let open = &self.json[..self.json.len() - 1];
        [open, br#","proof":"#, &self.proof(), b"}"].concat().into()
    }

    /// The proof of a verified event as JSON. This parses the event.
    fn proof(&self) -> Vec<u8> {
        let event = Event::parse(self.event()).expect("the event was parsed before it was verified");
        let Proofs::One(proof) = event.proofs else { unreachable!("a verified event has one proof") };
        serde_json::to_vec(&proof).expect("a proof is made of texts")
    }

    /// The event's facts. The JSON is parsed only once per record.
    pub fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| Box::new(Facts::of(self)))
    }
}

/// Renders an event with any verdict, to show it to a person or a program. The result is never delivered.
pub fn verdict_json(channel: &ChannelRef, verdict: &Verdict) -> String {
    let (raw, event) = verdict.parts();
    let mut verification = Verification::status(verdict.name());
    match verdict {
        Verdict::Verified(verified) => verification.proof = Some(verified.proof()),
        Verdict::Rejected(_, reason) => verification.reason = Some(reason.name()),
        Verdict::Unsigned(_) | Verdict::Pending(_) => {}
    }
    let mut line = Vec::new();
    line::render(&mut line, channel, raw, event.as_ref(), None, &verification);
    // All parts are valid text, so the conversion loses nothing.
    String::from_utf8_lossy(&line).into_owned()
}

/// Returns the confidence and the name of the network that the record of this event has.
pub fn confidence_and_network(verified: &Verified) -> (Option<Confidence>, Option<&'static str>) {
    let signed = verified.event().payload.signed.as_deref().and_then(line::decoded);
    signed.map_or((None, None), |decoded| line::signed_members(&decoded))
}

/// Returns the JSON inside the signed text. Returns `None` if the text is not base64 of JSON. That is not an error,
/// because the proof covers the text itself, whether or not it contains JSON.
pub fn decode(signed: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(line::decoded(signed)?).ok()?).ok()
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
