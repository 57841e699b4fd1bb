//! For the members of a signer set: the keys that were often recovered from signatures, the multiples of these keys, and
//! the order in which the network lists the members' signatures.
//!
//! # Invariants
//!
//! * **Never visible in a verdict.** The contents of this module affect only the speed of a verdict.
//! * **Keys come from recovery.** A member's key was recovered from a signature, and its address is the member's address.
//! * **Bounded.** The multiples of a set take at most [`MEMORY`] bytes, for any number of members.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use k256::AffinePoint;
use k256::ecdsa::VerifyingKey;

use super::multiples::{GENERATOR, Multiples, Window};
use super::order::Order;
#[cfg(target_arch = "x86_64")]
use super::sums::Point;

#[cfg(test)]
mod tests;

/// The maximum size in bytes of the multiples of a set, including the generator's multiples, which the process stores
/// only once for all sets. For ten members, 5 MiB would save 10 % of the additions but only 6 % of the time (measured),
/// because fewer of the points then fit into the processor's cache.
const MEMORY: usize = 3 << 20;

/// A key that was recovered this often gets multiples, because its signer will probably sign again. Computing the multiples
/// takes about as long as fifty recoveries.
const WORTH_MULTIPLES: u32 = 8;

/// The knowledge about the members of one signer set.
pub(crate) struct Prepared {
    /// The window for the multiples of the members' keys. `None` if the multiples of a large set would take more than
    /// [`MEMORY`] bytes.
    pub(super) window: Option<Window>,
    members: Vec<Member>,
    pub(super) order: Order,
}

#[derive(Default)]
struct Member {
    recovered: AtomicU32,
    /// Set when the key has been recovered [`WORTH_MULTIPLES`] times.
    key: OnceLock<AffinePoint>,
    multiples: OnceLock<Multiples>,
}

impl Prepared {
    /// Creates an entry for each of `members` members, without any knowledge.
    pub(crate) fn nothing(members: usize) -> Self {
        let window = Window::fitting(members, MEMORY - Window::GENERATOR.bytes());
        // Without multiples, no member is tested as the signer of a signature, so no order is needed.
        let order = Order::new(if window.is_some() { members } else { 0 });
        Self { window, members: (0..members).map(|_| Member::default()).collect(), order }
    }

    pub(super) fn has_multiples(&self) -> bool {
        self.members.iter().any(|member| member.multiples.get().is_some())
    }

    /// The multiples of a member's key, if they have been computed.
    pub(super) fn multiples(&self, member: usize) -> Option<&Multiples> {
        self.members[member].multiples.get()
    }

    /// Returns the member with this key, if the multiples of its key have been computed.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn member(&self, key: &Point) -> Option<usize> {
        (0..self.members.len()).find(|member| self.multiples(*member).is_some_and(|multiples| multiples.point() == key))
    }

    pub(crate) fn recovered(&self, member: usize, key: &VerifyingKey) {
        let member = &self.members[member];
        if self.window.is_some() && member.recovered.load(Relaxed) < WORTH_MULTIPLES {
            let before = member.recovered.fetch_add(1, Relaxed);
            if before + 1 >= WORTH_MULTIPLES {
                member.key.get_or_init(|| *key.as_affine());
            }
        }
    }

    /// Whether the key of any member was recovered often enough and has no multiples yet.
    pub(crate) fn wants_preparing(&self) -> bool {
        self.members.iter().any(Member::wants_multiples)
    }

    /// Computes the missing multiples for the members whose keys were recovered often enough. This takes some milliseconds
    /// per member.
    pub(crate) fn prepare(&self) {
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
