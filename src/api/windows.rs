//! A walk through a channel's events by the second in which they were created.
//!
//! Search gives the newest events of a span of seconds, cut to a page. The walk asks for one window of seconds after the
//! other, up or down, without a gap between them, and hands the events out in the order of their offsets.
//!
//! # Invariants
//!
//! * **Whole windows.** A window whose page is cut is halved. One second that fills a page is an error.
//! * **Offsets, not times, are the order.** An event is handed out once everything created within [`SKEW`] seconds beyond
//!   it has been seen. An event that comes even later is an error.
//! * **Bounded.** One page is in memory, and the events of [`SKEW`] seconds, or fewer of them where they are large.
//! * **No I/O.** The caller asks the service for a window, and says what the page held.

use std::collections::{BTreeMap, VecDeque};

use super::Page;
use proof::event::{Offset, RawEvent};

/// By how many seconds the order of `created` may differ from the order of offsets.
pub const SKEW: i64 = 60;

/// No event is created in this Unix second or later.
pub const END_OF_TIME: i64 = 1 << 33;

/// No event is created in this Unix second or earlier.
pub const BEFORE_TIME: i64 = -1;

/// While more bytes than this are held back, an eighth of [`SKEW`] has to do.
const HELD_BYTES: usize = 24 * 1024 * 1024;

/// Which way a walk goes through time.
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
pub struct Window {
    /// The last second before it.
    pub after: i64,
    /// Its last second.
    pub through: i64,
}

/// Why a walk cannot go on without the risk of leaving out an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InDoubt {
    /// More events were created in one second than a page holds.
    Crowded,
    /// The order of `created` differs from the order of offsets by more than [`SKEW`].
    Disordered,
}

/// A walk, and the events that it holds back.
#[derive(Debug)]
pub struct Windows {
    direction: Direction,
    /// The edge of the last window that was read: everything from the start to here has been seen.
    seen: i64,
    /// Where the walk ends.
    end: i64,
    /// The length of the next window.
    span: i64,
    /// The events of a full page.
    full: usize,
    /// `has_more` was set for a second that did not fill its page: it does not speak of the window.
    has_more_says_nothing: bool,
    /// The windows that are not settled: where each ends, and the last event in it.
    unsettled: VecDeque<(i64, Place)>,
    /// Up to here no event can be missing.
    settled: Option<Place>,
    /// The end of the last window that is settled.
    settled_edge: i64,
    /// Up to here the windows were read before, and their events that are settled may have been handed out.
    read_before: Option<i64>,
    held: BTreeMap<Place, RawEvent>,
    held_bytes: usize,
}

/// An offset in the order of the walk: negative on the way down.
type Place = i64;

impl Windows {
    /// A walk from one second to another, `limit` events a page, the first window `span` seconds long.
    pub fn new(direction: Direction, from: i64, to: i64, limit: u16, span: i64) -> Self {
        Self {
            direction,
            seen: from,
            end: to,
            span: span.max(1),
            full: limit.into(),
            has_more_says_nothing: false,
            unsettled: VecDeque::new(),
            settled: None,
            settled_edge: from,
            read_before: None,
            held: BTreeMap::new(),
            held_bytes: 0,
        }
    }

    /// The window to ask for next; `None` at the end.
    pub fn next(&self) -> Option<Window> {
        self.to(self.seen + self.direction as i64 * self.span)
    }

    /// The window from the current second to that one, or to the end; `None` if the walk is already there.
    pub fn to(&self, second: i64) -> Option<Window> {
        let end = self.read_before.unwrap_or(self.end);
        let window = match self.direction {
            Direction::Up => Window { after: self.seen, through: second.min(end) },
            Direction::Down => Window { after: second.max(end), through: self.seen },
        };
        (window.after < window.through).then_some(window)
    }

    /// Notes that a window's page is too long to be read: the next window is shorter.
    ///
    /// # Errors
    /// [`InDoubt::Crowded`], where it cannot be shorter.
    pub fn too_long(&mut self, window: Window) -> Result<(), InDoubt> {
        let span = window.through - window.after;
        self.halve(span);
        if span == 1 { Err(InDoubt::Crowded) } else { Ok(()) }
    }

    /// Takes the page of a window, and of it the events that are `wanted`. `false` where the page is cut: nothing was
    /// taken, and the next window is shorter.
    ///
    /// # Errors
    /// [`InDoubt`]: nothing was taken. The walk stands where it stood, and the same window comes next.
    pub fn read(&mut self, window: Window, page: Page, wanted: impl Fn(Offset) -> bool) -> Result<bool, InDoubt> {
        let span = window.through - window.after;
        let full = page.events.len() >= self.full;
        if full && span == 1 {
            return Err(InDoubt::Crowded);
        }
        if full || (page.has_more && !self.has_more_says_nothing) {
            self.has_more_says_nothing |= span == 1;
            self.halve(span);
            return Ok(false);
        }
        let is_settled = |event: &RawEvent| Some(self.place(event)) <= self.settled;
        if self.read_before.is_none() && page.events.iter().any(|event| wanted(event.offset) && is_settled(event)) {
            return Err(InDoubt::Disordered);
        }
        // With room for as many again and a quarter.
        if span <= self.span && page.events.len() * 5 / 2 <= self.full {
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

    /// Forgets the windows with events that are not settled. They are read again.
    pub fn forget_unsettled(&mut self) {
        self.read_before = self.read_before.or(Some(self.seen)).filter(|before| *before != self.settled_edge);
        self.seen = self.settled_edge;
        self.unsettled.clear();
        let settled = self.settled;
        self.held.retain(|place, _| Some(*place) <= settled);
        self.held_bytes = self.held.values().map(|event| event.json.len()).sum();
    }

    /// Makes the next window half as long as one of this span, or shorter.
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

    /// Moves `settled` over every window that lies far enough back; at the end over all.
    fn settle(&mut self) {
        let skew = if self.held_bytes > HELD_BYTES { SKEW / 8 } else { SKEW };
        while let Some((edge, last)) = self.unsettled.front()
            && (self.seen == self.end || (self.seen - edge).abs() >= skew)
        {
            self.settled = self.settled.max(Some(*last));
            self.settled_edge = *edge;
            self.unsettled.pop_front();
        }
    }

    /// The next events, at most `limit`, in the direction of the walk. None where more windows have to be read first.
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

    /// The offset up to which, or down to which, no event can be missing.
    pub fn settled(&self) -> Option<Offset> {
        Offset::new(self.settled?.abs())
    }

    fn place(&self, event: &RawEvent) -> Place {
        self.direction as i64 * event.offset.get()
    }
}

#[cfg(test)]
mod tests;
