//! How many events one request to a target may have. For a write of the state, each commit counts as one event.
//!
//! A slow target, or a slow connection to it, can make a full request take longer than its time limit. The same request would then
//! fail again and again. After a failure, the next request therefore has fewer events.

/// After this many requests of the current size in a row, the next one may be larger. Growing sooner would cause a failure, and the
/// wait after it, again and again.
pub const STEADY: u32 = 16;

/// The limit of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSize {
    events: usize,
    most: usize,
    /// How many requests of the current size succeeded in a row.
    steady: u32,
}

impl RequestSize {
    /// Begins with the largest size.
    pub fn new(most: usize) -> Self {
        Self { events: most, most, steady: 0 }
    }

    /// The most events of the next request.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Limits the next request to this many events, because a larger one failed.
    pub fn shrink_to(&mut self, events: usize) {
        (self.events, self.steady) = (events.max(1), 0);
    }

    /// Records that a request of this many events succeeded.
    pub fn succeeded(&mut self, events: usize) {
        if events < self.events {
            return;
        }
        self.steady += 1;
        if self.steady >= STEADY {
            (self.events, self.steady) = (self.events.saturating_mul(2).min(self.most), 0);
        }
    }
}
