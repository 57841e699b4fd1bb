//! The signer set: whose signatures count, and how many of them an event needs.

use std::fmt;
use std::sync::Arc;

use super::Reason;
use super::hash::Address;
use super::known::Known;
use super::reading::{self, Signatures};

#[cfg(test)]
mod tests;

/// The oracle network's signers and the threshold. Never empty, no duplicates, 0 < required <= signers.
#[derive(Clone)]
pub struct SignerSet {
    /// The addresses, and what else is known of the signers.
    known: Arc<Known>,
    required: usize,
}

/// What the signatures of a proof that suffice have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// Distinct members by their places in the set, exactly as many as are required, in the order of the proof.
    pub(super) members: Vec<usize>,
    /// Signatures among them by keys that are no members'.
    pub(super) strangers: u32,
}

/// Why a list and a threshold are no signer set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerSetError {
    /// A threshold of zero would accept anything.
    #[error("the minimum of required signatures must be greater than 0")]
    NothingRequired,
    /// More signatures required than there are signers: nothing could ever be verified.
    #[error("{required} signatures are required but there are only {signers} signers")]
    TooManyRequired {
        /// The threshold.
        required: usize,
        /// The number of signers.
        signers: usize,
    },
    /// An address is listed twice.
    #[error("the signer {0} is listed twice")]
    Duplicate(Address),
}

impl SignerSet {
    /// Checks the specification's rules on a signer set.
    ///
    /// # Errors
    /// [`SignerSetError`], where a rule does not hold.
    pub fn new(addresses: Vec<Address>, required: usize) -> Result<Self, SignerSetError> {
        let twice = addresses.iter().enumerate().find(|(at, address)| addresses[..*at].contains(address));
        if let Some((_, address)) = twice {
            return Err(SignerSetError::Duplicate(*address));
        }
        if required == 0 {
            return Err(SignerSetError::NothingRequired);
        }
        if required > addresses.len() {
            return Err(SignerSetError::TooManyRequired { required, signers: addresses.len() });
        }
        Ok(Self { known: Known::of(addresses), required })
    }

    /// How many distinct signers an event needs.
    pub fn required(&self) -> usize {
        self.required
    }

    /// The signers, in the order they were listed.
    pub fn addresses(&self) -> &[Address] {
        self.known.addresses()
    }

    /// Of each proof, the distinct members that signed, exactly as many as are required. Many proofs at once take much less
    /// time than each by itself.
    ///
    /// Signatures are read in order, and reading stops at the threshold: what comes after it is never looked at.
    /// Strangers and repeats are passed over.
    pub(super) fn count(&self, proofs: &[Signatures<'_>]) -> Vec<Result<Counted, Reason>> {
        reading::read(&self.known, self.required, proofs)
    }

    /// Whether [`prepare`](Self::prepare) has anything to do.
    pub(super) fn wants_preparing(&self) -> bool {
        self.known.wants_preparing()
    }

    /// Makes it fast to check the signatures of those that have signed often.
    pub(super) fn prepare(&self) {
        self.known.prepare();
    }
}

/// Two sets are the same by what they say, whatever is known of the signers.
impl PartialEq for SignerSet {
    fn eq(&self, other: &Self) -> bool {
        (self.addresses(), self.required) == (other.addresses(), other.required)
    }
}

impl Eq for SignerSet {}

impl fmt::Debug for SignerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SignerSet");
        shown.field("addresses", &self.addresses()).field("required", &self.required).finish_non_exhaustive()
    }
}
