//! What is known of a signer set beyond its addresses: keys that were recovered often, their multiples, and the order that
//! the network signs in.
//!
//! # Invariants
//!
//! * **Never seen in a verdict.** What is known, or not yet, changes how fast a verdict is reached and nothing else. So
//!   everything that verifies by the same addresses shares it, wherever it was made.
//! * **Keys come from recovery.** Only a key that was recovered from a signature, and whose address is a member's, is that
//!   member's key.
//! * **Bounded.** The multiples of a set take at most [`MEMORY`], however many members it has.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use k256::AffinePoint;
use k256::ecdsa::VerifyingKey;

use super::hash::Address;
use super::multiples::{Multiples, Window};
use super::order::Order;
use super::reading::GENERATOR;
use super::signature::address_of;

#[cfg(test)]
mod tests;

/// What the multiples of a set take at most, those of the generator among them, which all sets share. For ten members 5 MiB would
/// save a tenth of the additions and 6 % of the time (measured): more of the points are then far from the processor.
const MEMORY: usize = 3 << 20;

/// Who has signed so often will sign more. Making a key's multiples takes about as long as fifty recoveries.
const WORTH_MULTIPLES: u32 = 8;

/// What is known of the members of one signer set.
pub(super) struct Known {
    addresses: Vec<Address>,
    /// `None` where there are too many members.
    window: Option<Window>,
    members: Vec<Member>,
    order: Order,
}

#[derive(Default)]
struct Member {
    recovered: AtomicU32,
    /// Set once it was recovered so often that its multiples are worth it.
    key: OnceLock<AffinePoint>,
    multiples: OnceLock<Multiples>,
}

/// Every set in use.
static SETS: Mutex<Vec<Weak<Known>>> = Mutex::new(Vec::new());

impl Known {
    /// What is known of these, in this order, wherever it is in use; nothing yet, where it is not.
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

    /// Nothing is known of these yet.
    pub(super) fn nothing(addresses: Vec<Address>) -> Self {
        let window = Window::fitting(addresses.len(), MEMORY - Window::GENERATOR.bytes());
        // Without multiples no member is asked.
        let order = Order::new(if window.is_some() { addresses.len() } else { 0 });
        let members = addresses.iter().map(|_| Member::default()).collect();
        Self { addresses, window, members, order }
    }

    /// The members, as they were listed.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The order that they sign in.
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// The width of the members' digits; `None` where there are too many members.
    pub(super) fn window(&self) -> Option<Window> {
        self.window
    }

    /// Whether the multiples of any member have been made.
    pub(super) fn has_multiples(&self) -> bool {
        self.members.iter().any(|member| member.multiples.get().is_some())
    }

    /// The multiples of a member's key, where they have been made.
    pub(super) fn multiples(&self, member: usize) -> Option<&Multiples> {
        self.members[member].multiples.get()
    }

    /// The member whose key was recovered, if it is a member's.
    pub(super) fn recovered(&self, key: &VerifyingKey) -> Option<usize> {
        let address = address_of(key);
        let place = self.addresses.iter().position(|member| *member == address)?;
        let member = &self.members[place];
        if self.window.is_some() && member.recovered.load(Relaxed) < WORTH_MULTIPLES {
            let before = member.recovered.fetch_add(1, Relaxed);
            if before + 1 >= WORTH_MULTIPLES {
                member.key.get_or_init(|| *key.as_affine());
            }
        }
        Some(place)
    }

    /// Whether there are keys that are worth multiples and have none.
    pub(super) fn wants_preparing(&self) -> bool {
        self.members.iter().any(Member::wants_multiples)
    }

    /// Makes the multiples that are worth it and have not been made. Takes some milliseconds for each.
    pub(super) fn prepare(&self) {
        let Some(window) = self.window else { return };
        for member in self.members.iter().filter(|member| member.wants_multiples()) {
            LazyLock::force(&GENERATOR);
            if let Some(key) = member.key.get() {
                member.multiples.get_or_init(|| Multiples::of(key, window));
            }
        }
    }
}

impl Member {
    fn wants_multiples(&self) -> bool {
        self.key.get().is_some() && self.multiples.get().is_none()
    }
}
