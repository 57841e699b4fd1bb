//! How long to wait before trying again: growing, jittered, bounded, and never forever silent.
//!
//! The only file that knows the `backoff` crate. Two of its habits are corrected here: it gives up after fifteen
//! minutes, and its jitter reaches beyond the maximum.

use std::time::Duration;

use backoff::SystemClock;
use backoff::backoff::Backoff;
use backoff::exponential::{ExponentialBackoff, ExponentialBackoffBuilder};

const GROWTH: f64 = 2.0;
const JITTER: f64 = 0.2;

/// The first and the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// After the first failure.
    pub wait: Duration,
    /// However long failures last.
    pub max_wait: Duration,
}

/// The waits of one thing that fails repeatedly.
#[derive(Debug)]
pub struct Retry {
    policy: RetryPolicy,
    waits: ExponentialBackoff<SystemClock>,
    attempt: u32,
}

impl Retry {
    /// Starts at the policy's first wait.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Self {
        Self::with_jitter(policy, JITTER)
    }

    /// Without chance, for tests that must go the same way twice.
    #[cfg(test)]
    pub(crate) fn steady(policy: RetryPolicy) -> Self {
        Self::with_jitter(policy, 0.0)
    }

    fn with_jitter(policy: RetryPolicy, jitter: f64) -> Self {
        let waits = ExponentialBackoffBuilder::new()
            .with_initial_interval(policy.wait)
            .with_max_interval(policy.max_wait)
            .with_multiplier(GROWTH)
            .with_randomization_factor(jitter)
            .with_max_elapsed_time(None)
            .build();
        Self { policy, waits, attempt: 0 }
    }

    /// The next wait: at least what the other side asked for, otherwise between the policy's two bounds.
    pub fn next_wait(&mut self, asked: Option<Duration>) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        let wait = self.waits.next_backoff().unwrap_or(self.policy.max_wait);
        wait.clamp(self.policy.wait, self.policy.max_wait.max(self.policy.wait)).max(asked.unwrap_or_default())
    }

    /// How many waits there have been since the last success.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// A success: the next failure waits the first wait again.
    pub fn reset(&mut self) {
        self.waits.reset();
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(2), max_wait: Duration::from_secs(60) };

    #[test]
    fn waits_grow_to_the_maximum_and_never_leave_the_bounds() {
        let mut retry = Retry::new(POLICY);
        let waits: Vec<_> = (0..1000).map(|_| retry.next_wait(None)).collect();
        assert!(waits.iter().all(|wait| (POLICY.wait..=POLICY.max_wait).contains(wait)), "{waits:?}");
        assert!(waits[0] < Duration::from_millis(2500) && waits[500] > Duration::from_secs(40), "{waits:?}");
    }

    #[test]
    fn what_the_other_side_asks_for_is_obeyed_beyond_the_maximum() {
        let mut retry = Retry::new(POLICY);
        assert_eq!(retry.next_wait(Some(Duration::from_secs(600))), Duration::from_secs(600));
    }

    #[test]
    fn a_success_starts_over() {
        let mut retry = Retry::new(POLICY);
        for _ in 0..10 {
            retry.next_wait(None);
        }
        retry.reset();
        assert!(retry.next_wait(None) < Duration::from_millis(2500));
        assert_eq!(retry.attempt(), 1);
    }
}
