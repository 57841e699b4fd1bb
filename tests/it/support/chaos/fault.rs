//! A fault that was planted, and how soon the status shows the faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The status shows each fault within this time. A fault at a database is noticed last: its statement may take 10 s, and a wait
/// for a table counts only after 10 s.
pub(crate) const VISIBLE: Duration = Duration::from_secs(15);

/// How often each kind was planted, and the longest time until the status showed it.
pub(crate) type Seen<K> = BTreeMap<K, (usize, Duration)>;

/// An active fault: its kind, the part that it concerns, and what exists while it is active.
#[derive(Debug)]
pub(crate) struct PlantedFault<K, T, H> {
    pub(crate) kind: K,
    pub(crate) target: T,
    pub(crate) held: H,
    planted: Instant,
    until: Instant,
    /// Whether the status has shown it.
    pub(crate) is_seen: bool,
}

impl<K: Copy + Ord, T, H> PlantedFault<K, T, H> {
    pub(crate) fn new(kind: K, target: T, lasts: Duration, held: H) -> Self {
        let planted = Instant::now();
        Self { kind, target, held, planted, until: planted + lasts, is_seen: false }
    }

    /// Records that the status shows the fault.
    pub(crate) fn see(&mut self, seen: &mut Seen<K>) {
        self.is_seen = true;
        let (times, longest) = seen.entry(self.kind).or_default();
        (*times, *longest) = (*times + 1, self.planted.elapsed().max(*longest));
    }

    /// The fault has had no effect until now.
    pub(crate) fn begin_again(&mut self) {
        self.planted = Instant::now();
    }

    /// Whether a status that was requested at `asked` should have shown the fault.
    pub(crate) fn is_late(&self, asked: Instant) -> bool {
        !self.is_seen && asked > self.planted + VISIBLE
    }

    /// Whether the fault has lasted long enough.
    pub(crate) fn is_over(&self) -> bool {
        self.is_seen && self.until <= Instant::now()
    }
}
