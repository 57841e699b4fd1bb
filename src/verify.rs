//! Proof or no proof: the only place that makes a [`Verified`] event.
//!
//! An event is verified when at least `min_required_signatures` distinct members of the signer set signed a report that
//! names the expected workflow owner and the hash of the event's signed text. The steps and their order are those of
//! spec/wire.md, "Verification"; `tests/it/verification/vectors.rs` holds them against the reference's recorded verdicts.
//!
//! # Invariants
//!
//! * **Only here.** [`Verified`] and [`Unsigned`] have private fields and no other constructor: what a sink is given has
//!   been judged.
//! * **Never laxer than the reference.** Stricter in four things, each said where it is decided: text without `0x` is not
//!   taken for hex, a report ends with the hash, every item of `proofs` counts, and ambiguous JSON is malformed.
//! * **Pure.** No I/O, no clock, no configuration file: the same event and [`Verifier`] give the same [`Verdict`].
//! * **Known signers change nothing.** Which keys are known, what has been made ready for them and what was learned of the
//!   order that they sign in decide how long a verdict takes, and nothing of the verdict.
//!
//! # How signatures are checked
//!
//! A signature does not name its key. Recovery computes the key from the signature, which is most of what a verdict costs.
//! But a network has few signers, always the same, so most keys that are recovered were recovered before:
//!
//! 1. `reading` takes the signatures of a proof in their order. The first come by `signature`, by recovery.
//! 2. `known` keeps a key that was recovered often enough. [`Verifier::prepare`], which whoever judges calls now
//!    and then, makes its `multiples`: a table with which a product is some thirty additions.
//! 3. From then on `check` asks the opposite question: is this signature that signer's? That is the equation that recovery
//!    solves, with the key put in. It takes a third of the time or less, if the right signer is asked.
//! 4. `order` learns who signs after whom. As far as the next signers are as good as certain, they are asked at once;
//!    otherwise the likely ones, one after the other; and where asking does not pay, nobody.
//! 5. What no signer who was asked has made is left to recovery: it alone tells strangers, repeats and malformed
//!    signatures.

use serde::Serialize;

use crate::event::{Event, Malformed, OcrProof, Proofs, RawEvent};

mod check;
mod hash;
mod known;
mod multiples;
mod order;
mod owner;
mod reading;
mod report;
mod signature;
mod signers;

pub use hash::{Address, Hash, keccak256};
pub use owner::workflow_owner;
pub use report::{OCR_REPORT_LENGTH, Report, event_hash, signed_digest};
pub use signers::{SignerSet, SignerSetError};

use order::Earlier;
use signers::Counted;

/// What is known of an event after its proof has been looked at.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The proof holds.
    Verified(Verified),
    /// Its type and status never carry a proof.
    Unsigned(Unsigned),
    /// A proof is due and has not come.
    Pending(RawEvent),
    /// The proof does not hold, or the record is malformed.
    Rejected(RawEvent, Reason),
}

/// An event whose proof holds.
#[derive(Clone, Debug)]
pub struct Verified {
    event: Event,
    proof: Proof,
}

impl Verified {
    /// The event.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// What was proved.
    #[must_use]
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The event as it came, and what was proved.
    #[must_use]
    pub fn into_parts(self) -> (RawEvent, Proof) {
        (self.event.raw, self.proof)
    }
}

/// A notice of the service that nobody signs.
#[derive(Clone, Debug)]
pub struct Unsigned {
    event: Event,
}

impl Unsigned {
    /// The event.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }
}

/// What a proof that holds has shown. Its JSON is what a record says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The members of the signer set whose signatures were counted, in the order of the proof.
    pub signers: Vec<Address>,
    /// How many were required.
    pub required: usize,
    /// Signatures by keys outside the signer set that were read before there were enough.
    #[serde(skip)]
    pub strangers: u32,
    /// The hash of the signed text, which the report binds.
    pub event_hash: Hash,
    /// The owner that the report names.
    pub workflow_owner: Address,
    /// What was signed: the report with its context. Two proofs are the same proof exactly where this is the same,
    /// whoever signed them and however the signatures are written; the same text proved anew has another.
    #[serde(skip)]
    pub digest: Hash,
}

