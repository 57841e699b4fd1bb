//! The members of a signer set.
//!
//! # Invariants
//!
//! * **Shared.** All verifiers with the same addresses share their knowledge about the members, no matter who created them.
//!   This knowledge affects only the speed of a verdict.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use k256::ecdsa::VerifyingKey;

#[cfg(feature = "fast")]
use super::fast::Prepared;
use super::hash::Address;
use super::signature::address_of;

/// The members of one signer set: their addresses and further knowledge about them.
pub(super) struct Members {
    /// In the order of the list.
    pub(super) addresses: Vec<Address>,
    /// The keys that were recovered often, and their precomputed tables.
    pub(super) prepared: Prepared,
}

static SETS: Mutex<Vec<Weak<Members>>> = Mutex::new(Vec::new());

impl Members {
    /// Returns the shared set with these addresses, in this order. Creates the set if no verifier uses it.
    pub(super) fn of(addresses: Vec<Address>) -> Arc<Self> {
        let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|set| set.strong_count() > 0);
        let known = sets.iter().filter_map(Weak::upgrade).find(|set| set.addresses == addresses);
        known.unwrap_or_else(|| {
            let known = Arc::new(Self::nothing(addresses));
            sets.push(Arc::downgrade(&known));
            known
        })
    }

    /// A set with these addresses, without further knowledge about the members.
    pub(super) fn nothing(addresses: Vec<Address>) -> Self {
        Self { prepared: Prepared::nothing(addresses.len()), addresses }
    }

    /// Records a recovered key. Returns the index of the member with this key, if any.
    pub(super) fn recovered(&self, key: &VerifyingKey) -> Option<usize> {
        let address = address_of(key);
        let member = self.addresses.iter().position(|member| *member == address)?;
        self.prepared.recovered(member, key);
        Some(member)
    }
}

/// Replaces `fast::Prepared` in a build without `fast`: nothing is precomputed, and every key is recovered.
#[cfg(not(feature = "fast"))]
pub(super) struct Prepared;

#[cfg(not(feature = "fast"))]
#[allow(clippy::unused_self, reason = "the same functions as in `fast`")]
impl Prepared {
    fn nothing(_: usize) -> Self {
        Self
    }

    fn recovered(&self, _: usize, _: &VerifyingKey) {}

    pub(super) fn wants_preparing(&self) -> bool {
        false
    }

    pub(super) fn prepare(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_share_known_signers() {
        let addresses = |last| (100..last).map(|byte| Address([byte; 20])).collect::<Vec<_>>();
        let known = Members::of(addresses(104));
        assert!(Arc::ptr_eq(&known, &Members::of(addresses(104))));
        assert!(!Arc::ptr_eq(&known, &Members::of(addresses(103))));
        let before = Arc::downgrade(&known);
        drop(known);
        assert!(before.upgrade().is_none());
    }
}
