//! How much one statement writes, and how long its answer may take.
//!
//! A slow connection, a trigger, or the server's own `statement_timeout` can make a full statement take longer than its limit.
//! If the next attempt were the same, it would fail the same way, and no row would ever be written. After a timeout, the next
//! statement therefore has fewer rows and more time.

use std::sync::Mutex;
use std::time::Duration;

use net::postgres::ANSWER_TIMEOUT;
use net::request_size::RequestSize;
use net::tasks::lock;

/// The maximum number of rows in one statement. Parsing and planning a statement takes the server as long as writing twenty rows.
const MOST_ROWS: usize = 500;

/// A delivery of more than this many rows is sent as several statements, so that the server executes one while the next is made.
const FEW_ROWS: usize = 200;

/// A delivery of many rows is sent as this many statements.
const STATEMENTS: usize = 4;

/// The longest wait for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// After a timeout, the next statement has the number of its rows divided by this.
const SHRINK: usize = 4;

/// An answer that takes less time than this does not need a long wait.
const QUICK: Duration = Duration::from_secs(2);

/// The limits of the next statement. All lanes of the sink share them, because they share the server.
#[derive(Debug)]
pub(super) struct Effort(Mutex<Limits>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    rows: RequestSize,
    wait: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self(Mutex::new(Limits { rows: RequestSize::new(MOST_ROWS), wait: ANSWER_TIMEOUT }))
    }
}

impl Effort {
    /// The most rows of the next statement.
    pub(super) fn rows(&self) -> usize {
        lock(&self.0).rows.events()
    }

    /// The most rows of the next statement of a delivery with this many messages.
    pub(super) fn rows_of(&self, messages: usize) -> usize {
        self.rows().min((messages / STATEMENTS).max(FEW_ROWS))
    }

    /// How long the next answer may take.
    pub(super) fn wait(&self) -> Duration {
        lock(&self.0).wait
    }

    /// Records that a statement took too long, for this process or for the server. `waited` is the wait that was the limit when
    /// the statement was sent.
    pub(super) fn timed_out(&self, waited: Duration) {
        let mut limits = lock(&self.0);
        // If a table is locked, the statements of all lanes time out together. Only the first of them says something new.
        if waited < limits.wait {
            return;
        }
        let fewer = limits.rows.events() / SHRINK;
        limits.rows.shrink_to(fewer);
        limits.wait = (limits.wait * 2).min(LONGEST_WAIT);
    }

    /// Records that the server has written this many rows in time. The wait becomes shorter again after quick answers: otherwise a lane with few events would never notice
    /// soon that the server no longer answers.
    pub(super) fn succeeded(&self, rows: usize, took: Duration) {
        let mut limits = lock(&self.0);
        limits.rows.succeeded(rows);
        if rows >= MOST_ROWS {
            limits.wait = ANSWER_TIMEOUT;
        } else if rows > 0 && took < QUICK {
            limits.wait = (limits.wait / 2).max(ANSWER_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::request_size::STEADY;

    const SLOW: Duration = ANSWER_TIMEOUT;

    #[test]
    fn after_timeouts_one_row_has_minutes_and_successes_restore_the_full_size() {
        let effort = Effort::default();
        assert_eq!((effort.rows(), effort.wait()), (MOST_ROWS, ANSWER_TIMEOUT));
        for _ in 0..6 {
            effort.timed_out(effort.wait());
        }
        assert_eq!((effort.rows(), effort.wait()), (1, LONGEST_WAIT));
        // A short delivery says nothing about a larger statement.
        for _ in 0..=STEADY {
            effort.succeeded(0, SLOW);
        }
        assert_eq!(effort.rows(), 1);
        while effort.rows() < MOST_ROWS {
            effort.succeeded(effort.rows(), SLOW);
        }
        assert_eq!(effort.wait(), LONGEST_WAIT, "the largest size is not proved yet");
        effort.succeeded(MOST_ROWS, SLOW);
        assert_eq!(effort.wait(), ANSWER_TIMEOUT);
    }

    #[test]
    fn a_larger_delivery_has_larger_statements() {
        let effort = Effort::default();
        assert_eq!([1, 400, 1_200, 2_000, 9_000].map(|messages| effort.rows_of(messages)), [200, 200, 300, 500, 500]);
        effort.timed_out(ANSWER_TIMEOUT);
        assert_eq!([1, 2_000].map(|messages| effort.rows_of(messages)), [125, 125]);
    }

    #[test]
    fn timeouts_of_several_lanes_at_once_count_once_and_quick_answers_shorten_the_wait() {
        let effort = Effort::default();
        for _ in 0..6 {
            effort.timed_out(ANSWER_TIMEOUT);
        }
        assert_eq!(effort.wait(), ANSWER_TIMEOUT * 2);
        effort.succeeded(1, SLOW);
        assert_eq!(effort.wait(), ANSWER_TIMEOUT * 2);
        effort.succeeded(1, Duration::ZERO);
        assert_eq!(effort.wait(), ANSWER_TIMEOUT);
    }
}
