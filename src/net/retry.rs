//! The wait before a retry: growing, jittered and bounded.
//!
//! Only this file uses the `backoff` crate. It corrects two behaviors of the crate: by default, the crate stops
//! retrying after fifteen minutes, and its jitter can exceed the maximum.

use std::time::Duration;

use backoff::SystemClock;
use backoff::backoff::Backoff;
use backoff::exponential::{ExponentialBackoff, ExponentialBackoffBuilder};

const GROWTH: f64 = 2.0;
const JITTER: f64 = 0.2;

/// The first and the longest wait before a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The wait after the first failure.
    pub wait: Duration,
    /// The longest wait.
    pub max_wait: Duration,
}

/// The retries of one operation.
#[derive(Debug)]
pub struct Retry {
    policy: RetryPolicy,
    waits: ExponentialBackoff<SystemClock>,
    attempt: u32,
}

impl Retry {
    /// Starts at the policy's first wait.
    pub fn new(policy: RetryPolicy) -> Self {
        Self::with_jitter(policy, JITTER)
    }

    /// Like [`Retry::new`] with another jitter. Tests that must be repeatable use no jitter.
    pub fn with_jitter(policy: RetryPolicy, jitter: f64) -> Self {
        let waits = ExponentialBackoffBuilder::new()
            .with_initial_interval(policy.wait)
            .with_max_interval(policy.max_wait)
            .with_multiplier(GROWTH)
            .with_randomization_factor(jitter)
            .with_max_elapsed_time(None)
            .build();
        Self { policy, waits, attempt: 0 }
    }

    /// Returns the next wait. It is within the policy's bounds, or longer if the other side `asked` for a longer wait.
    ///
    /// A requested wait is extended by a random part of the own wait, which grows. Without it, many callers that were told
    /// the same wait would return together each time.
    pub fn next_wait(&mut self, asked: Option<Duration>) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        let wait = self.waits.next_backoff().unwrap_or(self.policy.max_wait);
        // Truncate the wait to milliseconds. Even without jitter, the crate adds a random fraction of a nanosecond, and
        // rounding can turn this fraction into a whole nanosecond.
        let wait = wait.saturating_sub(Duration::from_nanos(u64::from(wait.subsec_nanos() % 1_000_000)));
        let wait = wait.clamp(self.policy.wait, self.policy.max_wait.max(self.policy.wait));
        let Some(asked) = asked else { return wait };
        let has_jitter = self.waits.randomization_factor > 0.0;
        let spread = if has_jitter { wait.mul_f64(rand::random_range(0.0..1.0)) } else { Duration::ZERO };
        wait.max(asked.saturating_add(spread))
    }

    /// The number of waits since the last success.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Records a success. The wait after the next failure is the first wait again.
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
    fn waits_grow_to_the_maximum_and_stay_in_bounds() {
        let mut retry = Retry::new(POLICY);
        let waits: Vec<_> = (0..1000).map(|_| retry.next_wait(None)).collect();
        assert!(waits.iter().all(|wait| (POLICY.wait..=POLICY.max_wait).contains(wait)), "{waits:?}");
        assert!(waits[0] < Duration::from_millis(2500) && waits[500] > Duration::from_secs(40), "{waits:?}");
    }

    #[test]
    fn a_requested_wait_is_obeyed_beyond_the_maximum() {
        let mut retry = Retry::new(POLICY);
        let asked = Duration::from_secs(600);
        let wait = retry.next_wait(Some(asked));
        assert!((asked..asked + POLICY.wait * 2).contains(&wait), "{wait:?}");
    }

    #[test]
    fn callers_that_were_told_the_same_wait_return_at_different_times() {
        let asked = Duration::from_secs(2);
        for attempt in 0..5 {
            let mut waits: Vec<_> = (0..300)
                .map(|_| {
                    let mut retry = Retry::new(POLICY);
                    for _ in 0..attempt {
                        retry.next_wait(Some(asked));
                    }
                    retry.next_wait(Some(asked))
                })
                .map(|wait| wait.as_millis())
                .collect();
            waits.sort_unstable();
            assert!(waits[0] >= asked.as_millis(), "{waits:?}");
            // Two thirds of the callers never return within a quarter of the time.
            let spread = waits[299] - waits[0];
            let crowded = waits.windows(200).any(|some| some[199] - some[0] < spread / 4);
            assert!(spread >= 1_000 && !crowded, "attempt {attempt}: {waits:?}");
        }
    }

    #[test]
    fn a_success_resets_the_wait() {
        let mut retry = Retry::new(POLICY);
        for _ in 0..10 {
            retry.next_wait(None);
        }
        retry.reset();
        assert!(retry.next_wait(None) < Duration::from_millis(2500));
        assert_eq!(retry.attempt(), 1);
    }

    #[test]
    fn without_jitter_each_wait_is_exact() {
        let day = Duration::from_secs(86_400);
        let mut retry = Retry::with_jitter(RetryPolicy { wait: day, max_wait: 2 * day }, 0.0);
        for _ in 0..10_000 {
            assert_eq!(retry.next_wait(None), day);
            retry.reset();
        }
    }
}