/// Why an event was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The record is not a well-formed event.
    #[error("malformed record: {0}")]
    Malformed(#[from] Malformed),
    /// More than one proof.
    #[error("more than one proof")]
    MultipleProofs,
    /// The one proof is not an OCR proof, or lacks a part.
    #[error("the proof is not a complete OCR proof")]
    MalformedProof,
    /// The report is not `0x` and hex, or shorter than its fields.
    #[error("the report is not 0x and at least {OCR_REPORT_LENGTH} bytes of hex")]
    MalformedReport,
    /// The context is not `0x` and hex.
    #[error("the report's context is not 0x and hex")]
    MalformedContext,
    /// There is a proof, but nothing that it could be about.
    #[error("there is a proof but no signed text")]
    NothingSigned,
    /// The report names another owner: the event belongs to somebody else.
    #[error("the report names the workflow owner {found}, not {expected}")]
    WrongOwner {
        /// The configured owner.
        expected: Address,
        /// The report's.
        found: Address,
    },
    /// The report is about another text: the event's content was changed, or the proof taken from elsewhere.
    #[error("the report is not about this event's signed text")]
    EventHashMismatch,
    /// A signature before the threshold is not 65 bytes of hex with a valid recovery byte, or recovers no key.
    #[error("signature {index} of the proof is malformed")]
    MalformedSignature {
        /// Its place in the proof, from zero.
        index: usize,
    },
    /// Too few distinct members of the signer set signed.
    #[error("{found} of {required} required signatures are by known signers")]
    TooFewSignatures {
        /// Distinct known signers.
        found: usize,
        /// The threshold.
        required: usize,
        /// Signatures by keys outside the signer set.
        strangers: u32,
    },
}

impl Reason {
    /// Every [`name`](Self::name) there is.
    pub const NAMES: [&str; 10] = [
        "malformed",
        "multiple-proofs",
        "malformed-proof",
        "malformed-report",
        "malformed-context",
        "nothing-signed",
        "wrong-owner",
        "event-hash-mismatch",
        "malformed-signature",
        "too-few-signatures",
    ];

    /// How many signatures by keys outside the signer set were seen over something that is ours.
    #[must_use]
    pub fn strangers(&self) -> u32 {
        match self {
            Self::TooFewSignatures { strangers, .. } => *strangers,
            _ => 0,
        }
    }

    /// A short constant name, fit for a metric's label or a program.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::MultipleProofs => "multiple-proofs",
            Self::MalformedProof => "malformed-proof",
            Self::MalformedReport => "malformed-report",
            Self::MalformedContext => "malformed-context",
            Self::NothingSigned => "nothing-signed",
            Self::WrongOwner { .. } => "wrong-owner",
            Self::EventHashMismatch => "event-hash-mismatch",
            Self::MalformedSignature { .. } => "malformed-signature",
            Self::TooFewSignatures { .. } => "too-few-signatures",
        }
    }
}

/// Whose signatures count, and whose events these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    signers: SignerSet,
    workflow_owner: Address,
}

impl Verifier {
    /// Verifies events of `workflow_owner` against `signers`.
    #[must_use]
    pub fn new(signers: SignerSet, workflow_owner: Address) -> Self {
        Self { signers, workflow_owner }
    }

    /// Whose signatures count.
    #[must_use]
    pub fn signers(&self) -> &SignerSet {
        &self.signers
    }

    /// Whose events these are.
    #[must_use]
    pub fn workflow_owner(&self) -> Address {
        self.workflow_owner
    }

    /// Whether [`prepare`](Self::prepare) has anything to do. Costs next to nothing.
    #[must_use]
    pub fn wants_preparing(&self) -> bool {
        self.signers.wants_preparing()
    }

