//! The results of a channel's comparisons in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::status::Compared;
use proof::event::{EventKey, Offset};

/// The maximum number of offsets in a log line and in the status.
pub(super) const NAMED: usize = 5;

/// The results of a channel's comparisons in this process.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    /// When the next comparison begins.
    pub(super) due: Option<Instant>,
    /// When the last successful comparison began.
    pub(super) last: Option<Instant>,
    pub(super) sinks: BTreeMap<Arc<str>, Found>,
}

/// The result of the last comparison for a sink.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: Timestamp,
    pub(super) events: u64,
    pub(super) missing: u64,
    /// The first missing events.
    pub(super) listed: BTreeSet<EventKey>,
}

impl Comparisons {
    /// Returns the result for a sink, for an operator.
    pub(crate) fn of(&self, sink: &str) -> Option<Compared> {
        self.sinks.get(sink).map(|found| Compared {
            at: found.at,
            events: found.events,
            missing: found.missing,
            first_missing: found.listed.iter().take(NAMED).map(|key| key.offset).collect(),
        })
    }

    /// Records that these events will be delivered late to a sink: they are not missing any more.
    pub(crate) fn replayed(&mut self, sink: &str, keys: impl IntoIterator<Item = EventKey>) {
        if let Some(found) = self.sinks.get_mut(sink) {
            let replayed = keys.into_iter().filter(|key| found.listed.remove(key)).count();
            found.missing = found.missing.saturating_sub(replayed as u64);
        }
    }

    pub(super) fn lowest_missing(&self, sink: &str) -> Option<Offset> {
        self.sinks.get(sink)?.listed.first().map(|key| key.offset)
    }
}
