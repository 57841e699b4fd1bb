//! The signer set: whose signatures count, and how many of them an event needs.

use std::fmt;
use std::sync::Arc;

use super::Reason;
use super::hash::{Address, Hash};
use super::known::Known;
use super::order::Earlier;
use super::reading::Reading;

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
    /// Distinct members, exactly as many as are required.
    pub(super) signers: Vec<Address>,
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
    #[must_use]
    pub fn required(&self) -> usize {
        self.required
    }

    /// The signers, in the order they were listed.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        self.known.addresses()
    }

    /// The distinct members that signed `digest`, exactly as many as are required.
    ///
    /// Signatures are read in order, and reading stops at the threshold: what comes after it is never looked at.
    /// Strangers and repeats are passed over.
    ///
    /// `earlier` is the proof before, and then this one. A hint, and no more.
    pub(super) fn count(
        &self,
        digest: &Hash,
        signatures: &[Option<Box<str>>],
        earlier: &mut Earlier,
    ) -> Result<Counted, Reason> {
        let (mut reading, mut rest) = (Reading::new(&self.known, digest, *earlier), signatures);
        while reading.found().len() < self.required && !rest.is_empty() {
            // With fewer there cannot be enough: so many are read in any case.
            let (next, others) = rest.split_at(rest.len().min(self.required - reading.found().len()));
            reading.read(next)?;
            rest = others;
        }
        let (found, strangers) = (reading.found(), reading.strangers());
        if found.len() < self.required {
            return Err(Reason::TooFewSignatures { found: found.len(), required: self.required, strangers });
        }
        *earlier = self.known.order().earlier(found);
        Ok(Counted { signers: reading.signers(), strangers })
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
