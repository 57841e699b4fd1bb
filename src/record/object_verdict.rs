//! The verdict on an object from another program: a delivered record, or an event of the service.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::network::is_published;
use crate::{ChannelRef, verdict_json};
use proof::event::{ChannelId, EventId, Malformed, Object, Proofs, RawEvent};
use proof::verify::{Address, Verdict, Verifier};

/// The reason for a record whose own fields differ from its event.
const MISMATCH: &str = "record-mismatch";

/// Texts that are nested deeper than this are considered different, unless they are identical.
const MAX_DEPTH: usize = 128;

/// The verdict on one object, in the form that programs read.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ObjectVerdict {
    /// The event's id, if the object has one.
    pub event_id: Option<EventId>,
    /// The name of the verdict.
    pub status: &'static str,
    /// Why the object was rejected.
    pub reason: Option<&'static str>,
    /// The signers that count. Empty without a proof.
    pub signers: Vec<Address>,
}

impl ObjectVerdict {
    /// Verifies objects. Each is an event of the service or a delivered record, alone or inside a CloudEvents event.
    ///
    /// An object with a member `event` is treated as a record, whatever else it contains. The `data` of an object with
    /// a `specversion` is verified instead of the object. Both rules are necessary, because a consumer would read these
    /// members.
    #[expect(clippy::missing_panics_doc, reason = "each event has a verdict")]
    pub fn of_all(objects: &[Bytes], verifier: &Verifier) -> Vec<Self> {
        let located: Vec<_> = objects.iter().map(LocatedEvent::read).collect();
        let raw = located.iter().flatten().map(|located| located.raw.clone()).collect();
        let mut verdicts = verifier.verify_all(raw).into_iter();
        let mut outcome =
            |located: LocatedEvent<'_>| located.outcome(&verdicts.next().expect("a verdict for each event"));
        located.into_iter().map(|located| located.map_or_else(|rejected| rejected, &mut outcome)).collect()
    }

    /// Like [`of_all`](Self::of_all) for one object. Also returns the verdict on the event, unless the object has none.
    pub fn of(object: &Bytes, verifier: &Verifier) -> (Self, Option<Verdict>) {
        match LocatedEvent::read(object) {
            Err(rejected) => (rejected, None),
            Ok(located) => {
                let verdict = verifier.verify(located.raw.clone());
                (located.outcome(&verdict), Some(verdict))
            }
        }
    }

    fn rejected(event_id: Option<EventId>, reason: &'static str) -> Self {
        Self { event_id, status: "rejected", reason: Some(reason), signers: Vec::new() }
    }
}

/// An event to verify, and the record that contains it, if any.
struct LocatedEvent<'a> {
    raw: RawEvent,
    record: Option<Object<'a>>,
}

impl<'a> LocatedEvent<'a> {
    /// Finds the event in an object. Returns a rejection if the object has no event, or if the attributes of a CloudEvents
    /// event differ from its content.
    fn read(json: &'a Bytes) -> Result<Self, ObjectVerdict> {
        Self::find(json).unwrap_or_else(|_| Err(ObjectVerdict::rejected(None, "malformed")))
    }

    fn find(json: &'a Bytes) -> Result<Result<Self, ObjectVerdict>, Malformed> {
        let object = Object::read(json)?;
        let (object, envelope) = match (object.raw("specversion")?, object.raw("data")?) {
            (Some(_), Some(data)) => {
                let data = data.get().as_bytes();
                (Object::read(data)?, Some((object, data)))
            }
            _ => (object, None),
        };
        let within = envelope.as_ref().map_or(&json[..], |(_, data)| data);
        let inside = object.raw("event")?;
        let event = json.slice_ref(inside.map_or(within, |event| event.get().as_bytes()));
        let raw = RawEvent::locate(event.clone());
        let its_id = || Object::read(&event).and_then(|event| event.get("event_id")).unwrap_or_default();
        let event_id = raw.as_ref().map_or_else(its_id, |raw| raw.id);
        if envelope.is_some_and(|(envelope, _)| differs(&envelope, &object, event_id)) {
            return Ok(Err(ObjectVerdict::rejected(event_id, MISMATCH)));
        }
        let record = inside.is_some().then_some(object);
        Ok(raw.map(|raw| Self { raw, record }).ok_or_else(|| ObjectVerdict::rejected(event_id, "malformed")))
    }

    /// The event's verdict as an outcome, or a rejection if the record differs from the event.
    fn outcome(self, verdict: &Verdict) -> ObjectVerdict {
        let event_id = self.raw.id;
        let signers = match verdict {
            Verdict::Verified(verified) => verified.proof().signers.clone(),
            Verdict::Unsigned(_) | Verdict::Pending(_) => Vec::new(),
            Verdict::Rejected(_, reason) => return ObjectVerdict::rejected(event_id, reason.name()),
        };
        if self.record.is_some_and(|record| contradicts(&record, verdict)) {
            return ObjectVerdict::rejected(event_id, MISMATCH);
        }
        ObjectVerdict { event_id, status: verdict.name(), reason: None, signers }
    }
}

