//! Verifies events. Only this module can make a [`Verified`] event.
//!
//! An event is verified if at least `min_required_signatures` distinct members of the signer set signed a report that
//! names the expected workflow owner and the hash of the event's signed text. The steps and their order follow
//! spec/wire.md, "Verification". `tests/vectors.rs` compares the verdicts with the recorded verdicts of the reference
//! implementation.
//!
//! # Invariants
//!
//! * **Only here.** [`Verified`] and [`Unsigned`] have private fields and are constructed only in this module, so every
//!   event that reaches a sink has passed the verifier.
//! * **Never laxer than the reference.** This module is stricter in four ways, and each is explained where the code
//!   decides it: text without `0x` is not accepted as hex, a report ends with the hash, every item of `proofs` counts,
//!   and JSON is malformed if readers could read it differently or not at all.
//! * **Pure.** No I/O, no clock, no configuration file: the same event and [`Verifier`] give the same [`Verdict`].
//! * **Known signers change nothing.** Known keys, their precomputed tables and the learned order of signatures affect
//!   how long a verdict takes. They never affect the verdict itself.
//!
//! # How signatures are checked
//!
//! A signature does not name its key. *Recovery*, with k256's own operations, computes the key from the signature.
//! Recovery is the largest part of a verdict's cost. A network has few signers, and they are always the same. The
//! feature `fast` makes use of this:
//!
//! 1. `prepared` keeps a key that was recovered often enough. [`Verifier::prepare`] computes the key's `multiples`, a
//!    table that turns a product into the sum of some thirty points.
//! 2. From then on `batch` tests whether the member with this key made a signature. The test is the equation that
//!    recovery solves, with the member's key inserted. Members are tested one after another, in the `order` in which
//!    the network lists its signatures. The proofs of many events are tested at the same time, so that `sums` adds many
//!    points at once.
//! 3. If a network has many signers and lists them in no order, a signature would need many tests. On a processor with AVX2,
//!    `keys` then computes the keys of many signatures at once. A member made a signature if the computed key is the
//!    member's known key.
//! 4. If no member is found, k256 recovers the signature's key. Only this finds signatures by keys outside the set, a
//!    second signature of a member, and malformed signatures.
//!
//! A positive result can be trusted. A member's key comes from k256's recovery. `batch` explains why recovery would find the
//! same key again if a test is positive, and `keys` computes what recovery computes. A wrong digit in the arithmetic gives
//! another point, which is no member's key; the comparison with k256 guards against systematic mistakes. A negative result
//! is never a verdict. Without the feature every key is recovered. The tests with the reference's vectors, with mutated
//! proofs and against k256 run in both builds.

use serde::Serialize;

use crate::event::{Event, OcrProof, Offset, Proofs, RawEvent, UnknownValue};

#[cfg(feature = "fast")]
mod fast;
mod hash;
mod members;
mod reason;
mod recovery;
mod report;
mod signature;
mod signers;

pub use hash::{Address, Hash, keccak256};
pub use reason::{Reason, ReasonKind};
pub use report::{OCR_REPORT_LENGTH, Report, event_hash, signed_digest, workflow_owner};
pub use signers::{SignerSet, SignerSetError};

use recovery::{SignatureCount, Signatures};
use signature::{RecoverableSignature, address_of};

/// The result of verifying an event.
#[derive(Clone, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    /// The proof is valid.
    Verified(Verified),
    /// A notice: an event without signed text, of a type that does not always have signed text.
    Unsigned(Unsigned),
    /// A proof is expected but has not arrived.
    Pending(RawEvent),
    /// The proof is not valid, or the record is malformed.
    Rejected(RawEvent, Reason),
}

/// An event with a valid proof.
#[derive(Clone, Debug)]
pub struct Verified {
    event: Event,
    proof: Proof,
}

impl Verified {
    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The verified proof.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Splits this into the event as it arrived and the proof.
    pub fn into_parts(self) -> (RawEvent, Proof) {
        (self.event.raw, self.proof)
    }
}

/// A notice from the service. Notices are not signed.
#[derive(Clone, Debug)]
pub struct Unsigned {
    event: Event,
}

