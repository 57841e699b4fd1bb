//! The signer set: the signers that count, and how many of them must sign an event.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "fast")]
use super::fast;
use super::hash::Address;
use super::members::Members;
use super::reason::Reason;
use super::recovery::{SignatureCount, SignatureReader, Signatures};

#[cfg(test)]
mod tests;

/// The oracle network's signers and the threshold. Never empty, no duplicates, 0 < required <= signers.
#[derive(Clone)]
pub struct SignerSet {
    pub(super) known: Arc<Members>,
    pub(super) required: usize,
}

/// Why a list and a threshold are not a valid signer set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name each field")]
pub enum SignerSetError {
    /// A threshold of zero would accept any event.
    #[error("the number of required signatures must be greater than 0")]
    NothingRequired,
    /// More signatures are required than the set has signers, so no event could ever be verified.
    #[error("{required} signatures are required, but only {signers} signers are listed")]
    TooManyRequired { required: usize, signers: usize },
    #[error("the signer {0} is listed twice")]
    Duplicate(Address),
}

impl SignerSet {
    /// Checks the specification's rules for a signer set.
    ///
    /// # Errors
    /// [`SignerSetError`] if a rule is violated.
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
        Ok(Self { known: Members::of(addresses), required })
    }

    /// The number of distinct signers that an event needs.
    pub fn required(&self) -> usize {
        self.required
    }

    /// The signers, in the order of the list.
    pub fn addresses(&self) -> &[Address] {
        &self.known.addresses
    }

    /// For each proof, returns distinct members that signed it, exactly the required number of them, or the reason why
    /// too few members signed it. Counting many proofs in one call takes much less time than one call for each proof.
    ///
    /// Signatures are read in order until the threshold is reached. Later signatures are never read. Signatures by keys
    /// outside the set are skipped, and so is a second signature of a member.
    pub(super) fn count(&self, proofs: &[Signatures<'_>]) -> Vec<Result<SignatureCount, Reason>> {
        #[cfg(feature = "fast")]
        if let Some(counted) = fast::read(&self.known, self.required, proofs, None) {
            return counted;
        }
        proofs.iter().map(|proof| SignatureReader::new(&self.known, self.required, proof).finish()).collect()
    }
}

/// Two sets are equal if their addresses and thresholds are equal. Further knowledge about the signers is ignored.
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
