//! Walks through a channel's events by the time of their creation, one range of seconds at a time.
//!
//! Search returns the newest events of a range of seconds, limited to a page. The walk requests adjacent windows of
//! seconds, in ascending or descending order, and returns the events in the order of their offsets.
//!
//! # Invariants
//!
//! * **Complete windows.** A window whose page is cut off is halved. If the events of one second fill a page, this is
//!   an error.
//! * **The order is by offset, not by time.** An event is returned only after the walk has seen [`SKEW`] more seconds
//!   beyond the event's window. If an event then appears whose offset should have come earlier, this is an error.
//! * **Bounded.** Memory contains one page and the events of [`SKEW`] seconds, or of fewer seconds if the events are
//!   large.
//! * **No I/O.** The caller requests each window from the service and passes the page to the walk.

use std::collections::{BTreeMap, VecDeque};

use super::{Page, SMALLEST_PAGE};
use proof::event::{Offset, RawEvent};

/// How far the order of `created` may differ from the order of offsets: an event may be created at most this many seconds
/// before an event with a lower offset.
pub const SKEW: i64 = 60;

/// No event is created in this Unix second or later.
pub const END_OF_TIME: i64 = 1 << 33;

/// No event is created in this Unix second or earlier.
pub const BEFORE_TIME: i64 = -1;

/// If the events that are read but not returned have more bytes than this, the walk waits only for an eighth of
/// [`SKEW`].
const HELD_BYTES: usize = 24 * 1024 * 1024;

/// The direction of a walk in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum Direction {
    /// From the oldest event to the newest.
    Up = 1,
    /// From the newest event to the oldest.
    Down = -1,
}

/// A span of Unix seconds: later than `after`, and not later than `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// The last second before the window.
    pub after: i64,
    /// The last second of the window.
    pub through: i64,
}

/// Why a walk cannot continue without the risk of missing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InDoubt {
    /// More events were created in one second than fit into a page.
    Crowded,
    /// The order of `created` differs from the order of offsets by more than [`SKEW`].
    Disordered,
}

/// A walk, and the events that it has read but not returned yet.
#[derive(Debug)]
pub struct Windows {
    direction: Direction,
    /// The edge of the last window that was read: everything from the start of the walk to this second has been seen.
    seen: i64,
    end: i64,
    span: i64,
    /// The most events of the next page.
    limit: u16,
    /// The most events of a page.
    max_limit: u16,
    /// Whether the next window is a second with more events than `limit`. Only its page then has `max_limit` events.
    is_crowded: bool,
    /// The service set `has_more` on a one-second window although the page was not full. From then on, `has_more` is
    /// ignored.
    has_more_says_nothing: bool,
    /// For each window that is not settled: its edge, and the last offset in it.
    unsettled: VecDeque<(i64, WalkOffset)>,
    /// The offset up to which no event can be missing. Events up to this offset are *settled*, and can be returned.
    settled: Option<WalkOffset>,
    /// The end of the last settled window.
    settled_edge: i64,
    /// While windows are read again: the second up to which they were read before. Their settled events may have been
    /// returned already.
    read_before: Option<i64>,
    held: BTreeMap<WalkOffset, RawEvent>,
    held_bytes: usize,
}

/// An offset in the order of the walk. It is negative if the walk is descending.
type WalkOffset = i64;

impl Windows {
    /// A walk from one second to another. Pages have `limit` events, and the first window has `span` seconds.
    pub fn new(direction: Direction, from: i64, to: i64, limit: u16, span: i64) -> Self {
        Self {
            direction,
            seen: from,
            end: to,
            span: span.max(1),
            limit,
            max_limit: limit,
            is_crowded: false,
            has_more_says_nothing: false,
            unsettled: VecDeque::new(),
            settled: None,
            settled_edge: from,
            read_before: None,
            held: BTreeMap::new(),
            held_bytes: 0,
        }
    }

    /// The window to request next, or `None` at the end.
    pub fn next(&self) -> Option<TimeWindow> {
        self.to(self.seen + self.direction as i64 * self.span)
    }

    /// The window from the walk's position to `second`, or to the end of the walk if that comes first. While windows
    /// are read again, the window also ends where the earlier reading ended. `None` if the walk has already reached
    /// this end.
    pub fn to(&self, second: i64) -> Option<TimeWindow> {
        let end = self.read_before.unwrap_or(self.end);
        let window = match self.direction {
            Direction::Up => TimeWindow { after: self.seen, through: second.min(end) },
            Direction::Down => TimeWindow { after: second.max(end), through: self.seen },
        };
        (window.after < window.through).then_some(window)
    }

    /// Records that a window's page is too long to be read. The next window is shorter.
    ///
    /// # Errors
    /// [`InDoubt::Crowded`] if it cannot be shorter.
    pub fn too_long(&mut self, window: TimeWindow) -> Result<(), InDoubt> {
        let span = window.through - window.after;
        self.halve(span);
        if span == 1 { Err(InDoubt::Crowded) } else { Ok(()) }
    }

