//! The delivered record: one JSON object on one line, and the other shapes that a sink may want it in.
//!
//! # Invariants
//!
//! * **Bytes survive.** `event` is the service's JSON and `decoded` the signed JSON, byte for byte, numbers of any size
//!   included. One thing only is changed: a line break between two tokens becomes a space, so that a record is a line.
//! * **`decoded` is signed.** It is there only in a verified record: without a proof it would be the service's word in
//!   the network's clothes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::event::{ChannelId, Event, EventId, EventType, Offset};
use crate::verify::{Unsigned, Verdict, Verified};

mod facts;
mod filter;
mod line;
mod lines;
mod shape;

pub use facts::{Facts, Field};
pub use filter::{Filter, Rule};
pub use lines::Lines;
pub use shape::{Format, Message, Shape};

use line::Verification;

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
    channel: ChannelRef,
    offset: Offset,
    event_id: Option<EventId>,
    kind: EventType,
    /// Unix seconds.
    time: Option<i64>,
    verified: bool,
    json: Bytes,
    /// Where the decoded content stands in `json`.
    decoded: Option<Range<usize>>,
    /// Where the event stands in `json`.
    event: Range<usize>,
}

impl Record {
    /// The record of an event whose proof holds.
    #[must_use]
    pub fn verified(channel: &ChannelRef, verified: &Verified, lines: &mut Lines) -> Self {
        Self::new(channel, verified.event(), Verification::verified(verified), lines)
    }

    /// The record of a notice that nobody signs, marked as such.
    #[must_use]
    pub fn unsigned(channel: &ChannelRef, unsigned: &Unsigned, lines: &mut Lines) -> Self {
        Self::new(channel, unsigned.event(), Verification::status(line::UNSIGNED), lines)
    }

    fn new(channel: &ChannelRef, event: &Event, verification: Verification<'_>, lines: &mut Lines) -> Self {
        let verified = verification.is_verified();
        let (json, parts) = lines.write(|json| line::render(json, channel, event.raw(), Some(event), verification));
        Self {
            channel: channel.clone(),
            offset: event.offset(),
            event_id: event.id(),
            kind: event.kind().clone(),
            time: event.timestamp(),
            verified,
            json,
            decoded: parts.decoded,
            event: parts.event,
        }
    }

    /// Its channel.
    #[must_use]
    pub fn channel(&self) -> &ChannelRef {
        &self.channel
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

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> &EventType {
        &self.kind
    }

    /// When it happened, Unix seconds: the service's unsigned word.
    #[must_use]
    pub fn time(&self) -> Option<i64> {
        self.time
    }

    /// Whether it was proved; otherwise it is a notice that nobody signs.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// What a consumer deduplicates on: the event's id, or else its channel and offset.
    #[must_use]
    pub fn key(&self) -> String {
        match self.event_id {
            Some(id) => id.to_string(),
            None => format!("{}:{}", self.channel.id, self.offset),
        }
    }

    /// The JSON object, on one line, without the line break at its end.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The service's JSON alone, on one line.
    #[must_use]
    pub fn event(&self) -> Bytes {
        self.json.slice(self.event.clone())
    }

    /// The JSON that the network signed, on one line; `None` without a proof, and where what is signed is no JSON.
    fn decoded(&self) -> Option<&[u8]> {
        self.decoded.clone().map(|decoded| &self.json[decoded])
    }

    /// What it can be told apart by.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts::of(self)
    }
}

/// The record of an event with any verdict, for showing it to a person or a program: never delivered.
#[must_use]
pub fn shown(channel: &ChannelRef, verdict: &Verdict) -> String {
    let (raw, event, verification) = match verdict {
        Verdict::Verified(proved) => {
            (proved.event().raw(), Some(proved.event().clone()), Verification::verified(proved))
        }
        Verdict::Unsigned(notice) => {
            (notice.event().raw(), Some(notice.event().clone()), Verification::status(line::UNSIGNED))
        }
        Verdict::Pending(raw) => (raw, Event::parse(raw.json.clone()).ok(), Verification::status(verdict.name())),
        Verdict::Rejected(raw, reason) => {
            (raw, Event::parse(raw.json.clone()).ok(), Verification::rejected(reason.name()))
        }
    };
    let mut line = Vec::new();
    line::render(&mut line, channel, raw, event.as_ref(), verification);
    // Its parts are texts: nothing is lost.
    String::from_utf8_lossy(&line).into_owned()
}

