//! Tracks the newest offset that the service shows for a channel, and the times at which it increased.
//!
//! # Invariants
//!
//! * **An unconfirmed offset counts briefly.** An offset counts as soon as a page shows it. If the service then does not
//!   confirm the event at this offset, the offset never counts again.
//! * **An offset that the service no longer shows is forgotten** when everything that the service shows was read.
//! * **Bounded** by [`MAX_MARKS`] and [`MAX_UNCONFIRMED`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use proof::event::Offset;

/// The maximum number of increases that are remembered with their times.
const MAX_MARKS: usize = 64;

/// The maximum number of unconfirmed offsets that are remembered.
const MAX_UNCONFIRMED: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Newest {
    /// The highest offset that a page has shown.
    shown: Option<Offset>,
    /// The highest offset whose event was confirmed.
    placed: Option<Offset>,
    unconfirmed: BTreeSet<Offset>,
    /// Offsets that some lane has not processed. The time of each entry is when the first event above the previous entry
    /// became known.
    marks: BTreeMap<Offset, Timestamp>,
}

impl Newest {
    /// Returns the highest offset that counts.
    pub(crate) fn offset(&self) -> Option<Offset> {
        self.shown.max(self.placed)
    }

    /// Returns whether the service did not confirm the event at this offset.
    pub(crate) fn is_unconfirmed(&self, offset: Option<Offset>) -> bool {
        offset.is_some_and(|offset| self.unconfirmed.contains(&offset))
    }

    /// Returns when the first known event above `cursor` became known. Returns `None` if no event above `cursor` is known.
    pub(crate) fn since(&self, cursor: Option<Offset>) -> Option<Timestamp> {
        self.marks.iter().find(|(offset, _)| Some(**offset) > cursor).map(|(_, since)| *since)
    }

    /// Records the offsets of a page. They must be in descending order.
    pub(crate) fn shown(&mut self, offsets: impl IntoIterator<Item = Offset>, now: Timestamp) {
        let highest = offsets.into_iter().find(|offset| !self.unconfirmed.contains(offset));
        self.shown = self.shown.max(highest);
        self.mark(now);
    }

    pub(crate) fn placed(&mut self, offset: Offset, now: Timestamp) {
        self.placed = self.placed.max(Some(offset));
        self.mark(now);
    }

    pub(crate) fn unconfirmed(&mut self, offset: Offset) {
        if self.unconfirmed.len() >= MAX_UNCONFIRMED {
            self.unconfirmed.clear();
        }
        self.unconfirmed.insert(offset);
        if self.shown >= Some(offset) {
            self.nothing_above();
        }
    }

    /// Records that every event that the service shows was read.
    pub(crate) fn nothing_above(&mut self) {
        self.shown = None;
        let highest = self.offset();
        self.marks.retain(|offset, _| Some(*offset) <= highest);
    }

    /// Records that every lane has processed all events up to this offset.
    pub(crate) fn dealt_with(&mut self, through: Option<Offset>) {
        self.marks.retain(|offset, _| Some(*offset) > through);
    }

    fn mark(&mut self, since: Timestamp) {
        let Some(offset) = self.offset() else { return };
        if self.marks.last_key_value().is_some_and(|(last, _)| *last >= offset) {
            return;
        }
        if self.marks.len() >= MAX_MARKS {
            // Merge each pair of marks into one mark with the earlier time. The time of the oldest mark stays exact.
            let marks: Vec<_> = std::mem::take(&mut self.marks).into_iter().collect();
            self.marks = marks.chunks(2).map(|pair| (pair[pair.len() - 1].0, pair[0].1)).collect();
        }
        self.marks.insert(offset, since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_unconfirmed_offset_is_forgotten_once_it_is_verified_and_never_counts_again() {
        let mut newest = Newest::default();
        newest.shown([at(9_000_000), at(12)], second(1));
        newest.placed(at(12), second(2));
        newest.unconfirmed(at(9_000_000));
        assert_eq!(newest.offset(), Some(at(12)));
        newest.shown([at(9_000_000), at(13), at(12)], second(3));
        assert_eq!(newest.offset(), Some(at(13)));
        assert_eq!(newest.since(Some(at(12))), Some(second(3)));
        assert_eq!(newest.since(Some(at(13))), None);
    }

    #[test]
    fn an_offset_no_longer_shown_is_forgotten_when_everything_is_read() {
        let mut newest = Newest::default();
        newest.placed(at(5), second(1));
        newest.shown([at(40)], second(2));
        newest.nothing_above();
        assert_eq!((newest.offset(), newest.since(Some(at(5)))), (Some(at(5)), None));
    }

    #[test]
    fn the_age_of_the_oldest_undelivered_event_is_exact() {
        let mut newest = Newest::default();
        for offset in 1..=100_000 {
            newest.shown([at(offset)], second(offset));
            if offset == 70_000 {
                newest.dealt_with(Some(at(69_999)));
            }
        }
        assert_eq!(newest.since(Some(at(69_999))), Some(second(70_000)));
        assert!(newest.marks.len() <= MAX_MARKS);
        newest.dealt_with(Some(at(100_000)));
        assert_eq!(newest.since(Some(at(99_999))), None);
    }
}