    /// The most events to request in the next page.
    pub fn limit(&self) -> u16 {
        if self.is_crowded { self.max_limit } else { self.limit }
    }

    /// Records that a page did not arrive in time, perhaps because the line is slow. The next page has half as many events. The limit
    /// grows again with each window that is settled, and not with each page: otherwise the same page would be late again and again,
    /// because the caller [forgets](Self::forget_unsettled) the pages that arrived before it.
    pub fn timed_out(&mut self) {
        self.limit = (self.limit / 2).max(SMALLEST_PAGE).min(self.max_limit);
        self.is_crowded = false;
    }

    /// Accepts the page of a window and stores the `wanted` events. Returns `false` if the page is cut off: then nothing is
    /// stored, and the next window is shorter or its page is longer.
    ///
    /// # Errors
    /// [`InDoubt`]: nothing was stored. The position of the walk is unchanged, and the same window comes next.
    pub fn read(&mut self, window: TimeWindow, page: Page, wanted: impl Fn(Offset) -> bool) -> Result<bool, InDoubt> {
        let span = window.through - window.after;
        let full = page.events.len() >= self.limit().into();
        if full && span == 1 {
            if self.limit() == self.max_limit {
                return Err(InDoubt::Crowded);
            }
            self.is_crowded = true;
            return Ok(false);
        }
        self.is_crowded = false;
        if full || (page.has_more && !self.has_more_says_nothing) {
            self.has_more_says_nothing |= span == 1;
            self.halve(span);
            return Ok(false);
        }
        let is_settled = |event: &RawEvent| Some(self.place(event)) <= self.settled;
        if self.read_before.is_none() && page.events.iter().any(|event| wanted(event.offset) && is_settled(event)) {
            return Err(InDoubt::Disordered);
        }
        // The window doubles only if twice the number of events would still leave a fifth of the page free.
        if span <= self.span && page.events.len() * 5 / 2 <= self.limit.into() {
            self.span = (self.span * 2).min(END_OF_TIME);
        }
        self.seen = match self.direction {
            Direction::Up => window.through,
            Direction::Down => window.after,
        };
        self.hold(page.events, wanted);
        self.settle();
        self.read_before = self.read_before.filter(|before| *before != self.seen);
        Ok(true)
    }

    /// Forgets the unsettled windows. They are read again.
    pub fn forget_unsettled(&mut self) {
        self.read_before = self.read_before.or(Some(self.seen)).filter(|before| *before != self.settled_edge);
        self.seen = self.settled_edge;
        self.unsettled.clear();
        let settled = self.settled;
        self.held.retain(|place, _| Some(*place) <= settled);
        self.held_bytes = self.held.values().map(|event| event.json.len()).sum();
    }

    /// Limits the next window to half of `span`, but at least one second.
    fn halve(&mut self, span: i64) {
        self.span = self.span.min(span / 2).max(1);
    }

    fn hold(&mut self, events: Vec<RawEvent>, wanted: impl Fn(Offset) -> bool) {
        let last = events.iter().map(|event| self.place(event)).max();
        self.unsettled.extend(last.map(|last| (self.seen, last)));
        for event in events.into_iter().filter(|event| wanted(event.offset)) {
            let place = self.place(&event);
            if Some(place) > self.settled {
                self.held_bytes += event.json.len();
                self.held.insert(place, event);
            }
        }
    }

    /// Advances `settled` over every window that is old enough. At the end of the walk, advances over all windows.
    fn settle(&mut self) {
        let skew = if self.held_bytes > HELD_BYTES { SKEW / 8 } else { SKEW };
        while let Some((edge, last)) = self.unsettled.front()
            && (self.seen == self.end || (self.seen - edge).abs() >= skew)
        {
            self.settled = self.settled.max(Some(*last));
            self.settled_edge = *edge;
            self.limit = self.limit.saturating_add(1).min(self.max_limit);
            self.unsettled.pop_front();
        }
    }

    /// The next events in the direction of the walk, at most `limit`. Empty if more windows must be read first.
    pub fn take(&mut self, limit: u16) -> Vec<RawEvent> {
        let mut ready = Vec::new();
        while ready.len() < usize::from(limit)
            && let Some(next) = self.held.first_entry()
            && Some(*next.key()) <= self.settled
        {
            let event = next.remove();
            self.held_bytes -= event.json.len();
            ready.push(event);
        }
        ready
    }

    /// The last offset that the walk has completely covered: no event is missing between the start of the walk and this
    /// offset.
    pub fn settled(&self) -> Option<Offset> {
        Offset::new(self.settled?.abs())
    }

    fn place(&self, event: &RawEvent) -> WalkOffset {
        self.direction as i64 * event.offset.get()
    }
}

#[cfg(test)]
mod tests;
