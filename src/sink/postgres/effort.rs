//! How much one statement writes, and how long its answer may take.
//!
//! A slow connection, a trigger, or the server's own `statement_timeout` can make a full statement take longer than its limit.
//! If the next attempt were the same, it would fail the same way, and no row would ever be written. After a timeout, the next
//! statement therefore has fewer rows and more time.

use std::sync::Mutex;
use std::time::Duration;

use net::postgres::ANSWER_TIMEOUT;
use net::tasks::lock;

/// The maximum number of rows in one statement.
const MOST_ROWS: usize = 200;

/// The longest wait for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// After a timeout, the next statement has the number of its rows divided by this.
const SHRINK: usize = 4;

/// After this many statements of the current size in a row, the next one may be larger. Growing sooner would cause a timeout,
/// and the wait after it, again and again.
const STEADY: u32 = 16;

/// The limits of the next statement. All lanes of the sink share them, because they share the server.
#[derive(Debug)]
pub(super) struct Effort(Mutex<Limits>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    rows: usize,
    wait: Duration,
    /// How many statements of the current size were written in a row.
    steady: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self(Mutex::new(Limits { rows: MOST_ROWS, wait: ANSWER_TIMEOUT, steady: 0 }))
    }
}

impl Effort {
    /// The most rows of the next statement.
    pub(super) fn rows(&self) -> usize {
        lock(&self.0).rows
    }

    /// How long the next answer may take.
    pub(super) fn wait(&self) -> Duration {
        lock(&self.0).wait
    }

    /// Records that a statement took too long, for this process or for the server.
    pub(super) fn timed_out(&self) {
        let mut limits = lock(&self.0);
        limits.rows = (limits.rows / SHRINK).max(1);
        limits.wait = (limits.wait * 2).min(LONGEST_WAIT);
        limits.steady = 0;
    }

    /// Records that the server has written this many rows in time. After [`STEADY`] statements of the full size, the next one
    /// may be larger. The wait stays long until the largest size succeeds.
    pub(super) fn succeeded(&self, rows: usize) {
        let mut limits = lock(&self.0);
        if rows >= limits.rows {
            limits.steady += 1;
        }
        if limits.steady >= STEADY {
            limits.rows = (limits.rows * 2).min(MOST_ROWS);
            limits.steady = 0;
        }
        if rows >= MOST_ROWS {
            limits.wait = ANSWER_TIMEOUT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_timeouts_one_row_has_minutes_and_successes_restore_the_full_size() {
        let effort = Effort::default();
        assert_eq!((effort.rows(), effort.wait()), (MOST_ROWS, ANSWER_TIMEOUT));
        for _ in 0..6 {
            effort.timed_out();
        }
        assert_eq!((effort.rows(), effort.wait()), (1, LONGEST_WAIT));
        // A short delivery says nothing about a larger statement.
        for _ in 0..=STEADY {
            effort.succeeded(0);
        }
        assert_eq!(effort.rows(), 1);
        while effort.rows() < MOST_ROWS {
            effort.succeeded(effort.rows());
        }
        assert_eq!(effort.wait(), LONGEST_WAIT, "the largest size is not proved yet");
        effort.succeeded(MOST_ROWS);
        assert_eq!(effort.wait(), ANSWER_TIMEOUT);
    }
}