impl Unsigned {
    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

/// The facts that a valid proof establishes. A record shows them as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The hash that was signed: the report with its context. Two proofs with the same digest are the same proof, no matter
    /// which members signed it and how the signatures are written. A new proof of the same text has another digest.
    pub digest: Hash,
    /// The members of the signer set whose signatures were counted, in the order of the proof.
    pub signers: Vec<Address>,
    /// The number of required signatures.
    pub required: usize,
    /// The number of signatures by keys outside the signer set that were read before the threshold was reached.
    #[serde(skip)]
    pub strangers: u32,
    /// The hash of the signed text, as named in the report.
    pub event_hash: Hash,
    /// The owner that the report names.
    pub workflow_owner: Address,
    /// The workflow that the report names. Each watcher has its own workflow.
    pub workflow_id: Hash,
    /// The run of the workflow that made the report.
    pub execution_id: Hash,
}

/// Verifies events of one workflow owner against one signer set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// The signers that count.
    pub signers: SignerSet,
    /// The workflow owner that each report must name.
    pub workflow_owner: Address,
}

impl Verifier {
    /// Verifies events of `workflow_owner` against `signers`.
    pub fn new(signers: SignerSet, workflow_owner: Address) -> Self {
        Self { signers, workflow_owner }
    }

    /// Whether [`prepare`](Self::prepare) has work to do. Calling this is very cheap.
    pub fn wants_preparing(&self) -> bool {
        self.signers.known.prepared.wants_preparing()
    }

    /// Precomputes tables for the signers that have signed often, so that their signatures are checked faster. No verdict
    /// depends on the tables. A table takes some milliseconds per signer, once. Must be called off the async threads.
    /// Further events can be verified at the same time.
    pub fn prepare(&self) {
        self.signers.known.prepared.prepare();
    }

    /// Verifies one record. For many records, [`verify_all`](Self::verify_all) takes much less time.
    pub fn verify(&self, raw: RawEvent) -> Verdict {
        self.verify_all(vec![raw]).remove(0)
    }

    /// Verifies records independently and returns one verdict for each. Recovers at most one key per signature, up to the
    /// threshold. Must be called off the async threads. Call [`prepare`](Self::prepare) from time to time.
    pub fn verify_all(&self, records: Vec<RawEvent>) -> Vec<Verdict> {
        self.verify_noting(records, |_, _| ())
    }

    /// Like [`verify_all`](Self::verify_all). Calls `note` with each value that this version does not know, and with the offset
    /// of its event, whatever the verdict on the event is.
    pub fn verify_noting(&self, records: Vec<RawEvent>, mut note: impl FnMut(Offset, &UnknownValue)) -> Vec<Verdict> {
        let read: Vec<_> = records.into_iter().map(|raw| self.read(raw, &mut note)).collect();
        let proofs: Vec<_> = read.iter().filter_map(PartialVerdict::signatures).collect();
        let mut counted = self.signers.count(&proofs).into_iter();
        read.into_iter().map(|read| read.verdict(&self.signers, &mut counted)).collect()
    }

    /// Checks everything except the signatures.
    fn read(&self, raw: RawEvent, note: &mut impl FnMut(Offset, &UnknownValue)) -> PartialVerdict {
        let event = match Event::parse(raw.json.clone()) {
            Ok(event) => event,
            Err(malformed) => return PartialVerdict::Verdict(Verdict::Rejected(raw, malformed.into())),
        };
        event.unknown.iter().for_each(|value| note(raw.offset, value));
        PartialVerdict::Verdict(match (event.can_be_proved(), &event.proofs) {
            (true, Proofs::None) if event.proof_is_due() => Verdict::Pending(raw),
            (false, _) | (true, Proofs::None) => Verdict::Unsigned(Unsigned { event }),
            (true, Proofs::Unreadable) => Verdict::Rejected(raw, Reason::MalformedProof),
            (true, Proofs::Many) => Verdict::Rejected(raw, Reason::MultipleProofs),
            (true, Proofs::One(ocr)) => match self.bound(&event, ocr) {
                Ok(proof) => return PartialVerdict::Signed(event, proof),
                Err(reason) => Verdict::Rejected(raw, reason),
            },
        })
    }

