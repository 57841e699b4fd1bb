//! The way up through a range that polling does not show, where the service's pages hold the newest events only.
//!
//! Search can be asked for the events created in a span of seconds. The walk goes up through time in such windows, each
//! small enough that its page is not full, and hands out what lies in the range, oldest offset first.
//!
//! # Invariants
//!
//! * **From below the range.** The walk begins at a second of which the service says that nothing created until then is
//!   above the last offset read.
//! * **Whole windows.** A window whose page is full is halved. One second that fills a page cannot be told apart: the
//!   range is in doubt.
//! * **Offsets, not times, are the order.** An event is handed out once everything created up to [`SKEW`] seconds after
//!   it has been seen: time may run differently from offsets by that much. Where it runs even more differently, the
//!   range is in doubt.
//! * **Bounded.** One page, and what [`SKEW`] seconds can hold without filling a page a second, is in memory; the length
//!   of the range does not matter.
//!
//! # Cancellation
//!
//! At any point: what was seen stays seen, and nothing has been handed out that was not returned.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Offset, RawEvent};

use super::reader::ReadError;
use super::source::Source;

/// By how many seconds `created` may run ahead of the order of offsets, or behind it.
const SKEW: i64 = 60;

/// While more than this is held back, an eighth of [`SKEW`] has to do.
const HELD_BYTES: usize = 24 * 1024 * 1024;

/// Seconds that no service reaches: the walk's ceiling.
const END_OF_TIME: i64 = 1 << 33;

/// The most that search gives at once.
const SEARCH_LIMIT: u16 = 200;

/// The window that a walk begins with.
const FIRST_SPAN: i64 = 64;

/// A walk up to, and with, the lowest event that polling has shown.
#[derive(Debug)]
pub(super) struct Walk {
    /// The offset that nothing is handed out below.
    above: Option<Offset>,
    /// The last offset of the range.
    top: Offset,
    /// Everything created until this second has been seen.
    seen: i64,
    /// The length of the next window.
    span: i64,
    /// The service's `has_more` was seen not to speak of the window that was asked for.
    has_more_says_nothing: bool,
    windows: VecDeque<Window>,
    /// Nothing up to here can be missing any more.
    settled: Option<Offset>,
    held: BTreeMap<Offset, RawEvent>,
    held_bytes: usize,
}

/// A window that has been read.
#[derive(Debug)]
struct Window {
    through: i64,
    highest: Offset,
}

impl Walk {
    /// Finds the second to begin from.
    pub(super) async fn begin(source: &dyn Source, above: Option<Offset>, top: Offset) -> Result<Self, ReadError> {
        // All of the range was created later than `low`, some of it not later than `high`.
        let (mut low, mut high) = (-1, END_OF_TIME);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let newest = source.created(None, middle, 1).await?.events.first().map(|event| event.offset);
            if newest > above { high = middle } else { low = middle }
        }
        Ok(Self {
            above,
            top,
            seen: low,
            span: FIRST_SPAN,
            has_more_says_nothing: false,
            windows: VecDeque::new(),
            settled: None,
            held: BTreeMap::new(),
            held_bytes: 0,
        })
    }

    /// The next events of the range, ascending, at least one and at most `limit`; `None` where it has been walked.
    pub(super) async fn next(&mut self, source: &dyn Source, limit: u16) -> Result<Option<Vec<RawEvent>>, ReadError> {
        loop {
            let ready = self.take_settled(limit);
            if !ready.is_empty() {
                return Ok(Some(ready));
            }
            if self.settled >= Some(self.top) {
                return Ok(None);
            }
            self.read_window(source).await?;
        }
    }

    async fn read_window(&mut self, source: &dyn Source) -> Result<(), ReadError> {
        if self.seen >= END_OF_TIME {
            // Polling has shown an event that search does not.
            return Err(self.in_doubt());
        }
        let through = self.seen + self.span;
        let page = source.created(Some(self.seen), through, SEARCH_LIMIT).await?;
        let full = page.events.len() >= usize::from(SEARCH_LIMIT);
        if full && self.span == 1 {
            return Err(self.in_doubt());
        }
        if full || (page.has_more && !self.has_more_says_nothing) {
            // Said of a second that does not fill its page, it speaks of something else than this window.
            self.has_more_says_nothing |= self.span == 1;
            self.span = (self.span / 2).max(1);
            return Ok(());
        }
        if page.events.len() < usize::from(SEARCH_LIMIT / 4) {
            self.span = (self.span * 2).min(END_OF_TIME);
        }
        self.hold(page.events, through)
    }

    /// Keeps what lies in the range, and moves on.
    fn hold(&mut self, events: Vec<RawEvent>, through: i64) -> Result<(), ReadError> {
        let in_range = |event: &RawEvent| Some(event.offset) > self.above && event.offset <= self.top;
        let highest = events.first().map(|event| event.offset);
        let events: Vec<_> = events.into_iter().filter(in_range).collect();
        if events.iter().any(|event| Some(event.offset) <= self.settled) {
            return Err(self.in_doubt());
        }
        self.seen = through;
        self.windows.extend(highest.map(|highest| Window { through, highest }));
        for event in events {
            self.held_bytes += event.json.len();
            self.held.insert(event.offset, event);
        }
        self.settle();
        Ok(())
    }

    /// Moves `settled` over every window that lies far enough back.
    fn settle(&mut self) {
        let skew = if self.held_bytes > HELD_BYTES { SKEW / 8 } else { SKEW };
        while let Some(window) = self.windows.front()
            && window.through <= self.seen - skew
        {
            self.settled = self.settled.max(Some(window.highest));
            self.windows.pop_front();
        }
    }

    fn take_settled(&mut self, limit: u16) -> Vec<RawEvent> {
        let mut ready = Vec::new();
        while ready.len() < usize::from(limit)
            && let Some(lowest) = self.held.first_entry()
            && Some(*lowest.key()) <= self.settled
        {
            let event = lowest.remove();
            self.held_bytes -= event.json.len();
            ready.push(event);
        }
        ready
    }

    fn in_doubt(&self) -> ReadError {
        ReadError::InDoubt { above: self.settled.max(self.above), below: self.top }
    }
}