    /// Makes it fast to check the signatures of those signers that have signed often. No verdict depends on it. Takes some
    /// milliseconds a signer, once; run it off the async threads, beside the judging of what follows.
    pub fn prepare(&self) {
        self.signers.prepare();
    }

    /// Gives a record its verdict. Costs up to one key recovery per signature up to the threshold; run pages of it off the
    /// async threads, and [`prepare`](Self::prepare) between them.
    #[must_use]
    pub fn judge(&self, raw: RawEvent) -> Verdict {
        self.sitting().judge(raw)
    }

    /// Judges events that follow each other, which is faster than each by itself.
    #[must_use]
    pub fn sitting(&self) -> Sitting<'_> {
        Sitting { verifier: self, earlier: Earlier::default() }
    }
}

/// Gives records that follow each other their verdicts: the same as [`Verifier::judge`]. Whose signatures an event bears is a
/// hint of whose the next one will.
#[derive(Debug)]
pub struct Sitting<'a> {
    verifier: &'a Verifier,
    /// The last proof that held.
    earlier: Earlier,
}

impl Sitting<'_> {
    /// Gives a record its verdict.
    #[must_use]
    pub fn judge(&mut self, raw: RawEvent) -> Verdict {
        let event = match Event::parse(raw.json.clone()) {
            Ok(event) => event,
            Err(malformed) => return Verdict::Rejected(raw, malformed.into()),
        };
        match (event.can_be_proved(), &event.proofs) {
            (true, Proofs::None) if event.proof_is_due() => Verdict::Pending(raw),
            (false, _) | (true, Proofs::None) => Verdict::Unsigned(Unsigned { event }),
            (true, Proofs::Unreadable) => Verdict::Rejected(raw, Reason::MalformedProof),
            (true, Proofs::Many) => Verdict::Rejected(raw, Reason::MultipleProofs),
            (true, Proofs::One(ocr)) => match self.prove(&event, ocr) {
                Ok(proof) => Verdict::Verified(Verified { event, proof }),
                Err(reason) => Verdict::Rejected(raw, reason),
            },
        }
    }

    fn prove(&mut self, event: &Event, ocr: &OcrProof) -> Result<Proof, Reason> {
        let Verifier { signers, workflow_owner } = self.verifier;
        let report_bytes = hash::bytes_of(&ocr.report).ok_or(Reason::MalformedReport)?;
        let report = Report::parse(&report_bytes).ok_or(Reason::MalformedReport)?;
        let context = hash::bytes_of(&ocr.context).ok_or(Reason::MalformedContext)?;
        let event_hash = event_hash(event.payload.signed.as_deref().ok_or(Reason::NothingSigned)?);
        if report.workflow_owner != *workflow_owner {
            return Err(Reason::WrongOwner { expected: *workflow_owner, found: report.workflow_owner });
        }
        // Stricter than the reference, which looks at the report's last 32 bytes only: here nothing stands between
        // the header and the hash.
        if report.payload != event_hash.0 {
            return Err(Reason::EventHashMismatch);
        }
        let digest = signed_digest(&report_bytes, &context);
        let required = signers.required();
        let Counted { signers, strangers } = signers.count(&digest, &ocr.signatures, &mut self.earlier)?;
        let workflow_owner = report.workflow_owner;
        Ok(Proof { signers, required, strangers, event_hash, workflow_owner, digest })
    }
}

impl Verdict {
    /// The record as it came, and the event where it is well formed.
    #[must_use]
    pub fn parts(&self) -> (&RawEvent, Option<Event>) {
        match self {
            Self::Verified(Verified { event, .. }) | Self::Unsigned(Unsigned { event }) => {
                (&event.raw, Some(event.clone()))
            }
            Self::Pending(raw) | Self::Rejected(raw, _) => (raw, Event::parse(raw.json.clone()).ok()),
        }
    }

    /// A short constant name: `verified`, `unsigned`, `pending` or `rejected`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Verified(_) => "verified",
            Self::Unsigned(_) => "unsigned",
            Self::Pending(_) => "pending",
            Self::Rejected(..) => "rejected",
        }
    }
}
