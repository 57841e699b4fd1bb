//! The reasons for a rejection.

use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use super::hash::Address;
use super::report::OCR_REPORT_LENGTH;
use crate::event::Malformed;

/// Why an event was rejected.
#[expect(missing_docs, reason = "the messages name each field")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, EnumDiscriminants)]
#[strum_discriminants(
    name(ReasonKind),
    derive(PartialOrd, Ord, Hash, IntoStaticStr, VariantArray),
    strum(serialize_all = "kebab-case"),
    doc = "The kind of a [`Reason`], without its values."
)]
pub enum Reason {
    /// The record is not a well-formed event.
    #[error("malformed record: {0}")]
    Malformed(#[from] Malformed),
    /// The event has more than one proof.
    #[error("more than one proof")]
    MultipleProofs,
    /// The only proof is not an OCR proof or is incomplete.
    #[error("the proof is not a complete OCR proof")]
    MalformedProof,
    /// The report is not `0x` and hex, or is shorter than its fields.
    #[error("the report is not 0x and at least {OCR_REPORT_LENGTH} bytes of hex")]
    MalformedReport,
    /// The context is not `0x` and hex.
    #[error("the report's context is not 0x and hex")]
    MalformedContext,
    /// The event has a proof but no signed text.
    #[error("it has a proof but no signed text")]
    NothingSigned,
    /// The report names another owner, so the event belongs to another organization.
    #[error("the report names the workflow owner {found}, not {expected}")]
    WrongOwner { expected: Address, found: Address },
    /// The report names another text. The event's content was changed, or the proof was copied from another event.
    #[error("the report is not about this event's signed text")]
    EventHashMismatch,
    /// A signature before the threshold is not 65 bytes of hex with a valid recovery byte, or no key can be recovered from
    /// it.
    #[error("signature {} of the proof is malformed", index + 1)]
    MalformedSignature { index: usize },
    /// Too few distinct members of the signer set signed. `strangers` is the number of signatures by other keys.
    #[error("{found} of {required} required signatures count: each must be by another known signer")]
    TooFewSignatures { found: usize, required: usize, strangers: u32 },
}

impl Reason {
    /// The number of signatures by keys outside the signer set, over a report that names our owner and event.
    pub fn strangers(&self) -> u32 {
        match self {
            Self::TooFewSignatures { strangers, .. } => *strangers,
            _ => 0,
        }
    }

    /// A short constant name, for metric labels and programs.
    pub fn name(&self) -> &'static str {
        ReasonKind::from(self).into()
    }
}
