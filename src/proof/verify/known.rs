//! A signer set's members.
//!
//! # Invariants
//!
//! * **Shared.** Everything that verifies by the same addresses shares what is known of them, wherever it was made: that changes
//!   how fast a verdict is reached and nothing else.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use k256::ecdsa::VerifyingKey;

use super::hash::Address;
use super::preparing::Prepared;
use super::signature::address_of;

/// The members of one signer set, and what is known of them beyond their addresses.
pub(super) struct Known {
    addresses: Vec<Address>,
    /// The keys that were recovered often, and what was made of them.
    pub(super) prepared: Prepared,
}

/// Every set in use.
static SETS: Mutex<Vec<Weak<Known>>> = Mutex::new(Vec::new());

impl Known {
    /// What is known of the members with these addresses, in this order, if the set is in use.
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

    /// Nothing is known yet of the members with these addresses.
    pub(super) fn nothing(addresses: Vec<Address>) -> Self {
        Self { prepared: Prepared::nothing(addresses.len()), addresses }
    }

    /// The members, as they were listed.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The member whose key was recovered, if it is a member's.
    pub(super) fn recovered(&self, key: &VerifyingKey) -> Option<usize> {
        let address = address_of(key);
        let member = self.addresses.iter().position(|member| *member == address)?;
        self.prepared.recovered(member, key);
        Some(member)
    }

    /// Whether there are keys that are worth preparing.
    pub(super) fn wants_preparing(&self) -> bool {
        self.prepared.wants_preparing()
    }

    /// Prepares them.
    pub(super) fn prepare(&self) {
        self.prepared.prepare();
    }

    /// Learns the order that the network signs in, from the members that signed proofs.
    #[cfg(test)]
    pub(super) fn learn<'a>(&self, proofs: impl IntoIterator<Item = &'a [usize]>) {
        self.prepared.learn(proofs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_share_what_is_known_as_long_as_one_of_them_is_there() {
        let addresses = |last| (100..last).map(|byte| Address([byte; 20])).collect::<Vec<_>>();
        let known = Known::of(addresses(104));
        assert!(Arc::ptr_eq(&known, &Known::of(addresses(104))));
        assert!(!Arc::ptr_eq(&known, &Known::of(addresses(103))));
        let before = Arc::downgrade(&known);
        drop(known);
        assert!(before.upgrade().is_none());
    }
}
