//! The gaps of a channel: ranges of skipped offsets in which events may still become visible.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use ledger::{History, KnownEvent};
use net::tasks::lock;
use proof::event::{EventKey, Offset};

/// The maximum number of gaps. The newest gaps are kept, because a service shows only its newest events out of order.
const MAX_GAPS: usize = 1_000;

/// An offset that is more than this above the previous offset may be a fault of the service.
pub(crate) const FAR: i64 = 1 << 40;

/// How long a gap below one of the last possible offsets is searched.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[derive(Debug, Default)]
pub(crate) struct Gaps {
    open: Mutex<VecDeque<Gap>>,
    /// The highest offset at which a confirmed event was read. Reading may have passed unconfirmed events above this offset.
    confirmed: Mutex<Option<Offset>>,
    /// The events that the service does not confirm. They are quarantined, and do not close gaps.
    unconfirmed: Mutex<BTreeSet<EventKey>>,
    added: Notify,
    /// Locked while an event that was found in a gap becomes a late event: from the closing of the gap until the late event
    /// is committed.
    /// Otherwise a lane that reads the event meanwhile would find neither the gap nor the late event.
    pub(crate) closing: tokio::sync::Mutex<()>,
}

/// A range between two offsets in which no event was visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// `None` if the gap is below the channel's first event.
    pub(super) above: Option<Offset>,
    pub(super) below: Offset,
    /// If the gap was searched only in part: the offset up to which it was searched, and when the search of its first part began.
    looked_through: Option<(Offset, Instant)>,
    /// When the search for events in this gap ends.
    until: Instant,
    /// The time of the event at `below`, in Unix seconds, if it has one.
    pub(super) time: Option<i64>,
}

impl Gap {
    fn between(above: Option<Offset>, below: Offset, until: Instant, time: Option<i64>) -> Option<Self> {
        (below.before() > above).then_some(Self { above, below, looked_through: None, until, time })
    }

    fn holds(&self, offset: Offset) -> bool {
        self.above < Some(offset) && offset < self.below
    }

    /// Returns whether the gap ends at one of the last possible offsets. Nearly no event can follow there, so the later events
    /// of the channel appear in the gap. The search for them never ends. Otherwise, a few unsigned events with such offsets
    /// would silence the channel.
    fn is_last(below: Offset) -> bool {
        below.get() > i64::MAX - FAR
    }

    /// Returns when the search ends in a gap below an offset that was just read. Returns `None` if gaps are not searched.
    fn ends(below: Offset, settle: Duration) -> Option<Instant> {
        let time = if Self::is_last(below) { FOR_EVER } else { settle };
        (!time.is_zero()).then(|| Instant::now() + time)
    }

    /// Returns the parts of the gap that remain without an offset. Returns the whole gap if the offset is not in it.
    fn without(self, offset: Offset) -> impl Iterator<Item = Self> {
        let part = |above, below| Self::between(above, below, self.until, self.time);
        let is_cut = self.holds(offset);
        let parts =
            if is_cut { [part(self.above, offset), part(Some(offset), self.below)] } else { [Some(self), None] };
        parts.into_iter().flatten()
    }

    /// Returns the offset above which the next search begins.
    pub(super) fn begin(&self) -> Option<Offset> {
        self.looked_through.map(|(offset, _)| offset).or(self.above)
    }
}

impl Gaps {
    /// Adds the gap between `previous` and the first of these events, and the gaps between the events. `events` contains the
    /// offset and the time of each event that was read, in ascending order. Also stores the last offset as confirmed.
    pub(crate) fn note(
        &self,
        mut previous: Option<Offset>,
        events: impl Iterator<Item = (Offset, Option<i64>)>,
        settle: Duration,
    ) {
        let (mut gaps, mut found) = (lock(&self.open), false);
        // Gaps above `previous` are from a range that was not passed on, and is read again. Events may have become visible since.
        gaps.retain(|gap| Some(gap.below) <= previous);
        for (offset, time) in events {
            let gap = Gap::ends(offset, settle).and_then(|until| Gap::between(previous, offset, until, time));
            if let Some(gap) = gap {
                if gaps.len() >= MAX_GAPS {
                    gaps.pop_front();
                }
                gaps.push_back(gap);
                found = true;
            }
            previous = Some(offset);
        }
        *lock(&self.confirmed) = previous;
        if found {
            self.added.notify_one();
        }
    }

