//! The order that a network signs in, learned from the proofs that it has made.
//!
//! For everything that a signature can come after, it is counted what came next: after which signature of its own proof,
//! and after whose in its turn in the proof before, for a network may take turns, or keep to those that answer first. The counts fade as new ones come, so that
//! another order is learned as the first was. From them follows who is likely to have made a signature, and whether it pays
//! to ask for one member after the other rather than to recover the key.
//!
//! # Invariants
//!
//! * **Only advice.** Nothing here decides who made a signature. Counts may be lost where several threads count at once.
//! * **Never dear.** Asking goes on only as long as it has saved more than it cost, by the additions that each takes. Where
//!   an order misleads, keys are recovered until asking would have paid for a good while.

use std::iter;
use std::sync::atomic::{AtomicI32, AtomicU16, Ordering::Relaxed};

#[cfg(test)]
mod tests;

/// Who made a signature, as far as an order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// The member at this place of the signer set, for the first time in this proof.
    Member(usize),
    /// A stranger, or a member again: only recovery can tell.
    Other,
}

/// What a signature comes after.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct After {
    /// Who made the one before it in its proof; `None` for the first.
    pub(super) last: Option<Maker>,
    /// The member that was found in the same turn in the proof before, where that is known.
    pub(super) earlier: Option<usize>,
}

/// In larger sets the proof before is left out of account: the counts would take too much room.
const MOST_WITH_EARLIER: usize = 32;

/// A count at which its row is halved.
const ENOUGH: u16 = 256;

/// Recovering a key takes about as long as adding so many multiples, which have to be fetched from memory too.
const RECOVERY: i32 = 230;

/// And so many, getting ready to ask: the inverse of s, the digest's part, and the point that the signature names.
const READY: i32 = 60;

/// No more than this is kept of what asking has saved, so that an order that begins to mislead is soon found out.
const KEPT: i32 = 16 * RECOVERY;

/// So much must asking have been able to save before it is tried again.
const TO_PROVE: i32 = 64 * RECOVERY;

/// What is known of a network's order.
pub(super) struct Order {
    members: usize,
    /// By the member in the proof before (or none), by what came before (a member, another, nothing), then by what came
    /// next (a member, another).
    counts: Vec<AtomicU16>,
    /// Asking for one member costs this.
    asking: i32,
    /// What asking has saved; below zero, what it has yet to prove.
    saved: AtomicI32,
}

impl Order {
    /// Of so many members, each asked for by so many additions.
    pub(super) fn new(members: usize, additions: usize) -> Self {
        let earlier = if members <= MOST_WITH_EARLIER { members + 1 } else { 1 };
        let rows = earlier * (members + 2);
        let counts = iter::repeat_with(AtomicU16::default).take(rows * (members + 1)).collect();
        let asking = i32::try_from(additions).unwrap_or(RECOVERY);
        Self { members, counts, asking, saved: AtomicI32::new(KEPT) }
    }

    /// Whether asking is worth it.
    pub(super) fn pays(&self) -> bool {
        self.saved.load(Relaxed) >= 0
    }

    /// The members to ask for after that, the likeliest first; not those that are `found` in this proof, nor more than
    /// a recovery is worth.
    pub(super) fn likely(&self, after: After, found: &[usize]) -> impl Iterator<Item = usize> {
        let row = self.row(after);
        let other = row[self.members].load(Relaxed);
        let mut before = (u16::MAX, usize::MAX);
        let by_count = iter::from_fn(move || {
            let left = (0..self.members).filter(|member| !found.contains(member));
            let by_count = left.map(|member| (row[member].load(Relaxed), self.members - member));
            before = by_count.filter(|next| *next < before).max()?;
            (before.0 > other).then(|| self.members - before.1)
        });
        by_count.take(usize::try_from((RECOVERY - READY) / self.asking).unwrap_or_default())
    }

    /// The member that comes after that nearly always.
    pub(super) fn certain(&self, after: After) -> Option<usize> {
        let counts = self.row(after).iter().map(|count| u32::from(count.load(Relaxed)));
        let (all, most, member) = counts.enumerate().fold((0, 0, 0), |(all, most, member), (next, count)| {
            if count > most { (all + count, count, next) } else { (all + count, most, member) }
        });
        (member < self.members && most > all / 8 * 7).then_some(member)
    }

    /// After that came `next`, for which members were asked, or would have been.
    pub(super) fn learn(&self, after: After, next: Maker, asked: Asked) {
        self.count(after, next);
        self.settle(match asked {
            Asked::InVain(0) => 0,
            Asked::InVain(members) => -self.cost(members),
            Asked::Found(members) => RECOVERY - self.cost(members),
        });
    }

    /// So many members were asked beside that, in vain.
    pub(super) fn asked_in_vain(&self, members: usize) {
        self.settle(READY - self.cost(members));
    }

    fn cost(&self, members: usize) -> i32 {
        i32::try_from(members).map_or(RECOVERY, |members| READY + members * self.asking)
    }

    fn settle(&self, gain: i32) {
        let saved = self.saved.load(Relaxed);
        let now = (saved + gain).clamp(-TO_PROVE, KEPT);
        let now = if saved >= 0 && now < 0 { -TO_PROVE } else { now };
        // What every thread reads is left alone where nothing is new.
        if now != saved {
            self.saved.store(now, Relaxed);
        }
    }

    fn count(&self, after: After, next: Maker) {
        let row = self.row(after);
        let next = match next {
            Maker::Member(member) => member,
            Maker::Other => self.members,
        };
        let count = row[next].load(Relaxed);
        if count < ENOUGH {
            row[next].store(count + 1, Relaxed);
        } else if row.iter().enumerate().any(|(other, count)| other != next && count.load(Relaxed) > 0) {
            for count in row {
                count.store(count.load(Relaxed) / 2, Relaxed);
            }
        }
    }

    fn row(&self, After { last, earlier }: After) -> &[AtomicU16] {
        let earlier = earlier.filter(|_| self.members <= MOST_WITH_EARLIER).map_or(0, |member| member + 1);
        let row = match last {
            Some(Maker::Member(member)) => member,
            Some(Maker::Other) => self.members,
            None => self.members + 1,
        };
        let row = earlier * (self.members + 2) + row;
        &self.counts[row * (self.members + 1)..][..=self.members]
    }
}

/// How a maker was asked for, by one member after the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// So many, and the last of them it was.
    Found(usize),
    /// So many, and it was none of them.
    InVain(usize),
}
