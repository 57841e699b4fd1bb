//! Limits the rate of a webhook: a request starts at least a fixed interval after the previous one, across all channels.
//!
//! # Invariants
//!
//! * **Delays, never drops.** Requests wait in the order in which they asked.
//! * **Even spacing.** Unused time does not accumulate: after a pause, requests do not come in a burst.
//!
//! # Cancellation
//!
//! A wait that is dropped does not use a turn.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// A number of requests per duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of requests. At least one.
    pub requests: u32,
    /// The duration. Never zero.
    pub per: Duration,
}

/// Stores when the next request may start.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Self { interval: rate.per / rate.requests.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Waits for the next turn, and uses it.
    pub(super) async fn turn(&self) {
        let mut next = self.next.lock().await;
        sleep_until(*next).await;
        *next = Instant::now() + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_even_distances_and_none_is_saved_up() {
        let pace = Pace::new(Rate { requests: 10, per: Duration::from_secs(1) });
        let began = Instant::now();
        for turn in 0..5 {
            pace.turn().await;
            assert_eq!(began.elapsed(), Duration::from_millis(100) * turn);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let after = Instant::now();
        for turn in 0..3 {
            pace.turn().await;
            assert_eq!(after.elapsed(), Duration::from_millis(100) * turn);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_at_the_same_time_share_the_rate_and_a_dropped_wait_takes_no_turn() {
        let pace = Pace::new(Rate { requests: 1, per: Duration::from_secs(1) });
        let began = Instant::now();
        pace.turn().await;
        let _ = tokio::time::timeout(Duration::from_millis(500), pace.turn()).await;
        tokio::join!(pace.turn(), pace.turn(), pace.turn());
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }
}
