//! The writes of a state as others may watch them: how long they take, and whether one hangs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::Histogram;

use crate::metrics;

/// The writes of one state.
#[derive(Debug)]
pub struct Writes {
    began: Mutex<Option<Instant>>,
    took: Histogram,
}

impl Default for Writes {
    fn default() -> Self {
        Self { began: Mutex::default(), took: metrics::commit_duration() }
    }
}

impl Writes {
    /// For how long the write in hand has been under way; `None` between writes.
    pub fn under_way(&self) -> Option<Duration> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner).map(|began| began.elapsed())
    }

    /// How long they took.
    #[must_use]
    pub fn durations(&self) -> Histogram {
        self.took.clone()
    }

    /// Watches a write.
    pub(crate) fn watch<T>(&self, write: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        self.set(Some(began));
        let written = write();
        self.set(None);
        self.took.observe(began.elapsed().as_secs_f64());
        written
    }

    fn set(&self, began: Option<Instant>) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }
}
