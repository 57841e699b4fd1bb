//! All reasons for rejecting an event, and the facts that are recorded about a rejection.
//!
//! The verifier defines the reasons that follow from the event's content alone, see [`proof::verify::Reason`]. The channel
//! adds the reasons that also need the event's offset, the time, the earlier events, or the operator's lists. A ledger stores
//! the name of a reason.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strum::VariantArray;

use crate::verify::expect::{NotOfChannel, SignedField};
use crate::verify::recent::Alarm;
use ledger::{Contradiction, EventLocation};
use proof::verify::{Hash, Proof, Reason, ReasonKind};

/// Why an event is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectionReason {
    /// The verifier's reason.
    Proof(ReasonKind),
    /// The event's proof has not arrived in time.
    ProofTimeout,
    /// The event's proof can never arrive, because the event has no id by which to request it.
    PendingWithoutId,
    /// Another event of the channel had the same proof.
    DuplicateProof,
    /// The name of [`DuplicateProof`](Self::DuplicateProof) in a state of format 1. This version rejects no event for this
    /// reason.
    Replayed,
    /// An event of another channel had the same proof.
    ProofOfChannel,
    /// The service has shown another event at this offset before, or this event with other content.
    Contradiction,
    /// The event is the result of a query, and it names another channel.
    OtherChannel,
    /// The signed content has a value that is not on the channel's list for this field.
    Unexpected(SignedField),
}

/// How serious a rejection is. The least serious is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionSeverity {
    /// The event has no proof, or the event is not in a known form.
    Unproved,
    /// The event has a proof that does not belong to this channel or to this offset.
    Misplaced,
    /// The content or the signatures are wrong, or the content has changed. The event may be a forgery.
    Suspect,
}

use RejectionSeverity::{Misplaced, Suspect, Unproved};

impl RejectionReason {
    /// Returns every reason, in no particular order.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_channel = [
            Self::ProofTimeout,
            Self::PendingWithoutId,
            Self::DuplicateProof,
            Self::Replayed,
            Self::ProofOfChannel,
            Self::Contradiction,
            Self::OtherChannel,
        ];
        let of_proof = ReasonKind::VARIANTS.iter().copied().map(Self::Proof);
        of_proof.chain(of_channel).chain(SignedField::VARIANTS.iter().copied().map(Self::Unexpected))
    }

    /// Returns the reason with this name. Returns `None` if neither this version of the program nor an earlier version has a
    /// reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|reason| reason.name() == name)
    }

    /// Returns a short constant name, for the state, for metric labels and for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proof(kind) => kind.into(),
            Self::ProofTimeout => "proof-timeout",
            Self::PendingWithoutId => "pending-without-id",
            Self::DuplicateProof => "duplicate-proof",
            Self::Replayed => "replayed",
            Self::ProofOfChannel => "proof-of-channel",
            Self::Contradiction => "contradiction",
            Self::OtherChannel => "other-channel",
            Self::Unexpected(SignedField::WorkflowId) => "unexpected-workflow",
            Self::Unexpected(SignedField::ChainSelector) => "unexpected-chain",
            Self::Unexpected(SignedField::Address) => "unexpected-address",
            Self::Unexpected(SignedField::Service) => "unexpected-service",
            Self::Unexpected(SignedField::Name) => "unexpected-name",
        }
    }

    /// Returns how serious a rejection for this reason is.
    pub fn severity(self) -> RejectionSeverity {
        match self {
            Self::Contradiction
            | Self::Proof(
                ReasonKind::EventHashMismatch | ReasonKind::MalformedSignature | ReasonKind::TooFewSignatures,
            ) => Suspect,
            Self::DuplicateProof
            | Self::Replayed
            | Self::ProofOfChannel
            | Self::OtherChannel
            | Self::Unexpected(_)
            | Self::Proof(ReasonKind::WrongOwner) => Misplaced,
            Self::ProofTimeout
            | Self::PendingWithoutId
            | Self::Proof(
                ReasonKind::Malformed
                | ReasonKind::MultipleProofs
                | ReasonKind::MalformedProof
                | ReasonKind::MalformedReport
                | ReasonKind::MalformedContext
                | ReasonKind::NothingSigned,
            ) => Unproved,
        }
    }

    /// Returns an explanation for operators. The runbook has the same text, together with the remedy.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Proof(ReasonKind::TooFewSignatures) => "Too few of the configured signers signed it",
            Self::Proof(ReasonKind::WrongOwner) => "The report belongs to another organization",
            Self::Proof(ReasonKind::EventHashMismatch) => "The content differs from the signed content",
            Self::Proof(_) => "It is not an event in a known form",
            Self::ProofTimeout | Self::PendingWithoutId => "Its proof never arrived",
            Self::DuplicateProof => {
                "The proof belongs to another event, at another offset or id; the detail names the original"
            }
            Self::Replayed => "A duplicate proof that version 0.1.0 quarantined",
            Self::ProofOfChannel => {
                "Another channel showed the proof before; the detail names the channel and the offset"
            }
            Self::Contradiction => "Other content at an offset that was read before",
            Self::OtherChannel => "The result of a query names another channel",
            Self::Unexpected(SignedField::WorkflowId) => {
                "The proof is valid, but the workflow is not on the list of the channel"
            }
            Self::Unexpected(_) => {
                "The proof is valid, but it names a value that is not on the list of the channel; the detail has both"
            }
        }
    }

    /// Returns whether an operator may verify the event again without naming this reason. A duplicate or a contradiction has
    /// a valid proof. If it is delivered, a receiver may act twice on one event.
    pub fn may_retry_unnamed(self) -> bool {
        !matches!(self, Self::DuplicateProof | Self::Replayed | Self::Contradiction)
    }

    /// Returns what to check in the configuration if every event is rejected for this reason.
    pub fn what_to_check(self) -> &'static str {
        match self {
            Self::OtherChannel | Self::Unexpected(_) => {
                "the channel's id and its `expect`: `channeld channels pin` shows what its events name"
            }
            _ => "valid_signers, min_required_signatures and the workflow owner",
        }
    }
}