/// The JSON inside the signed text; `None` where the text is not base64 of JSON, which is no fault: the proof is over
/// the text.
#[must_use]
pub fn decode(signed: &str) -> Option<Box<RawValue>> {
    let mut json = Vec::new();
    line::append_decoded(&mut json, signed)?;
    RawValue::from_string(String::from_utf8(json).ok()?).ok()
}

/// `None` for a time that no calendar here has: the event's own field still says it.
pub(crate) fn rfc3339(unix_seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(unix_seconds).ok().map(|time| time.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use uuid::Uuid;

    use super::*;

    fn channel() -> ChannelRef {
        ChannelRef { name: "c".into(), id: ChannelId(Uuid::from_u128(1)) }
    }

    fn event(kind: &str, proofs: &str, payload: &str) -> Event {
        let id = Uuid::from_u128(2);
        let headers = format!(r#"{{"type":"{kind}","offset":5,"proofs":[{proofs}]}}"#);
        Event::parse(format!(r#"{{"event_id":"{id}","headers":{headers},"payload":{payload}}}"#).into()).unwrap()
    }

    fn assembled(event: &Event, status: &'static str) -> Record {
        Record::new(&channel(), event, Verification::status(status), &mut Lines::default())
    }

    /// The record of a notice of that kind.
    pub(crate) fn notice(kind: &str, payload: &str) -> Record {
        assembled(&event(kind, "", payload), line::UNSIGNED)
    }

    /// The record of a `watcher.event` as if it were proved, with members of its payload, and with what is signed.
    pub(crate) fn proved(members: &str, signed: &str) -> Record {
        let proof = r#"{"alg":"a","ocr_report":"0x01","ocr_context":"0x02","signatures":["0x03","0x04"]}"#;
        let payload = format!(r#"{{{members},"verifiable_event":"{}"}}"#, STANDARD.encode(signed));
        let event = event("watcher.event", proof, &payload);
        assembled(&event, line::VERIFIED)
    }

    #[test]
    fn the_event_stands_in_its_record_byte_for_byte_but_for_line_breaks() {
        let json = "{\"headers\":{\"type\":\"a\",\"offset\":5},\n\"payload\":{\"n\":1.50}}";
        let event = Event::parse(json.into()).unwrap();
        let record = assembled(&event, line::UNSIGNED);
        assert_eq!(record.event(), json.replace('\n', " "));
        assert_eq!(record.key(), "00000000-0000-0000-0000-000000000001:5", "without an id, its place");
    }

    #[test]
    fn what_is_signed_stands_in_its_record_on_one_line_without_the_space_around_it() {
        for (signed, decoded) in [
            ("{\"n\":1.50}", Some("{\"n\":1.50}")),
            ("\n {\"n\":\r\n1.50}\t\n", Some("{\"n\":  1.50}")),
            ("{\"n\":\"a\nb\"}", None),
            ("{\"n\":1.50", None),
            ("", None),
        ] {
            let record = proved(r#""watcher_id":"W""#, signed);
            let member = decoded.map(|decoded| format!(r#","decoded":{decoded}"#)).unwrap_or_default();
            let verification = r#""type":"watcher.event","verification":{"status":"verified"}"#;
            let expected = format!("{verification}{member},\"event\":{}}}", text(&record.event()));
            assert!(text(record.json()).ends_with(&expected), "{}", text(record.json()));
        }
    }

    #[test]
    fn what_stands_beside_the_signed_text_of_its_kind_is_not_taken_for_signed() {
        let [forged, honest] = ["forged", "honest"].map(|name| STANDARD.encode(format!(r#"{{"service":"{name}"}}"#)));
        let payload = format!(r#"{{"verifiable_event":"{forged}","verifiable_result":"{honest}"}}"#);
        let event = event("query.status", "", &payload);
        let record = assembled(&event, line::VERIFIED);
        assert_eq!(record.facts().get(Field::Service), Some("honest"));
    }

    fn text(json: &[u8]) -> &str {
        std::str::from_utf8(json).unwrap()
    }
}
