//! Verifies an event that the feed has sent.

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::look::tail::verdict_event::{event_line, record_of, rejected_line};
use crate::cli::terminal::event_line::EventLine;
use proof::event::{EventId, Malformed, Object, Offset};
use proof::verify::Verifier;
use record::{ChannelRef, ObjectVerdict, Readable, Record};

/// The reason for a record whose status is not the verdict on its event.
const MISMATCH: &str = "record-mismatch";

/// The reason for an object without a readable event.
const MALFORMED: &str = "malformed";

/// An event of the feed, with the verdict of this command.
#[derive(Debug)]
pub(super) struct ReceivedEvent {
    pub(super) line: EventLine,
    /// One line: the object as it was received. An object that is rejected is not printed: another object names the event and the reason.
    pub(super) json: String,
    /// `None` if the event is rejected.
    pub(super) record: Option<Record>,
    /// Why the event is rejected.
    pub(super) reason: Option<&'static str>,
}

impl ReceivedEvent {
    pub(super) fn of(channel: &ChannelRef, verifier: &Verifier, position: i64, object: &RawValue) -> Self {
        let object = object.get();
        let bytes = Bytes::copy_from_slice(object.as_bytes());
        let (outcome, verdict) = ObjectVerdict::of(&bytes, verifier);
        let is_claimed = || claimed_status(&bytes).is_ok_and(|status| status.is_none_or(|it| it == outcome.status));
        let reason = outcome.reason.or_else(|| (!is_claimed()).then_some(MISMATCH));
        let at_position = |line: EventLine| EventLine { position: Some(position), ..line };
        match (verdict, reason) {
            (Some(verdict), None) => Self {
                line: at_position(event_line(channel, &verdict)),
                // A line break can only be between two members.
                json: object.replace(['\r', '\n'], " "),
                record: record_of(channel, &verdict),
                reason: None,
            },
            (verdict, reason) => {
                let reason = reason.unwrap_or(MALFORMED);
                let line = match &verdict {
                    Some(verdict) => rejected_line(channel, verdict, reason),
                    None => unreadable_line(channel, &bytes, reason),
                };
                let event = (line.parts.offset, outcome.event_id);
                let json = rejected_json(channel, position, event, reason);
                Self { line: at_position(line), json, record: None, reason: Some(reason) }
            }
        }
    }
}

/// The status that a record states for its event. `None` for an event without a record.
fn claimed_status(object: &[u8]) -> Result<Option<String>, Malformed> {
    let object = Object::read(object)?;
    let record = match (object.raw("specversion")?, object.raw("data")?) {
        (Some(_), Some(data)) => Object::read(data.get().as_bytes())?,
        _ => object,
    };
    let Some(verification) = record.get::<Object<'_>>("verification")? else { return Ok(None) };
    Ok(verification.text("status")?.map(Into::into))
}

fn rejected_json(
    channel: &ChannelRef,
    position: i64,
    (offset, event_id): (Offset, Option<EventId>),
    reason: &str,
) -> String {
    json!({
        "position": position,
        "channel": &*channel.name,
        "channel_id": channel.id,
        "offset": offset,
        "event_id": event_id,
        "verification": { "status": "rejected", "reason": reason },
    })
    .to_string()
}

fn unreadable_line(channel: &ChannelRef, object: &[u8], reason: &str) -> EventLine {
    let offset = Object::read(object).and_then(|object| object.get("offset")).ok().flatten().and_then(Offset::new);
    let parts = Readable {
        verdict: "rejected".into(),
        channel: channel.name.to_string(),
        offset: offset.unwrap_or(Offset::ZERO),
        time: String::new(),
        kind: String::new(),
        what: reason.to_owned(),
        proof: String::new(),
        confidence: String::new(),
    };
    EventLine { parts, position: None, is_late: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::prove::verify::tests::{recorded, verifier};
    use proof::event::{ChannelId, RawEvent};
    use proof::verify::Verdict;
    use record::Lines;
    use serde_json::Value;
    use uuid::Uuid;

    fn channel() -> ChannelRef {
        ChannelRef { name: "settlements".into(), id: ChannelId(Uuid::from_u128(7)) }
    }

    /// The record of an event that is verified.
    fn record() -> Value {
        let raw = RawEvent::locate(recorded().event.to_string().into()).unwrap();
        let Verdict::Verified(verified) = verifier().verify(raw) else { panic!("it is verified") };
        serde_json::from_slice(&Record::verified(&channel(), &verified, &mut Lines::of(1)).json).unwrap()
    }

    fn received(object: &Value) -> ReceivedEvent {
        let object = RawValue::from_string(object.to_string()).unwrap();
        ReceivedEvent::of(&channel(), &verifier(), 3, &object)
    }

    #[test]
    fn a_valid_record_is_shown_as_it_was_received() {
        let mut object = record();
        object["position"] = 3.into();
        let shown = received(&object);
        assert_eq!((&*shown.line.parts.verdict, shown.line.position, shown.reason), ("verified", Some(3), None));
        assert!(shown.record.is_some_and(|record| record.is_verified()));
        assert_eq!(serde_json::from_str::<Value>(&shown.json).unwrap(), object);
        let lines = RawValue::from_string(serde_json::to_string_pretty(&object).unwrap()).unwrap();
        let one_line = ReceivedEvent::of(&channel(), &verifier(), 3, &lines).json;
        assert!(!one_line.contains('\n'), "{one_line}");
        assert_eq!(serde_json::from_str::<Value>(&one_line).unwrap(), object);
    }

    #[test]
    fn an_event_that_is_not_valid_is_rejected_and_its_content_is_not_shown() {
        let change = |change: fn(&mut Value)| {
            let mut object = record();
            change(&mut object);
            object
        };
        for (object, reason) in [
            (change(|object| object["decoded"] = json!({ "name": "forged" })), MISMATCH),
            (change(|object| object["verification"]["status"] = "unsigned".into()), MISMATCH),
            (change(|object| object["verification"] = 7.into()), MISMATCH),
            (change(|object| object["event"]["headers"]["proofs"] = json!([])), MISMATCH),
            (change(|object| object["event"] = json!({})), MALFORMED),
            (json!({ "position": 3 }), MALFORMED),
            (json!({ "specversion": "1.0", "id": "x", "data": record() }), MISMATCH),
        ] {
            let ReceivedEvent { line, json, record, reason: why } = received(&object);
            assert_eq!((&*line.parts.verdict, &*line.parts.what), ("rejected", reason), "{object}");
            assert_eq!((line.position, why, record.is_none()), (Some(3), Some(reason), true));
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json["verification"], json!({ "status": "rejected", "reason": reason }));
            assert_eq!((&json["position"], &json["channel"]), (&3.into(), &"settlements".into()));
            assert!(json.get("decoded").is_none() && json.get("event").is_none(), "{json}");
        }
    }

    #[test]
    fn an_event_without_a_record_has_only_the_verdict_of_this_command() {
        let shown = received(&recorded().event);
        assert_eq!(shown.line.parts.verdict, "verified");
    }
}
