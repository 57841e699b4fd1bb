//! The keys of members that were recovered often, their multiples, and the order that the network signs in.
//!
//! # Invariants
//!
//! * **Never seen in a verdict.** What is known, or not yet, changes how fast a verdict is reached and nothing else.
//! * **Keys come from recovery.** Only a key that was recovered from a signature, and whose address is a member's, is that
//!   member's key.
//! * **Bounded.** The multiples of a set take at most [`MEMORY`], however many members it has.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use k256::AffinePoint;
use k256::ecdsa::VerifyingKey;

use super::asking::GENERATOR;
use super::multiples::{Multiples, Window};
use super::order::Order;

#[cfg(test)]
mod tests;

/// The most bytes that the multiples of a set take, with those of the generator, which all sets share. For ten members 5 MiB would
/// save a tenth of the additions and 6 % of the time (measured): more of the points are then far from the processor.
const MEMORY: usize = 3 << 20;

/// Who has signed so often will sign more. Making a key's multiples takes about as long as fifty recoveries.
const WORTH_MULTIPLES: u32 = 8;

/// What is known of the members of one signer set.
pub(in crate::verify) struct Prepared {
    /// `None` if there are too many members.
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

impl Prepared {
    /// Nothing is known yet of so many members.
    pub(in crate::verify) fn nothing(members: usize) -> Self {
        let window = Window::fitting(members, MEMORY - Window::GENERATOR.bytes());
        // Without multiples no member is asked.
        let order = Order::new(if window.is_some() { members } else { 0 });
        Self { window, members: (0..members).map(|_| Member::default()).collect(), order }
    }

    /// The order that they sign in.
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// Learns the order that the network signs in, from the members that signed proofs.
    pub(in crate::verify) fn learn<'a>(&self, proofs: impl IntoIterator<Item = &'a [usize]>) {
        self.order.learn(proofs);
    }

    /// The width of the members' digits; `None` if there are too many members.
    pub(super) fn window(&self) -> Option<Window> {
        self.window
    }

    /// Whether the multiples of any member have been made.
    pub(super) fn has_multiples(&self) -> bool {
        self.members.iter().any(|member| member.multiples.get().is_some())
    }

    /// The multiples of a member's key, if they have been made.
    pub(super) fn multiples(&self, member: usize) -> Option<&Multiples> {
        self.members[member].multiples.get()
    }

    /// A member's key was recovered.
    pub(in crate::verify) fn recovered(&self, member: usize, key: &VerifyingKey) {
        let member = &self.members[member];
        if self.window.is_some() && member.recovered.load(Relaxed) < WORTH_MULTIPLES {
            let before = member.recovered.fetch_add(1, Relaxed);
            if before + 1 >= WORTH_MULTIPLES {
                member.key.get_or_init(|| *key.as_affine());
            }
        }
    }

    /// Whether there are keys that are worth multiples and have none.
    pub(in crate::verify) fn wants_preparing(&self) -> bool {
        self.members.iter().any(Member::wants_multiples)
    }

    /// Makes the multiples that are worth it and have not been made. Takes some milliseconds for each.
    pub(in crate::verify) fn prepare(&self) {
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