impl From<&NotOfChannel> for RejectionReason {
    fn from(not: &NotOfChannel) -> Self {
        match not {
            NotOfChannel::OtherChannel { .. } => Self::OtherChannel,
            NotOfChannel::Unexpected { what, .. } => Self::Unexpected(*what),
        }
    }
}

impl From<Alarm> for RejectionReason {
    fn from(alarm: Alarm) -> Self {
        match alarm {
            Alarm::DuplicateProof(_) => Self::DuplicateProof,
            Alarm::ProofOfChannel { .. } => Self::ProofOfChannel,
            Alarm::Contradiction(_) => Self::Contradiction,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(super) reason: RejectionReason,
    pub(super) detail: String,
    /// The earlier location of the event's proof or, for a contradiction, the location at which other content was shown
    /// before.
    pub(super) original: Option<EventLocation>,
    /// The proof's digest, if another channel has shown the proof or may show it later.
    pub(super) digest: Option<Hash>,
    /// The number of signatures by keys outside the signer set.
    pub(super) strangers: u32,
}

impl Rejection {
    pub(super) fn new(reason: RejectionReason, detail: &str) -> Self {
        Self { reason, detail: detail.to_owned(), original: None, digest: None, strangers: 0 }
    }

    pub(crate) fn contradicted(Contradiction { offset, .. }: Contradiction) -> Self {
        let detail = format!("the service's history has changed: it has a different event at offset {offset}");
        Self::new(RejectionReason::Contradiction, &detail)
    }

    /// Rejects an event whose proof is valid, but whose content does not belong to the channel.
    pub(super) fn not_of_channel(not: &NotOfChannel, proof: &Proof) -> Self {
        Self { digest: Some(proof.digest), ..Self::new(not.into(), &not.to_string()) }
    }
}

impl From<&Reason> for Rejection {
    fn from(reason: &Reason) -> Self {
        Self { strangers: reason.strangers(), ..Self::new(RejectionReason::Proof(reason.into()), &reason.to_string()) }
    }
}

impl From<Alarm> for Rejection {
    fn from(alarm: Alarm) -> Self {
        let (original, digest) = match alarm {
            Alarm::DuplicateProof(original) | Alarm::Contradiction(original) => (original, None),
            Alarm::ProofOfChannel { original, digest } => (original, Some(digest)),
        };
        Self { original: Some(original), digest, ..Self::new(alarm.into(), &alarm.to_string()) }
    }
}

/// Writes a reason as its name, and `None` as an empty text.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn serialize<S: Serializer>(reason: &Option<RejectionReason>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map_or("", RejectionReason::name).serialize(serializer)
}

/// Reads a reason from its name. Returns `None` for a name that this version does not know.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(name: D) -> Result<Option<RejectionReason>, D::Error> {
    Ok(RejectionReason::from_name(&String::deserialize(name)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_unique_name() {
        let names: BTreeSet<_> = RejectionReason::all().map(RejectionReason::name).collect();
        assert_eq!(names.len(), RejectionReason::all().count());
        for reason in RejectionReason::all() {
            assert_eq!(RejectionReason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(RejectionReason::from_name(""), None);
    }
}
