//! Selects the events of a page.

use super::log::ChannelLog;
use crate::event::log_entry::LogEntry;
use crate::options::{HasMore, Options, Window};

/// The parameters of a request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    pub(crate) offset: Option<i64>,
    pub(crate) limit: usize,
}

/// How the service interprets `offset`: the open questions of spec/wire.md.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    window: Window,
    inclusive: bool,
    has_more: HasMore,
}

/// The events of a page, newest first.
pub(crate) struct Selection {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) has_more: bool,
}

/// A condition for including an event, in addition to its offset.
pub(crate) trait Condition {
    /// Returns the first and the last Unix second in which an event that meets the condition can have been recorded.
    fn noted(&self) -> Option<(i64, i64)>;

    /// Whether an event is included.
    fn holds(&self, entry: &LogEntry) -> bool;
}

/// Includes every event.
pub(crate) struct AnyEvent;

impl Condition for AnyEvent {
    fn noted(&self) -> Option<(i64, i64)> {
        None
    }

    fn holds(&self, _: &LogEntry) -> bool {
        true
    }
}

impl Rules {
    pub(crate) fn new(options: &Options) -> Self {
        Self { window: options.window, inclusive: options.inclusive, has_more: options.has_more }
    }

    /// Selects a page, and checks as few events as possible. If few events meet the condition, it can be necessary to
    /// check all events.
    pub(crate) fn select(
        self,
        log: &ChannelLog,
        request: PageRequest,
        condition: &impl Condition,
        now_ms: i64,
    ) -> Selection {
        let all = condition.noted().map_or(0..log.len(), |(from, to)| log.noted_between(from, to));
        let first = request.offset.map_or(0, |offset| log.first_above(offset, self.inclusive)).max(all.start);
        let entry = |index| log.entry(index, now_ms);
        let counts = |entry: &LogEntry| condition.holds(entry);
        let ascending = request.offset.is_some() && self.window == Window::Oldest;
        let wanted = request.limit + 1;
        let mut entries: Vec<_> = if ascending {
            (first..all.end).map(entry).filter(counts).take(wanted).collect()
        } else {
            (first..all.end).rev().map(entry).filter(counts).take(wanted).collect()
        };
        let remaining = entries.len() > request.limit;
        entries.truncate(request.limit);
        if ascending {
            entries.reverse();
        }
        let has_more = match self.has_more {
            HasMore::Remaining => remaining,
            HasMore::Older => {
                let lowest = entries.last().map_or(first, |entry| entry.index);
                (all.start..lowest).rev().map(entry).any(|entry| counts(&entry))
            }
        };
        Selection { entries, has_more }
    }
}

/// Returns the newest events or, with `below`, the newest events below this offset. `has_more` is always true, even if
/// no more events exist.
pub(crate) fn newest(
    log: &ChannelLog,
    below: Option<i64>,
    limit: usize,
    condition: &impl Condition,
    now_ms: i64,
) -> Selection {
    let noted = condition.noted().map_or(0..log.len(), |(from, to)| log.noted_between(from, to));
    let end = below.map_or(noted.end, |offset| log.first_above(offset, true).min(noted.end));
    let events = (noted.start..end).rev().map(|index| log.entry(index, now_ms)).filter(|entry| condition.holds(entry));
    Selection { entries: events.take(limit).collect(), has_more: true }
}
