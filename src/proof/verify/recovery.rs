//! Finds the makers of a proof's signatures by recovery: the key is computed from the signature, and its address is looked
//! up.
//!
//! # Invariants
//!
//! * **In order.** Signatures are read in the order of the proof, up to the threshold. Signatures after the threshold are
//!   never read.

use super::hash::Hash;
use super::members::Members;
use super::reason::Reason;
use super::signature::RecoverableSignature;

/// The signatures of a proof as text, and the digest that they sign.
pub(super) struct Signatures<'a> {
    pub(super) digest: Hash,
    pub(super) texts: &'a [Option<Box<str>>],
}

/// The result of counting a proof with enough signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignatureCount {
    /// The indexes of the `required` distinct members within the signer set, in the order of the proof.
    pub(super) members: Vec<usize>,
    /// The number of signatures by keys outside the set that were read before the last required signature.
    pub(super) strangers: u32,
}

pub(super) struct SignatureReader<'a> {
    pub(super) known: &'a Members,
    required: usize,
    pub(super) proof: &'a Signatures<'a>,
    pub(super) read: usize,
    /// The members that have signed, in the order of the proof.
    pub(super) found: Vec<usize>,
    strangers: u32,
    malformed: bool,
}

impl<'a> SignatureReader<'a> {
    pub(super) fn new(known: &'a Members, required: usize, proof: &'a Signatures<'a>) -> Self {
        let (found, malformed) = (Vec::with_capacity(required), false);
        Self { known, required, proof, read: 0, found, strangers: 0, malformed }
    }

    pub(super) fn is_over(&self) -> bool {
        self.malformed || self.found.len() == self.required || self.read == self.proof.texts.len()
    }

    /// Records that a member made the next signature.
    pub(super) fn found(&mut self, member: usize) {
        self.found.push(member);
        self.read += 1;
    }

    /// Reads the next signature and recovers its key.
    pub(super) fn recover(&mut self) {
        let signature = self.proof.texts[self.read].as_deref().and_then(RecoverableSignature::parse);
        let key = signature.and_then(|signature| signature.recover(&self.proof.digest));
        match key.map(|key| self.known.recovered(&key)) {
            None => self.malformed = true,
            Some(Some(member)) if !self.found.contains(&member) => self.found(member),
            Some(maker) => {
                self.strangers += u32::from(maker.is_none());
                self.read += 1;
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<SignatureCount, Reason> {
        while !self.is_over() {
            self.recover();
        }
        let Self { required, strangers, found: members, .. } = self;
        if self.malformed {
            Err(Reason::MalformedSignature { index: self.read })
        } else if members.len() < required {
            Err(Reason::TooFewSignatures { found: members.len(), required, strangers })
        } else {
            Ok(SignatureCount { members, strangers })
        }
    }
}
