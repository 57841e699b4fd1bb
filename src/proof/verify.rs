//! Proof or no proof: the only place that makes a [`Verified`] event.
//!
//! An event is verified when at least `min_required_signatures` distinct members of the signer set signed a report that
//! names the expected workflow owner and the hash of the event's signed text. The steps and their order are those of
//! spec/wire.md, "Verification"; `tests/vectors.rs` holds them against the reference's recorded verdicts.
//!
//! # Invariants
//!
//! * **Only here.** [`Verified`] and [`Unsigned`] have private fields and no other constructor: what a sink is given has
//!   been verified.
//! * **Never laxer than the reference.** Stricter in four things, each said where it is decided: text without `0x` is not
//!   taken for hex, a report ends with the hash, every item of `proofs` counts, and ambiguous JSON is malformed.
//! * **Pure.** No I/O, no clock, no configuration file: the same event and [`Verifier`] give the same [`Verdict`].
//! * **Known signers change nothing.** Which keys are known, what has been made ready for them and what was learned of the
//!   order that they sign in decide how long a verdict takes, and nothing of the verdict.
//!
//! # How signatures are checked
//!
//! A signature does not name its key. *Recovery*, by k256's own operations, computes the key from the signature, which is most of
//! what a verdict costs. A network has few signers, always the same, so with the feature `fast`:
//!
//! 1. `prepared` keeps a key that was recovered often enough. [`Verifier::prepare`] makes its `multiples`: a table with which
//!    a product is the sum of some thirty points.
//! 2. From then on `asking` asks the opposite question: did that member make this signature? That is the equation that
//!    recovery solves, with the key put in. Members are asked one after the other, in the `order` in which the network lists
//!    its signatures. The proofs of many events ask at the same time, so that `sums` adds many points at once.
//! 3. A signature that no member has made is recovered: only recovery finds strangers, repeats and malformed signatures.
//!
//! Why a "yes" of the second step can be trusted: the key comes from recovery and its address is a member's; and
//! `(z/s)·G + (r/s)·Q = R` holds for one Q only, so recovery would have found the same key. A "no" is never a verdict. Without
//! the feature every signature is recovered. The vectors, the mutations and a comparison with k256 run in both builds.

use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use crate::event::{Event, Malformed, OcrProof, Proofs, RawEvent};

#[cfg(feature = "fast")]
mod fast;
mod hash;
mod known;
mod owner;
#[cfg(not(feature = "fast"))]
mod plain;
mod reading;
mod report;
mod signature;
mod signers;

pub use hash::{Address, Hash, keccak256};
pub use owner::workflow_owner;
pub use report::{OCR_REPORT_LENGTH, Report, event_hash, signed_digest};
pub use signers::{SignerSet, SignerSetError};

#[cfg(feature = "fast")]
use fast as preparing;
#[cfg(not(feature = "fast"))]
use plain as preparing;
use reading::Signatures;
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
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// What was proved.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The event as it came, and what was proved.
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
    pub fn event(&self) -> &Event {
        &self.event
    }
}

/// What a proof that holds has shown. Its JSON is what a record says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// What was signed: the report with its context. Two proofs are the same proof exactly where this is the same,
    /// whichever members signed it and however the signatures are written; the same text proved anew has another.
    pub digest: Hash,
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
    /// The workflow that the report names: one a watcher.
    pub workflow_id: Hash,
    /// The run of that workflow which made the report.
    pub execution_id: Hash,
}