    pub(crate) fn note_unconfirmed(&self, key: EventKey) {
        let mut unconfirmed = lock(&self.unconfirmed);
        unconfirmed.insert(key);
        if unconfirmed.len() > MAX_GAPS {
            unconfirmed.pop_first();
        }
    }

    pub(super) fn is_unconfirmed(&self, key: &EventKey) -> bool {
        lock(&self.unconfirmed).contains(key)
    }

    pub(crate) fn confirmed(&self) -> Option<Offset> {
        *lock(&self.confirmed)
    }

    /// Finds the gaps at or below `through` in the history. An earlier run may have stopped before their search time ended.
    pub(crate) fn begin(&self, history: &History, through: Option<Offset>, settle: Duration) {
        let events = || history.events().filter(|event| Some(event.key.offset) <= through);
        let gap = |event: &KnownEvent| {
            let below = event.key.offset;
            // The known events in such a gap were found there. The history may have forgotten earlier events.
            let found = || events().map(|event| event.key.offset).filter(|offset| *offset < below).max();
            let above = if Gap::is_last(below) { event.previous.max(found()) } else { event.previous };
            Gap::between(above, below, Gap::ends(below, settle)?, None)
        };
        let mut gaps: VecDeque<Gap> = events().filter_map(gap).collect();
        for event in events() {
            gaps = gaps.into_iter().flat_map(|gap| gap.without(event.key.offset)).collect();
        }
        if !gaps.is_empty() {
            *lock(&self.open) = gaps;
            self.added.notify_one();
        }
    }

    pub(super) async fn lowest(&self) -> Gap {
        loop {
            let added = self.added.notified();
            if let Some(gap) = lock(&self.open).front() {
                return *gap;
            }
            added.await;
        }
    }

    /// Returns the two offsets of each gap that is being searched.
    pub(crate) fn open(&self) -> Vec<(Option<Offset>, Offset)> {
        lock(&self.open).iter().map(|gap| (gap.above, gap.below)).collect()
    }

    pub(super) fn holds(&self, offset: Offset) -> bool {
        lock(&self.open).iter().any(|gap| gap.holds(offset))
    }

    /// Closes a gap at an offset at which an event was found. Returns `false` if the offset is in no gap, because the event
    /// was already found.
    pub(super) fn take(&self, offset: Offset) -> bool {
        let mut gaps = lock(&self.open);
        let is_open = gaps.iter().any(|gap| gap.holds(offset));
        if is_open {
            *gaps = gaps.drain(..).flat_map(|gap| gap.without(offset)).collect();
        }
        is_open
    }

    /// Records that a search covered everything from one offset to another. The search began at `at`. Removes the covered
    /// gaps whose search time had ended before the search of their first part began. Each part of a gap is therefore searched a
    /// last time after the search time has ended.
    pub(super) fn looked_at(&self, at: Instant, from: Option<Offset>, to: Offset) {
        let mut gaps = lock(&self.open);
        let (mut later, mut looked_at) = (VecDeque::new(), Vec::new());
        for mut gap in gaps.drain(..) {
            let began = gap.looked_through.map_or(at, |(_, began)| began);
            if from > gap.begin() || Some(to) <= gap.begin() {
                later.push_back(gap);
            } else if to < gap.below {
                gap.looked_through = Some((to, began));
                looked_at.push(gap);
            } else if gap.until > began {
                gap.looked_through = None;
                looked_at.push(gap);
            }
        }
        later.extend(looked_at);
        *gaps = later;
    }

    /// Moves the first gap behind the other gaps, because its search failed. The gap is searched again, even if its search time
    /// has ended.
    pub(super) fn turn(&self) {
        let mut gaps = lock(&self.open);
        let first = gaps.pop_front();
        gaps.extend(first);
    }

