//! The outcome of one input of `verify`.

use std::fmt;
use std::io::{self, Write};

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::same::same;
use crate::cli::shown::{self, Format};
use crate::event::{Event, EventId, Object, Offset, Proofs, RawEvent};
use crate::record;
use crate::verify::{Address, Verdict, Verifier};

/// The reason for a record whose own fields differ from its event.
const MISMATCH: &str = "record-mismatch";

/// A verdict on one input, as a program reads it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Outcome {
    event_id: Option<EventId>,
    status: &'static str,
    reason: Option<&'static str>,
    signers: Vec<Address>,
}

impl Outcome {
    /// Verifies an object: an event of the service, or a delivered record, alone or inside a CloudEvents event.
    ///
    /// An object with a member `event` is taken for a record, whatever else it has: a consumer would read that member. So is
    /// the `data` of one with a `specversion`.
    pub(super) fn of(json: &Bytes, verifier: &Verifier) -> Self {
        let Ok(object) = Object::read(json) else { return Self::malformed(None) };
        match (object.raw("specversion"), object.raw("data")) {
            (Ok(Some(_)), Ok(Some(data))) => of_cloud_event(&object, &json.slice_ref(data.get().as_bytes()), verifier),
            (Ok(_), Ok(_)) => Self::of_record(&object, json, verifier),
            _ => Self::malformed(None),
        }
    }

    fn of_record(object: &Object<'_>, json: &Bytes, verifier: &Verifier) -> Self {
        match object.raw("event") {
            Ok(None) => verify(json, verifier).1,
            Ok(Some(event)) => of_record(object, &json.slice_ref(event.get().as_bytes()), verifier),
            Err(_) => Self::malformed(None),
        }
    }

    /// The outcome of text that is no event, or of an event whose offset cannot be read.
    pub(super) fn malformed(event_id: Option<EventId>) -> Self {
        Self::rejected(event_id, "malformed")
    }

    fn rejected(event_id: Option<EventId>, reason: &'static str) -> Self {
        Self { event_id, status: "rejected", reason: Some(reason), signers: Vec::new() }
    }

    fn judged(event_id: Option<EventId>, verdict: &Verdict) -> Self {
        let (reason, signers) = match verdict {
            Verdict::Verified(verified) => (None, verified.proof().signers.clone()),
            Verdict::Rejected(_, reason) => (Some(reason.name()), Vec::new()),
            Verdict::Unsigned(_) | Verdict::Pending(_) => (None, Vec::new()),
        };
        Self { event_id, status: verdict.name(), reason, signers }
    }

    /// Writes one line; `number` is the input's place, from one.
    pub(super) fn write(&self, out: &mut impl Write, format: Format, number: u64) -> io::Result<()> {
        if format == Format::Json {
            let line = serde_json::to_string(self).expect("an outcome has text keys and no value that can fail");
            return writeln!(out, "{line}");
        }
        let id = shown::id(self.event_id);
        match self.reason {
            Some(reason) => writeln!(out, "{number:>8}  {:8}  {id:36}  {reason}", self.status),
            None => writeln!(out, "{number:>8}  {:8}  {id:36}  {} signers", self.status, self.signers.len()),
        }
    }
}

/// The verdict on a raw event, where its offset can be read, and the outcome.
fn verify(json: &Bytes, verifier: &Verifier) -> (Option<Verdict>, Outcome) {
    let Some(raw) = RawEvent::locate(json.clone()) else {
        let id = Object::read(json).ok().and_then(|object| object.get("event_id").ok().flatten());
        return (None, Outcome::malformed(id));
    };
    let id = raw.id;
    let verdict = verifier.judge(raw);
    let outcome = Outcome::judged(id, &verdict);
    (Some(verdict), outcome)
}

