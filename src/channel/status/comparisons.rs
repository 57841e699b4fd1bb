//! The results of a channel's comparisons with its sinks, as the status shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Compared, Problem};
use proof::event::{EventKey, Offset};

/// The maximum number of offsets in a log line and in the status.
pub(crate) const NAMED: usize = 5;

/// The results of a channel's comparisons in this process.
#[derive(Debug, Default)]
pub struct Comparisons {
    pub(crate) due: Option<Instant>,
    /// When the last successful comparison began.
    pub(crate) last: Option<Instant>,
    pub(crate) sinks: BTreeMap<Arc<str>, LastComparison>,
    /// Why the comparison that is due is not complete. The results in `sinks` are then those of an earlier comparison.
    pub(crate) error: Option<Problem>,
}

/// The result of the last comparison for a sink.
#[derive(Debug)]
pub(crate) struct LastComparison {
    pub(crate) at: Timestamp,
    pub(crate) events: u64,
    pub(crate) missing: u64,
    /// The listed missing events.
    pub(crate) listed: BTreeSet<EventKey>,
}

impl Comparisons {
    pub(crate) fn of(&self, sink: &str) -> Option<Compared> {
        self.sinks.get(sink).map(|found| Compared {
            at: found.at,
            events: found.events,
            missing: found.missing,
            first_missing: found.listed.iter().take(NAMED).map(|key| key.offset).collect(),
        })
    }

    /// Records that these events will be delivered to the sink late, so that they no longer count as missing.
    pub fn replayed(&mut self, sink: &str, keys: impl IntoIterator<Item = EventKey>) {
        if let Some(found) = self.sinks.get_mut(sink) {
            let replayed = keys.into_iter().filter(|key| found.listed.remove(key)).count();
            found.missing = found.missing.saturating_sub(replayed as u64);
        }
    }

    pub(crate) fn lowest_missing(&self, sink: &str) -> Option<Offset> {
        self.sinks.get(sink)?.listed.first().map(|key| key.offset)
    }
}
