//! How far the service says that a channel goes, as far as it is to be believed, and since when that is known.
//!
//! # Invariants
//!
//! * **One nonsense record spoils nothing for long.** An offset that the service shows but does not confirm counts only
//!   until it has been judged, and never again.
//! * **What has gone is forgotten.** Once everything that the service shows has been read, nothing is known to be above it.
//! * **Bounded.** [`MAX_MARKS`] and [`MAX_DISBELIEVED`].

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;

use crate::event::Offset;

/// Steps of the channel's growth that are remembered each with its time.
const MAX_MARKS: usize = 64;

/// Offsets that are remembered as nonsense.
const MAX_DISBELIEVED: usize = 1_000;

/// How far a channel goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// The highest offset that a page has shown.
    shown: Option<Offset>,
    /// The highest that was found in its place.
    placed: Option<Offset>,
    disbelieved: BTreeSet<Offset>,
    /// Ascending, above what every lane has dealt with.
    marks: VecDeque<Mark>,
}

/// The channel was known to go as far as this, at the latest since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    offset: Offset,
    since: Timestamp,
}

impl Newest {
    /// The highest offset that is believed.
    #[must_use]
    pub fn offset(&self) -> Option<Offset> {
        self.shown.max(self.placed)
    }

    /// Since when it is known that there is something above `cursor`; `None` where nothing is known to be.
    #[must_use]
    pub fn since(&self, cursor: Option<Offset>) -> Option<Timestamp> {
        self.marks.iter().find(|mark| Some(mark.offset) > cursor).map(|mark| mark.since)
    }

    /// A page has shown these offsets, descending.
    pub(super) fn shown(&mut self, offsets: impl IntoIterator<Item = Offset>, now: Timestamp) {
        let believed = offsets.into_iter().find(|offset| !self.disbelieved.contains(offset));
        self.shown = self.shown.max(believed);
        self.mark(now);
    }

    /// An event was found in its place.
    pub(super) fn placed(&mut self, offset: Offset, now: Timestamp) {
        self.placed = self.placed.max(Some(offset));
        self.mark(now);
    }

    /// The service does not confirm that there is an event at this offset, though it shows one.
    pub(super) fn disbelieve(&mut self, offset: Offset) {
        if self.disbelieved.len() >= MAX_DISBELIEVED {
            self.disbelieved.clear();
        }
        self.disbelieved.insert(offset);
        if self.shown >= Some(offset) {
            self.nothing_above();
        }
    }

    /// Everything that the service shows has been read.
    pub(super) fn nothing_above(&mut self) {
        self.shown = None;
        let highest = self.offset();
        self.marks.retain(|mark| Some(mark.offset) <= highest);
    }

    /// Every lane has dealt with what is up to this offset.
    pub(super) fn dealt_with(&mut self, through: Option<Offset>) {
        while self.marks.front().is_some_and(|mark| Some(mark.offset) <= through) {
            self.marks.pop_front();
        }
    }

    fn mark(&mut self, since: Timestamp) {
        let Some(offset) = self.offset() else { return };
        if self.marks.back().is_some_and(|mark| mark.offset >= offset) {
            return;
        }
        if self.marks.len() >= MAX_MARKS {
            self.thin_out();
        }
        self.marks.push_back(Mark { offset, since });
    }

    /// Makes one of each two, with the earlier time: the oldest, which counts most, stays as it is.
    fn thin_out(&mut self) {
        let marks = self.marks.make_contiguous();
        let paired = marks.chunks(2).map(|pair| Mark { offset: pair[pair.len() - 1].offset, since: pair[0].since });
        self.marks = paired.collect();
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
    fn a_nonsense_offset_is_forgotten_once_it_is_judged_and_not_believed_again() {
        let mut newest = Newest::default();
        newest.shown([at(9_000_000), at(12)], second(1));
        newest.placed(at(12), second(2));
        newest.disbelieve(at(9_000_000));
        assert_eq!(newest.offset(), Some(at(12)));
        newest.shown([at(9_000_000), at(13), at(12)], second(3));
        assert_eq!(newest.offset(), Some(at(13)));
        assert_eq!(newest.since(Some(at(12))), Some(second(3)));
        assert_eq!(newest.since(Some(at(13))), None);
    }

    #[test]
    fn what_the_service_shows_no_more_is_forgotten_when_all_has_been_read() {
        let mut newest = Newest::default();
        newest.placed(at(5), second(1));
        newest.shown([at(40)], second(2));
        newest.nothing_above();
        assert_eq!((newest.offset(), newest.since(Some(at(5)))), (Some(at(5)), None));
    }

    #[test]
    fn since_when_the_oldest_waits_is_exact_however_much_comes_after_it() {
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