/// Verifies the record inside a CloudEvents event, and compares it with the event's own attributes.
fn of_cloud_event(envelope: &Object<'_>, data: &Bytes, verifier: &Verifier) -> Outcome {
    let Ok(record) = Object::read(data) else { return Outcome::malformed(None) };
    let outcome = Outcome::of_record(&record, data, verifier);
    let same = |name| {
        let (outer, inner) = (envelope.get::<String>(name), record.get::<String>(name));
        outer.is_ok() && (outer == Ok(None) || outer == inner)
    };
    let id = envelope.get::<String>("id");
    let same_id = id.is_ok_and(|id| outcome.event_id.is_none() || id == outcome.event_id.map(|id| id.to_string()));
    if same("type") && same("time") && same_id { outcome } else { Outcome::rejected(outcome.event_id, MISMATCH) }
}

/// Verifies the event inside a record, and compares it with the record's own fields.
fn of_record(record: &Object<'_>, event: &Bytes, verifier: &Verifier) -> Outcome {
    let (verdict, outcome) = verify(event, verifier);
    let contradicted = match &verdict {
        Some(Verdict::Verified(proved)) => {
            contradicts(record, proved.event(), proved.event().payload.signed.as_deref())
        }
        Some(Verdict::Unsigned(unsigned)) => contradicts(record, unsigned.event(), None),
        Some(Verdict::Pending(raw)) => {
            Event::parse(raw.json.clone()).is_ok_and(|event| contradicts(record, &event, None))
        }
        Some(Verdict::Rejected(..)) | None => false,
    };
    if contradicted { Outcome::rejected(outcome.event_id, MISMATCH) } else { outcome }
}

/// Whether a field that the record repeats from its event differs from it. An absent field does not differ.
fn contradicts(record: &Object<'_>, event: &Event, proved: Option<&str>) -> bool {
    let offset = record.get::<Offset>("offset").map(|offset| offset.is_none_or(|offset| offset == event.raw.offset));
    let id = record.get::<EventId>("event_id").map(|id| id.is_none() || id == event.raw.id);
    let kind = record.get::<String>("type").map(|kind| kind.is_none_or(|kind| kind == event.kind.as_ref()));
    let time = record.get::<String>("time");
    let time = time.map(|time| time.is_none() || time == event.payload.timestamp.and_then(record::rfc3339));
    let decoded =
        record.raw("decoded").map(|decoded| decoded.is_none_or(|decoded| is_what_was_signed(decoded, proved)));
    let proof = record.get::<Object<'_>>("proof").map(|proof| proof.is_none_or(|proof| is_its_proof(&proof, event)));
    ![offset, id, kind, time, decoded, proof].into_iter().all(|agrees| agrees == Ok(true))
}

/// Whether a proof that stands beside an event is the one in it.
fn is_its_proof(beside: &Object<'_>, event: &Event) -> bool {
    let Proofs::One(ocr) = &event.proofs else { return false };
    let text = |name, of: &str| beside.get::<String>(name).is_ok_and(|text| text.as_deref() == Some(of));
    let signatures = beside.get::<Vec<Option<Box<str>>>>("signatures");
    text("report", &ocr.report) && text("context", &ocr.context) && signatures == Ok(Some(ocr.signatures.clone()))
}

/// Whether `decoded` means the same as the JSON inside the signed text: a record may have been printed anew on its way.
fn is_what_was_signed(decoded: &RawValue, signed: Option<&str>) -> bool {
    let signed = signed.and_then(record::decode);
    signed.is_some_and(|signed| same(decoded.get(), signed.get()))
}

/// How many of each there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    verified: u64,
    unsigned: u64,
    pending: u64,
    rejected: u64,
}

impl Summary {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome.status {
            "verified" => self.verified += 1,
            "unsigned" => self.unsigned += 1,
            "pending" => self.pending += 1,
            _ => self.rejected += 1,
        }
    }

    pub(super) fn events(&self) -> u64 {
        self.verified + self.unsigned + self.pending + self.rejected
    }

    /// True without any input too.
    pub(super) fn all_verified(&self) -> bool {
        self.verified == self.events()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verified, unsigned, pending, rejected } = self;
        let events = self.events();
        write!(f, "{events} events: {verified} verified, {unsigned} unsigned, {pending} pending, {rejected} rejected")
    }
}
