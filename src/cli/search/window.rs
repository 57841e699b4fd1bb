//! The search for a time: which `created.lte` shows the end of one page and what comes after it.

use crate::api::Filter;

/// How many seconds a window first reaches beyond the payload's time of the last event returned, or half of the page's
/// own seconds where these are fewer.
pub(super) const MARGIN: i64 = 60;

/// No event was created in this Unix second or before it.
const NEVER: i64 = -1;

/// No event was created after this Unix second: the end of the year 9999.
const FOREVER: i64 = 253_402_300_799;

/// The window to try: later than `floor`, which is too early, and earlier than `ceiling`, which is too late.
#[derive(Debug)]
pub(super) struct Window {
    floor: i64,
    ceiling: Option<i64>,
    next: i64,
    step: i64,
    /// Whether `floor` has been tried, and is not only the earliest that there can be.
    tried_floor: bool,
}

impl Window {
    /// Starts `margin` after `time`, the payload's time of the last event returned; `span` is how many seconds its page
    /// covers.
    pub(super) fn new(floor: i64, ceiling: Option<i64>, time: Option<i64>, span: i64, margin: Option<i64>) -> Self {
        let time = time.unwrap_or(FOREVER).clamp(floor, FOREVER);
        let half = span / 2;
        let guess = time.saturating_add(margin.unwrap_or(half.min(MARGIN)));
        let next = ceiling.map_or(guess, |ceiling| guess.min(ceiling.saturating_sub(1)));
        Self { floor, ceiling, next, step: half.max(1), tried_floor: false }
    }

    /// The next window to try; `None` where there is none left.
    pub(super) fn at(&self) -> Option<i64> {
        let above = self.next > self.floor;
        let below = self.ceiling.is_none_or(|ceiling| self.next < ceiling);
        (above && below).then_some(self.next)
    }

    pub(super) fn too_early(&mut self, at: i64) {
        (self.floor, self.tried_floor) = (at, true);
        self.choose(at);
    }

    pub(super) fn too_late(&mut self, at: i64) {
        self.ceiling = Some(at);
        self.choose(at);
    }

    /// Between two that were tried the middle; otherwise away from the one that was, in growing steps.
    fn choose(&mut self, at: i64) {
        self.next = match self.ceiling {
            Some(ceiling) if self.tried_floor => between(self.floor, ceiling),
            Some(_) => at.saturating_sub(self.step).max(self.floor.saturating_add(1)),
            None => at.saturating_add(self.step),
        };
        self.step = self.step.saturating_mul(2);
    }
}

/// The middle, rounded down; both are Unix seconds from [`NEVER`] on, so nothing overflows.
fn between(early: i64, late: i64) -> i64 {
    early + (late - early) / 2
}

/// The latest second that the filter itself allows.
pub(super) fn latest(filter: &Filter) -> Option<i64> {
    let before = filter.created.lt.map(|lt| lt.saturating_sub(1));
    filter.created.lte.into_iter().chain(before).min()
}

/// The latest second that is before all that the filter allows.
pub(super) fn earliest(filter: &Filter) -> i64 {
    let from = filter.created.gte.map(|gte| gte.saturating_sub(1));
    filter.created.gt.into_iter().chain(from).chain([NEVER]).max().unwrap_or(NEVER)
}
