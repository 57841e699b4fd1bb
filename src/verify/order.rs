//! The order that a network signs in, learned from the proofs that it has made.
//!
//! For everything that a signature can come after, it is counted what came next: after which signature of its own proof,
//! and after which proof before, for a network may take turns, or keep to those that answer first. The counts fade as new
//! ones come, so that another order is learned as the first was. From them follows who is nearly certain to have made a
//! signature, who else is likely, and whether it pays to ask for one member after the other rather than to recover the key.
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
    /// The proof before.
    pub(super) earlier: Earlier,
}

/// The proof before another, as far as an order tells proofs apart: by the members that were found in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Earlier(usize);

/// So many counts are kept of what came after different proofs. In large sets, few or none can be told apart.
const COUNTS_BY_EARLIER: usize = 1 << 16;

/// What has come less often is not certain, whatever else came.
const OFTEN: u32 = 4;

/// A count at which its row is halved.
const ENOUGH: u16 = 256;

/// Recovering a key takes about as long as adding so many multiples, which have to be fetched from memory too.
const RECOVERY: i32 = 230;

/// And so many, getting ready to ask: the inverse of s, and the digest's part.
const READY: i32 = 30;

/// And so many, holding what the multiples add up to against the signature.
const HOLDING: i32 = 8;

/// No more than this is kept of what asking has saved, so that an order that begins to mislead is soon found out.
const KEPT: i32 = 16 * RECOVERY;

/// So much must asking have been able to save before it is tried again.
const TO_PROVE: i32 = 64 * RECOVERY;

/// What is known of a network's order.
pub(super) struct Order {
    members: usize,
    /// Whatever the proof before: by what came before (a member, another, nothing), then by what came next (a member,
    /// another).
    counts: Vec<AtomicU16>,
    /// The same, by the proof before.
    counts_by_earlier: Vec<AtomicU16>,
    /// Asking for one member costs this.
    asking: i32,
    /// What asking has saved; below zero, what it has yet to prove.
    saved: AtomicI32,
}

impl Order {
    /// Of so many members, each asked for by so many additions.
    pub(super) fn new(members: usize, additions: usize) -> Self {
        let size = (members + 2) * (members + 1);
        let earlier = (COUNTS_BY_EARLIER / size).max(1);
        let counts = |of: usize| iter::repeat_with(AtomicU16::default).take(of * size).collect();
        let asking = i32::try_from(additions).map_or(RECOVERY, |additions| additions + HOLDING);
        Self { members, counts: counts(1), counts_by_earlier: counts(earlier), asking, saved: AtomicI32::new(KEPT) }
    }

    /// Whether asking is worth it.
    pub(super) fn pays(&self) -> bool {
        self.saved.load(Relaxed) >= 0
    }

    /// What is kept of a proof for the one that follows it.
    pub(super) fn earlier(&self, found: &[usize]) -> Earlier {
        let number = |before: usize, member: &usize| before.wrapping_mul(self.members + 1).wrapping_add(member + 1);
        Earlier(found.iter().fold(0, number))
    }

    /// The members to ask for after that, the likeliest first; not those that are `found` in this proof, nor more than
    /// a recovery is worth.
    pub(super) fn likely(&self, after: After, found: &[usize]) -> impl Iterator<Item = usize> {
        let certain = self.certain(after).filter(|member| !found.contains(member));
        let row = self.row(after.last);
        let other = row[self.members].load(Relaxed);
        let mut before = (u16::MAX, usize::MAX);
        let by_count = iter::from_fn(move || {
            let left = (0..self.members).filter(|member| !found.contains(member) && Some(*member) != certain);
            let by_count = left.map(|member| (row[member].load(Relaxed), self.members - member));
            before = by_count.filter(|next| *next < before).max()?;
            (before.0 > other).then(|| self.members - before.1)
        });
        let most = usize::try_from((RECOVERY - READY) / self.asking).unwrap_or_default();
        certain.into_iter().chain(by_count).take(most)
    }

    /// The member that comes after that nearly always.
    pub(super) fn certain(&self, after: After) -> Option<usize> {
        let counts = self.row_by_earlier(after).iter().map(|count| u32::from(count.load(Relaxed)));
        let (all, most, member) = counts.enumerate().fold((0, 0, 0), |(all, most, member), (next, count)| {
            if count > most { (all + count, count, next) } else { (all + count, most, member) }
        });
        (member < self.members && most >= OFTEN && most * 8 > all * 7).then_some(member)
    }

    /// After that came `next`, for which members were asked, or would have been.
    pub(super) fn learn(&self, after: After, next: Maker, asked: Asked) {
        for row in [self.row(after.last), self.row_by_earlier(after)] {
            self.count(row, next);
        }
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

    fn count(&self, row: &[AtomicU16], next: Maker) {
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

    fn row(&self, last: Option<Maker>) -> &[AtomicU16] {
        &self.counts[self.place(last)..][..=self.members]
    }

    fn row_by_earlier(&self, After { last, earlier: Earlier(number) }: After) -> &[AtomicU16] {
        let told_apart = self.counts_by_earlier.len() / self.counts.len();
        &self.counts_by_earlier[number % told_apart * self.counts.len() + self.place(last)..][..=self.members]
    }

    fn place(&self, last: Option<Maker>) -> usize {
        let row = match last {
            Some(Maker::Member(member)) => member,
            Some(Maker::Other) => self.members,
            None => self.members + 1,
        };
        row * (self.members + 1)
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
