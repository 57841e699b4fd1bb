//! Divides time into windows that a page searches one after another, from newer to older.
//!
//! # Invariants
//!
//! * **No gap, no overlap.** A window ends where the newer window begins. The oldest window is bounded only by the filter.

use jiff::{SignedDuration, Timestamp};

use super::filter::{Filter, Place};
use super::sample::Sample;

/// The largest number of rows on a page.
pub(crate) const MOST_ROWS: usize = 200;

/// The factor by which each window is wider than the previous one.
const WIDER: i32 = 8;

/// The smallest width of the first window.
const NARROWEST: SignedDuration = SignedDuration::from_secs(10);

/// The rows between two times, newest first: later than `after`, and not later than `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Times {
        after: Option<Timestamp>,
        through: Option<Timestamp>,
    },
    /// The rows whose time is not known.
    Timeless,
}

/// Time windows, newest first, and finally the rows without a time.
pub(super) struct Windows {
    next: Option<Window>,
    width: SignedDuration,
    /// The exclusive lower bound of the filter.
    floor: Option<Timestamp>,
    has_timeless: bool,
}

impl Windows {
    pub(super) fn over(sample: &Sample, filter: &Filter, below: Option<&Place>, few: bool) -> Self {
        let newest = sample.rows.iter().filter_map(|row| row.time).max();
        let through = match below {
            Some(Place { time: None, .. }) => {
                return Self { next: Some(Window::Timeless), width: NARROWEST, floor: None, has_timeless: false };
            }
            Some(Place { time, .. }) => *time,
            None => filter.to,
        };
        // The first window is about one page deep if the whole table is as dense as its newest rows.
        let mut times: Vec<_> = sample.rows.iter().filter_map(|row| row.time).collect();
        times.sort_unstable();
        let page = times.len().checked_sub(MOST_ROWS + 50).and_then(|at| times.get(at).copied());
        let width = newest.zip(page).map_or(NARROWEST, |(newest, page)| newest.duration_since(page).max(NARROWEST));
        let top = match (through, newest) {
            (Some(through), Some(newest)) => Some(through.min(newest)),
            (through, newest) => through.or(newest),
        };
        let has_timeless = filter.from.is_none() && filter.to.is_none();
        let is_all = few || sample.is_all();
        let after = if is_all { None } else { top.and_then(|top| top.checked_sub(width).ok()) };
        let after = after.max(filter.from.map(just_before));
        Self { next: Some(Window::Times { after, through }), width, floor: filter.from.map(just_before), has_timeless }
    }

    pub(super) fn next(&mut self) -> Option<Window> {
        let window = self.next.take()?;
        if let Window::Times { after, .. } = window {
            self.next = match after {
                None => self.has_timeless.then_some(Window::Timeless),
                Some(after) if Some(after) <= self.floor => None,
                Some(through) => {
                    self.width = self.width.saturating_mul(WIDER);
                    let after = through.checked_sub(self.width).ok().max(self.floor);
                    Some(Window::Times { after, through: Some(through) })
                }
            };
        }
        Some(window)
    }

    /// If this window was not searched completely, the time above which everything was searched.
    pub(super) fn looked_to(window: Window) -> Option<Timestamp> {
        match window {
            Window::Times { through, .. } => through,
            Window::Timeless => None,
        }
    }
}

/// A window excludes the time at which it begins, so an inclusive bound is moved back by a millisecond.
fn just_before(time: Timestamp) -> Timestamp {
    time.checked_sub(SignedDuration::from_millis(1)).unwrap_or(time)
}