    /// Moves the first gap behind the other gaps, because a search could not cover it. Removes the gap if its search time has
    /// ended.
    pub(super) fn put_off(&self, at: Instant) {
        let mut gaps = lock(&self.open);
        if let Some(gap) = gaps.pop_front().filter(|gap| gap.until > at) {
            gaps.push_back(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Change, Ledger};

    fn offset(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    fn read(gaps: &Gaps, previous: Option<i64>, offsets: &[i64]) {
        let events = offsets.iter().map(|number| (offset(*number), None));
        gaps.note(previous.map(offset), events, Duration::from_secs(30));
    }

    fn open(gaps: &Gaps) -> Vec<(i64, i64)> {
        let number = |offset: Option<Offset>| offset.map_or(-1, Offset::get);
        lock(&gaps.open).iter().map(|gap| (number(gap.above), gap.below.get())).collect()
    }

    #[test]
    fn missing_offsets_between_read_events_are_gaps_until_found() {
        let gaps = Gaps::default();
        read(&gaps, None, &[5, 6, 9]);
        read(&gaps, Some(9), &[10, 14]);
        assert_eq!(open(&gaps), [(-1, 5), (6, 9), (10, 14)]);
        assert!(gaps.take(offset(12)) && gaps.take(offset(7)) && !gaps.take(offset(7)));
        assert_eq!(open(&gaps), [(-1, 5), (7, 9), (10, 12), (12, 14)]);
        assert!(gaps.holds(offset(8)) && !gaps.holds(offset(7)) && !gaps.holds(offset(9)));
    }

    #[test]
    fn a_gap_is_checked_a_last_time_when_settle_ends() {
        let gaps = Gaps::default();
        read(&gaps, Some(1), &[3, 5, 7]);
        let now = Instant::now();
        gaps.looked_at(now, Some(offset(1)), offset(5));
        assert_eq!(open(&gaps), [(5, 7), (1, 3), (3, 5)], "gaps that were not searched are first");
        gaps.looked_at(now + Duration::from_secs(60), Some(offset(1)), offset(4));
        assert_eq!(open(&gaps), [(5, 7), (3, 5)]);
    }

    #[test]
    fn a_range_that_is_read_again_replaces_its_gaps() {
        let gaps = Gaps::default();
        read(&gaps, Some(1), &[3, 5, 8]);
        read(&gaps, Some(3), &[4, 5, 8]);
        assert_eq!(open(&gaps), [(1, 3), (5, 8)], "the event at offset 4 was read in order");
    }

    #[test]
    fn a_gap_that_was_searched_in_parts_is_searched_a_last_time_from_its_start() {
        let gaps = Gaps::default();
        read(&gaps, Some(1), &[9]);
        let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        gaps.looked_at(early, Some(offset(1)), offset(5));
        gaps.looked_at(late, Some(offset(5)), offset(9));
        assert_eq!(open(&gaps), [(1, 9)], "an event can have become visible in the first part since");
        gaps.looked_at(late, Some(offset(1)), offset(5));
        gaps.looked_at(late, Some(offset(5)), offset(9));
        assert_eq!(open(&gaps), []);
    }

    #[test]
    fn the_gap_below_the_last_offsets_is_searched_for_ever_and_is_not_searched_again_from_its_start() {
        let (gaps, later) = (Gaps::default(), Instant::now() + Duration::from_secs(24 * 3600));
        let last = offset(i64::MAX);
        gaps.note(Some(offset(3)), [(last, None)].into_iter(), Duration::ZERO);
        gaps.looked_at(later, Some(offset(3)), last);
        gaps.put_off(later);
        assert!(gaps.take(offset(7)) && !gaps.take(offset(7)));
        assert_eq!(open(&gaps), [(3, 7), (7, i64::MAX)]);

        let known = |offset, previous| KnownEvent { key: EventKey { offset, id: None }, previous, digest: None };
        let mut ledger = Ledger::default();
        let read = Change::Read(vec![known(last, Some(offset(3)))]);
        ledger.apply(ledger::Commit(vec![read])).unwrap();
        ledger.apply(ledger::Commit(vec![Change::Appeared(known(offset(7), Some(offset(6))))])).unwrap();
        let gaps = Gaps::default();
        gaps.begin(ledger.history(), Some(last), Duration::ZERO);
        assert_eq!(open(&gaps), [(7, i64::MAX)]);
    }

    #[test]
    fn gaps_among_remembered_events_survive_a_restart() {
        let mut ledger = Ledger::default();
        let known = |number, previous: i64| KnownEvent {
            key: EventKey { offset: offset(number), id: None },
            previous: Some(offset(previous)),
            digest: None,
        };
        let read = Change::Read(vec![known(5, 2), known(6, 5), known(9, 6), known(20, 9)]);
        ledger.apply(ledger::Commit(vec![read])).unwrap();
        ledger.apply(ledger::Commit(vec![Change::Appeared(known(7, 6))])).unwrap();
        let gaps = Gaps::default();
        gaps.begin(ledger.history(), Some(offset(9)), Duration::from_secs(30));
        assert_eq!(open(&gaps), [(2, 5), (7, 9)]);
    }
}