/// Why an event was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
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
    pub const NAMES: &[&str] = Self::VARIANTS;

    /// How many signatures by keys outside the signer set were seen over something that is ours.
    pub fn strangers(&self) -> u32 {
        match self {
            Self::TooFewSignatures { strangers, .. } => *strangers,
            _ => 0,
        }
    }

    /// A short constant name, fit for a metric's label or a program.
    pub fn name(&self) -> &'static str {
        self.into()
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
    pub fn new(signers: SignerSet, workflow_owner: Address) -> Self {
        Self { signers, workflow_owner }
    }

    /// Whose signatures count.
    pub fn signers(&self) -> &SignerSet {
        &self.signers
    }

    /// Whose events these are.
    pub fn workflow_owner(&self) -> Address {
        self.workflow_owner
    }

    /// Whether [`prepare`](Self::prepare) has anything to do. Costs next to nothing.
    pub fn wants_preparing(&self) -> bool {
        self.signers.wants_preparing()
    }

    /// Makes it fast to check the signatures of those signers that have signed often. No verdict depends on it. Takes some
    /// milliseconds a signer, once; run it off the async threads, while what follows is verified.
    pub fn prepare(&self) {
        self.signers.prepare();
    }

    /// Verifies one record. Many at once, by [`verify_all`](Self::verify_all), take much less time.
    pub fn verify(&self, raw: RawEvent) -> Verdict {
        self.verify_all(vec![raw]).remove(0)
    }

    /// Verifies records, each for itself; a verdict for each. Costs up to one key recovery per signature up to the threshold:
    /// run it off the async threads, and [`prepare`](Self::prepare) now and then.
    pub fn verify_all(&self, records: Vec<RawEvent>) -> Vec<Verdict> {
        let read: Vec<_> = records.into_iter().map(|raw| self.read(raw)).collect();
        let proofs: Vec<_> = read.iter().filter_map(Read::signatures).collect();
        let mut counted = self.signers.count(&proofs).into_iter();
        read.into_iter().map(|read| read.verdict(self, &mut counted)).collect()
    }

    /// Everything but the signatures.
    fn read(&self, raw: RawEvent) -> Read {
        let event = match Event::parse(raw.json.clone()) {
            Ok(event) => event,
            Err(malformed) => return Read::Verdict(Verdict::Rejected(raw, malformed.into())),
        };
        Read::Verdict(match (event.can_be_proved(), &event.proofs) {
            (true, Proofs::None) if event.proof_is_due() => Verdict::Pending(raw),
            (false, _) | (true, Proofs::None) => Verdict::Unsigned(Unsigned { event }),
            (true, Proofs::Unreadable) => Verdict::Rejected(raw, Reason::MalformedProof),
            (true, Proofs::Many) => Verdict::Rejected(raw, Reason::MultipleProofs),
            (true, Proofs::One(ocr)) => match self.bound(&event, ocr) {
                Ok(bound) => return Read::Signed(event, bound),
                Err(reason) => Verdict::Rejected(raw, reason),
            },
        })
    }

    /// What the report binds, where it is about this event and owner.
    fn bound(&self, event: &Event, ocr: &OcrProof) -> Result<Bound, Reason> {
        let report_bytes = hash::bytes_of(&ocr.report).ok_or(Reason::MalformedReport)?;
        let report = Report::parse(&report_bytes).ok_or(Reason::MalformedReport)?;
        let context = hash::bytes_of(&ocr.context).ok_or(Reason::MalformedContext)?;
        let event_hash = event_hash(event.payload.signed.as_deref().ok_or(Reason::NothingSigned)?);
        if report.workflow_owner != self.workflow_owner {
            return Err(Reason::WrongOwner { expected: self.workflow_owner, found: report.workflow_owner });
        }
        // Stricter than the reference, which looks at the report's last 32 bytes only: here nothing stands between
        // the header and the hash.
        if report.payload != event_hash.0 {
            return Err(Reason::EventHashMismatch);
        }
        let digest = signed_digest(&report_bytes, &context);
        Ok(Bound { event_hash, digest, workflow_id: report.workflow_id, execution_id: report.execution_id })
    }
}

/// A proof taken apart, for a person to look at. No verdict: that is [`Verifier::verify`]'s.
#[derive(Clone, Debug)]
pub struct Dissected {
    /// The report's bytes.
    pub report: Vec<u8>,
    /// What its signatures are over.
    pub digest: Hash,
    /// Whose key each signature recovers, in their order; `None` where it is no signature. As many as were asked for.
    pub makers: Vec<Option<Address>>,
}

impl Dissected {
    /// Takes a proof apart, with the makers of its first `most` signatures. `None` where its report or context cannot be read.
    /// Costs a key recovery a signature: run it off the async threads.
    pub fn of(ocr: &OcrProof, most: usize) -> Option<Self> {
        let (report, context) = (hash::bytes_of(&ocr.report)?, hash::bytes_of(&ocr.context)?);
        let digest = signed_digest(&report, &context);
        let maker = |text: &Option<Box<str>>| signature::maker(text.as_deref()?, &digest);
        let makers = ocr.signatures.iter().take(most).map(maker).collect();
        Some(Self { report, digest, makers })
    }
}

/// A record that was read.
enum Read {
    Verdict(Verdict),
    /// It is as good as its signatures.
    Signed(Event, Bound),
}

/// What the signatures of a report bind.
struct Bound {
    event_hash: Hash,
    digest: Hash,
    workflow_id: Hash,
    execution_id: Hash,
}

impl Read {
    fn signatures(&self) -> Option<Signatures<'_>> {
        let Self::Signed(event, Bound { digest, .. }) = self else { return None };
        let Proofs::One(ocr) = &event.proofs else { return None };
        Some(Signatures { digest: *digest, texts: &ocr.signatures })
    }

    /// The verdict, with what was `counted` of the records that have signatures.
    fn verdict(self, verifier: &Verifier, counted: &mut impl Iterator<Item = Result<Counted, Reason>>) -> Verdict {
        let (event, Bound { event_hash, digest, workflow_id, execution_id }) = match self {
            Self::Verdict(verdict) => return verdict,
            Self::Signed(event, bound) => (event, bound),
        };
        match counted.next().expect("the signatures of each proof are counted") {
            Err(reason) => Verdict::Rejected(event.raw, reason),
            Ok(Counted { members, strangers }) => {
                let Verifier { signers, workflow_owner } = verifier;
                let (required, workflow_owner) = (signers.required(), *workflow_owner);
                let signers = members.into_iter().map(|member| signers.addresses()[member]).collect();
                let proof = Proof {
                    digest,
                    signers,
                    required,
                    strangers,
                    event_hash,
                    workflow_owner,
                    workflow_id,
                    execution_id,
                };
                Verdict::Verified(Verified { event, proof })
            }
        }
    }
}

impl Verdict {
    /// The record as it came, and the event where it is well formed.
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
        match self {
            Self::Verified(_) => "verified",
            Self::Unsigned(_) => "unsigned",
            Self::Pending(_) => "pending",
            Self::Rejected(..) => "rejected",
        }
    }
}
