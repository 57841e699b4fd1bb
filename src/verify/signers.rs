//! The signer set: whose signatures count, and how many of them an event needs.

use super::Reason;
use super::hash::{Address, Hash};
use super::signature::signer_of;

/// The oracle network's signers and the threshold. Never empty, no duplicates, 0 < required <= signers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerSet {
    addresses: Vec<Address>,
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
        Ok(Self { addresses, required })
    }

    /// How many distinct signers an event needs.
    #[must_use]
    pub fn required(&self) -> usize {
        self.required
    }

    /// The signers, in the order they were listed.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The distinct members that signed `digest`, exactly as many as are required.
    ///
    /// Signatures are read in order, and reading stops at the threshold: what comes after it is never looked at.
    /// Strangers and repeats are passed over.
    pub(super) fn count(&self, digest: &Hash, signatures: &[Option<Box<str>>]) -> Result<Counted, Reason> {
        let (mut found, mut strangers) = (Vec::with_capacity(self.required), 0);
        for (index, signature) in signatures.iter().enumerate() {
            let signer = signature.as_deref().and_then(|signature| signer_of(digest, signature));
            let signer = signer.ok_or(Reason::MalformedSignature { index })?;
            if !self.addresses.contains(&signer) {
                strangers += 1;
            } else if !found.contains(&signer) {
                found.push(signer);
            }
            if found.len() == self.required {
                return Ok(Counted { signers: found, strangers });
            }
        }
        Err(Reason::TooFewSignatures { found: found.len(), required: self.required, strangers })
    }
}