    /// Returns the facts that the report states about the event, or the reason if the report does not name this event and the
    /// expected owner. The signatures are not checked yet.
    fn bound(&self, event: &Event, ocr: &OcrProof) -> Result<Proof, Reason> {
        let report_bytes = hash::bytes_of(&ocr.report).ok_or(Reason::MalformedReport)?;
        let report = Report::parse(&report_bytes).ok_or(Reason::MalformedReport)?;
        let context = hash::bytes_of(&ocr.context).ok_or(Reason::MalformedContext)?;
        let event_hash = event_hash(event.payload.signed.as_deref().ok_or(Reason::NothingSigned)?);
        if report.workflow_owner != self.workflow_owner {
            return Err(Reason::WrongOwner { expected: self.workflow_owner, found: report.workflow_owner });
        }
        // Stricter than the reference, which compares only the report's last 32 bytes. Here the hash must follow the header
        // directly.
        if report.payload != event_hash.0 {
            return Err(Reason::EventHashMismatch);
        }
        Ok(Proof {
            digest: signed_digest(&report_bytes, &context),
            signers: Vec::new(),
            required: self.signers.required,
            strangers: 0,
            event_hash,
            workflow_owner: self.workflow_owner,
            workflow_id: report.workflow_id,
            execution_id: report.execution_id,
        })
    }
}

/// A proof split into its parts, for a person to inspect. This is not a verdict: only a [`Verifier`] returns verdicts.
#[derive(Clone, Debug)]
pub struct Dissected {
    /// The report's bytes.
    pub report: Vec<u8>,
    /// The hash that the signatures sign.
    pub digest: Hash,
    /// The address of each signature's key, in order, for the requested number of signatures. `None` if no key can be
    /// recovered.
    pub makers: Vec<Option<Address>>,
}

impl Dissected {
    /// Splits a proof and recovers the addresses for its first `most` signatures. Returns `None` if the report or context
    /// cannot be read. Must be called off the async threads, because it recovers one key per signature.
    pub fn of(ocr: &OcrProof, most: usize) -> Option<Self> {
        let (report, context) = (hash::bytes_of(&ocr.report)?, hash::bytes_of(&ocr.context)?);
        let digest = signed_digest(&report, &context);
        let maker = |text: &Option<Box<str>>| RecoverableSignature::parse(text.as_deref()?)?.recover(&digest);
        let makers = ocr.signatures.iter().take(most).map(|text| maker(text).map(|key| address_of(&key))).collect();
        Some(Self { report, digest, makers })
    }
}

enum PartialVerdict {
    Verdict(Verdict),
    /// The signatures decide the verdict. The proof does not name signers yet.
    Signed(Event, Proof),
}

impl PartialVerdict {
    fn signatures(&self) -> Option<Signatures<'_>> {
        let Self::Signed(event, Proof { digest, .. }) = self else { return None };
        let Proofs::One(ocr) = &event.proofs else { return None };
        Some(Signatures { digest: *digest, texts: &ocr.signatures })
    }

    /// Returns the verdict. `counted` yields the result for each record that has signatures.
    fn verdict(self, set: &SignerSet, counted: &mut impl Iterator<Item = Result<SignatureCount, Reason>>) -> Verdict {
        let (event, proof) = match self {
            Self::Verdict(verdict) => return verdict,
            Self::Signed(event, proof) => (event, proof),
        };
        match counted.next().expect("the signatures of each proof are counted") {
            Err(reason) => Verdict::Rejected(event.raw, reason),
            Ok(SignatureCount { members, strangers }) => {
                let signers = members.into_iter().map(|member| set.addresses()[member]).collect();
                Verdict::Verified(Verified { event, proof: Proof { signers, strangers, ..proof } })
            }
        }
    }
}

impl Verdict {
    /// Returns the record as it arrived, and the event if the record is well-formed.
    pub fn parts(&self) -> (&RawEvent, Option<Event>) {
        match self {
            Self::Verified(Verified { event, .. }) | Self::Unsigned(Unsigned { event }) => {
                (&event.raw, Some(event.clone()))
            }
            Self::Pending(raw) | Self::Rejected(raw, _) => (raw, Event::parse(raw.json.clone()).ok()),
        }
    }

    /// A short constant name: `verified`, `unsigned`, `pending` or `rejected`.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}