/// Whether the attributes of a CloudEvents event differ from the object inside it.
fn differs(envelope: &Object<'_>, data: &Object<'_>, event_id: Option<EventId>) -> bool {
    let id = envelope.get::<String>("id");
    let same_id = id.is_ok_and(|id| event_id.is_none() || id == event_id.map(|id| id.to_string()));
    let repeated = ["type", "time", "confidence", "network"];
    !(same_id && repeated.into_iter().all(|name| agrees(envelope, data, name)))
}

/// Whether a field that the record repeats from its event differs from the value that channeld would write. Values are
/// compared by meaning, because a record may have been reformatted since it was delivered.
fn contradicts(record: &Object<'_>, verdict: &Verdict) -> bool {
    let channel = ChannelRef { name: "".into(), id: ChannelId(Uuid::nil()) };
    let expected = verdict_json(&channel, verdict);
    let Ok(expected) = Object::read(expected.as_bytes()) else { return true };
    let fields = ["offset", "event_id", "type", "time", "confidence", "decoded"];
    let proof = record.get::<Object<'_>>("proof").map(|proof| proof.is_none_or(|proof| is_its_proof(&proof, verdict)));
    !fields.into_iter().all(|name| agrees(record, &expected, name))
        || is_of_another_network(record, &expected)
        || proof != Ok(true)
}

/// Whether the record names a published network that is not the network of its event. A name that is not published is no
/// contradiction, because another version of channeld may know more networks.
fn is_of_another_network(record: &Object<'_>, expected: &Object<'_>) -> bool {
    let Ok(named) = record.get::<String>("network") else { return true };
    let Ok(expected) = expected.get::<String>("network") else { return true };
    named.is_some_and(|named| is_published(&named) && Some(named) != expected)
}

/// Whether a member is absent, or has the same meaning as the member of that name in another object.
fn agrees(repeating: &Object<'_>, repeated: &Object<'_>, name: &'static str) -> bool {
    match (repeating.raw(name), repeated.raw(name)) {
        (Ok(None), _) => true,
        (Ok(Some(one)), Ok(Some(other))) => same(one.get(), other.get()),
        _ => false,
    }
}

fn is_its_proof(beside: &Object<'_>, verdict: &Verdict) -> bool {
    let (_, Some(event)) = verdict.parts() else { return false };
    let Proofs::One(ocr) = &event.proofs else { return false };
    let text = |name, of: &str| beside.get::<String>(name).is_ok_and(|text| text.as_deref() == Some(of));
    let signatures = beside.get::<Vec<Option<Box<str>>>>("signatures");
    text("report", &ocr.report) && text("context", &ocr.context) && signatures == Ok(Some(ocr.signatures.clone()))
}

/// The meaning of a JSON text, as far as all readers agree on it. Duplicate members are kept, because readers differ in
/// which one they use. Numbers are kept as texts, because a number may exceed the range of every number type.
#[derive(PartialEq)]
enum JsonMeaning<'a> {
    Object(Vec<(String, JsonMeaning<'a>)>),
    Array(Vec<JsonMeaning<'a>>),
    Text(String),
    /// A number or a literal, as it is written.
    Plain(&'a str),
}

/// Compares two JSON texts that have no whitespace around them.
fn same(one: &str, other: &str) -> bool {
    one == other || meaning(one, MAX_DEPTH).is_some_and(|one| Some(one) == meaning(other, MAX_DEPTH))
}

/// `None` if the text is not JSON, or is nested deeper than `depth`.
fn meaning(json: &str, depth: usize) -> Option<JsonMeaning<'_>> {
    let depth = depth.checked_sub(1)?;
    Some(match json.as_bytes().first()? {
        b'{' => {
            let object = Object::read(json.as_bytes()).ok()?;
            let mut members: Vec<_> = object.members().collect();
            // A stable sort: members with the same name keep their order.
            members.sort_by_key(|&(name, _)| name);
            let members = members.into_iter();
            let members = members.map(|(name, value)| Some((name.to_owned(), meaning(value.get(), depth)?)));
            JsonMeaning::Object(members.collect::<Option<_>>()?)
        }
        b'[' => {
            let items = serde_json::from_str::<Vec<&RawValue>>(json).ok()?;
            JsonMeaning::Array(items.into_iter().map(|item| meaning(item.get(), depth)).collect::<Option<_>>()?)
        }
        b'"' => JsonMeaning::Text(serde_json::from_str(json).ok()?),
        _ => JsonMeaning::Plain(json),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unambiguously_equal_json_is_equal() {
        for (one, other, expected) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [ true , null ] , "a" : 1 }"#, true),
            (r#"{"é":"ü"}"#, r#"{"\u00e9":"\u00fc"}"#, true),
            (r#"{"a":1}"#, r#"{"a":1.0}"#, false),
            ("123456789012345678901234567890", "123456789012345678901234567891", false),
            (r#"{"a":1}"#, r#"{"a":1,"a":1}"#, false),
            (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#, false),
            (r#"{"a":1}"#, r#"{"A":1}"#, false),
            ("[1,2]", "[2,1]", false),
            ("[1]", "[1,1]", false),
            (r#""1""#, "1", false),
        ] {
            assert_eq!(same(one, other), expected, "{one} {other}");
        }
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        assert!(same(&deep, &deep), "identical texts are equal at any depth");
        assert!(!same(&deep, &format!("{deep} ")), "too deep to be compared");
    }
}
