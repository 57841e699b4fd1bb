//! The outcome of one input of `verify`.

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use super::same::same;
use crate::cli::shown;
use crate::event::{ChannelId, EventId, Malformed, Object, Proofs, RawEvent};
use crate::record::{self, ChannelRef};
use crate::verify::{Address, Verdict, Verifier};

/// The reason for a record whose own fields differ from its event.
const MISMATCH: &str = "record-mismatch";

/// A verdict on one input, as a program reads it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Outcome {
    event_id: Option<EventId>,
    pub(super) status: &'static str,
    reason: Option<&'static str>,
    signers: Vec<Address>,
}

impl Outcome {
    /// Verifies an object: an event of the service, or a delivered record, alone or inside a CloudEvents event.
    ///
    /// An object with a member `event` is taken for a record, whatever else it has: a consumer would read that member. So is
    /// the `data` of one with a `specversion`.
    pub(super) fn of(json: &Bytes, verifier: &Verifier) -> Self {
        of_object(json, verifier).unwrap_or_else(|_| Self::rejected(None, "malformed"))
    }

    fn rejected(event_id: Option<EventId>, reason: &'static str) -> Self {
        Self { event_id, status: "rejected", reason: Some(reason), signers: Vec::new() }
    }

    /// The outcome as a line for people.
    pub(super) fn line(&self) -> String {
        let said = self.reason.map_or_else(|| format!("{} signers", self.signers.len()), str::to_owned);
        format!("{:8}  {:36}  {said}", self.status, shown::id(self.event_id))
    }
}

fn of_object(json: &Bytes, verifier: &Verifier) -> Result<Outcome, Malformed> {
    let object = Object::read(json)?;
    match (object.raw("specversion")?, object.raw("data")?) {
        (Some(_), Some(data)) => of_cloud_event(&object, &json.slice_ref(data.get().as_bytes()), verifier),
        _ => of_record(&object, json, verifier),
    }
}

/// Verifies the record inside a CloudEvents event, and compares it with the event's own attributes.
fn of_cloud_event(envelope: &Object<'_>, data: &Bytes, verifier: &Verifier) -> Result<Outcome, Malformed> {
    let record = Object::read(data)?;
    let outcome = of_record(&record, data, verifier)?;
    let id = envelope.get::<String>("id");
    let same_id = id.is_ok_and(|id| outcome.event_id.is_none() || id == outcome.event_id.map(|id| id.to_string()));
    let same = same_id && agrees(envelope, &record, "type") && agrees(envelope, &record, "time");
    Ok(if same { outcome } else { Outcome::rejected(outcome.event_id, MISMATCH) })
}

/// Verifies an event, or the event inside a record, and compares that with the record's own fields.
fn of_record(object: &Object<'_>, json: &Bytes, verifier: &Verifier) -> Result<Outcome, Malformed> {
    let inside = object.raw("event")?;
    let json = inside.map_or_else(|| json.clone(), |event| json.slice_ref(event.get().as_bytes()));
    let Some(raw) = RawEvent::locate(json.clone()) else {
        let id = Object::read(&json).and_then(|event| event.get("event_id"));
        return Ok(Outcome::rejected(id.unwrap_or_default(), "malformed"));
    };
    let (event_id, verdict) = (raw.id, verifier.judge(raw));
    let signers = match &verdict {
        Verdict::Verified(verified) => verified.proof().signers.clone(),
        Verdict::Unsigned(_) | Verdict::Pending(_) => Vec::new(),
        Verdict::Rejected(_, reason) => return Ok(Outcome::rejected(event_id, reason.name())),
    };
    if inside.is_some() && contradicts(object, &verdict) {
        return Ok(Outcome::rejected(event_id, MISMATCH));
    }
    Ok(Outcome { event_id, status: verdict.name(), reason: None, signers })
}

/// Whether a field that the record repeats from its event differs from what would be written of it. An absent field does
/// not differ. A record may have been printed anew on its way.
fn contradicts(record: &Object<'_>, verdict: &Verdict) -> bool {
    let channel = ChannelRef { name: "".into(), id: ChannelId(Uuid::nil()) };
    let expected = record::shown(&channel, verdict);
    let Ok(expected) = Object::read(expected.as_bytes()) else { return true };
    let fields = ["offset", "event_id", "type", "time", "decoded"];
    let proof = record.get::<Object<'_>>("proof").map(|proof| proof.is_none_or(|proof| is_its_proof(&proof, verdict)));
    !fields.into_iter().all(|name| agrees(record, &expected, name)) || proof != Ok(true)
}

/// Whether a member that is there means what another object has under that name.
fn agrees(repeating: &Object<'_>, repeated: &Object<'_>, name: &'static str) -> bool {
    match (repeating.raw(name), repeated.raw(name)) {
        (Ok(None), _) => true,
        (Ok(Some(one)), Ok(Some(other))) => same(one.get(), other.get()),
        _ => false,
    }
}

/// Whether a proof that stands beside an event is the one in it.
fn is_its_proof(beside: &Object<'_>, verdict: &Verdict) -> bool {
    let (_, Some(event)) = shown::parts(verdict) else { return false };
    let Proofs::One(ocr) = event.proofs() else { return false };
    let text = |name, of: &str| beside.get::<String>(name).is_ok_and(|text| text.as_deref() == Some(of));
    let signatures = beside.get::<Vec<Option<Box<str>>>>("signatures");
    text("report", &ocr.report) && text("context", &ocr.context) && signatures == Ok(Some(ocr.signatures.clone()))
}
