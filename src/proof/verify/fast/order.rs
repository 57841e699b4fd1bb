//! The order in which a network lists its signatures, learned from its proofs. The order determines which member is
//! tested first for a signature.
//!
//! For each member, and for the start of a proof, the members that came next are counted. If the network lists its
//! signatures in a fixed order, members are tested in that order. If it does not, any order is equally good.
//!
//! # Invariants
//!
//! * **Only advice.** Nothing here decides who made a signature.

use std::sync::{Mutex, PoisonError};

/// When a count reaches this value, all counts in its row are halved. A new order is then learned as easily as the first
/// one.
const ENOUGH: u16 = 1 << 10;

#[derive(Debug)]
pub(super) struct Order(Mutex<Rows>);

/// A row for each previous member, and a last row for the start of a proof. Each row lists the members, and how often
/// each came next, the most frequent member first.
type Rows = Vec<Vec<(usize, u16)>>;

pub(super) struct Snapshot(Rows);

impl Order {
    pub(super) fn new(members: usize) -> Self {
        let row = (0..members).map(|member| (member, 0)).collect();
        Self(Mutex::new(vec![row; members + 1]))
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Learns from proofs. Each item lists the members that made the signatures of one proof.
    pub(super) fn learn<'a>(&self, proofs: impl IntoIterator<Item = &'a [usize]>) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for found in proofs {
            let none = rows.len() - 1;
            let before = std::iter::once(none).chain(found.iter().copied());
            before.zip(found).for_each(|(before, member)| count(&mut rows[before], *member));
        }
    }
}

fn count(row: &mut [(usize, u16)], member: usize) {
    let mut at = row.iter().position(|(known, _)| *known == member).expect("each row has each member");
    row[at].1 += 1;
    while at > 0 && row[at - 1].1 < row[at].1 {
        row.swap(at - 1, at);
        at -= 1;
    }
    if row[at].1 >= ENOUGH {
        for (_, times) in row {
            *times /= 2;
        }
    }
}

impl Snapshot {
    /// The average number of members to test for one signature, according to the learned order. Returns 0 if nothing was
    /// learned.
    pub(super) fn expected(&self) -> usize {
        let places = || self.0.iter().flat_map(|row| (1..).zip(row));
        let times: usize = places().map(|(_, (_, times))| usize::from(*times)).sum();
        let asked: usize = places().map(|(place, (_, times))| place * usize::from(*times)).sum();
        asked.checked_div(times).unwrap_or_default()
    }

    /// For the signature that follows the signatures of the members `found`, returns the member to test after `turn`
    /// other members have been tested.
    pub(super) fn likely(&self, found: &[usize], turn: usize) -> Option<usize> {
        let row = &self.0[found.last().copied().unwrap_or(self.0.len() - 1)];
        row.get(turn).map(|(member, _)| *member)
    }
}

#[cfg(test)]
mod tests {
    //! Which member to test first.

    use super::*;

    fn asked(order: &Order, found: &[usize]) -> Vec<usize> {
        let snapshot = order.snapshot();
        (0..).map_while(|turn| snapshot.likely(found, turn)).collect()
    }

    #[test]
    fn every_member_is_tried_once_without_a_learned_order() {
        assert_eq!(asked(&Order::new(4), &[]), [0, 1, 2, 3]);
        assert_eq!(asked(&Order::new(4), &[2]), [0, 1, 2, 3]);
    }

    #[test]
    fn the_most_frequent_successor_is_tried_first() {
        let order = Order::new(4);
        order.learn([&[2, 0, 3][..], &[2, 3], &[2, 3], &[1]]);
        assert_eq!(asked(&order, &[])[..2], [2, 1]);
        assert_eq!(asked(&order, &[1, 2])[..2], [3, 0]);
        assert_eq!(asked(&order, &[0])[0], 3);
    }

    #[test]
    fn a_new_order_is_learned_after_any_time() {
        let order = Order::new(3);
        (0..100_000).for_each(|_| order.learn([&[0, 1][..]]));
        (0..ENOUGH).for_each(|_| order.learn([&[0, 2][..]]));
        assert_eq!(asked(&order, &[0]), [2, 1, 0]);
    }

    #[test]
    fn the_expected_number_of_trials_detects_an_order() {
        let (none, order, cycle) = (Order::new(31), Order::new(31), [0, 1, 2, 3, 4]);
        assert_eq!(none.snapshot().expected(), 0);
        (0..31).for_each(|first| {
            none.learn((0..31).map(|next| [first, next]).collect::<Vec<_>>().iter().map(|two| &two[..]));
        });
        order.learn([&cycle[..]; 100]);
        assert_eq!((none.snapshot().expected(), order.snapshot().expected()), (16, 1));
    }
}
