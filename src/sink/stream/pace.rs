//! How many events one append may have.
//!
//! A server that is slow, or a slow connection to it, can make a full append take longer than its time limit. The same append
//! would then fail again and again. After a failure, the next append therefore has fewer events.

use super::Appended;
use crate::{Fault, SinkError};

/// After this many appends of the current size in a row, the next one may be larger. Growing sooner would cause a failure,
/// and the wait after it, again and again.
const STEADY: u32 = 16;

/// The limit of the next append of a lane.
#[derive(Debug)]
pub(super) struct Pace {
    events: usize,
    /// How many appends of the current size succeeded in a row.
    steady: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { events: usize::MAX, steady: 0 }
    }
}

impl Pace {
    pub(super) fn events(&self) -> usize {
        self.events
    }

    /// Records the result of an append of this many events.
    pub(super) fn learn(&mut self, events: usize, appended: &Result<Appended, SinkError>) {
        match appended {
            Err(SinkError::Unavailable { fault: Fault::Target, .. }) if events > 0 => {
                *self = Self { events: events.div_ceil(2), steady: 0 };
            }
            Ok(Appended::All) if events >= self.events => {
                self.steady += 1;
                if self.steady >= STEADY {
                    *self = Self { events: self.events.saturating_mul(2), steady: 0 };
                }
            }
            _ => {}
        }
    }
}
