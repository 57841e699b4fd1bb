//! Waits until a condition is true, with a deadline instead of a fixed sleep.

use std::time::{Duration, Instant};

/// The longest wait. It is much longer than any expected wait, so that tests pass on a busy machine.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(180);

/// The wait between two checks of a condition.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Calls `look` until it returns a value.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Waits until at least `count` events have arrived. Each new event extends the deadline.
pub(crate) async fn until_count(count: usize, come: impl AsyncFn() -> usize) {
    let mut deadline = Instant::now() + LONGEST_WAIT;
    let mut seen = 0;
    loop {
        let now = come().await;
        if now >= count {
            return;
        }
        if now > seen {
            (seen, deadline) = (now, Instant::now() + LONGEST_WAIT);
        }
        assert!(Instant::now() < deadline, "only {now} of {count} events arrived");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether tests run every case instead of a sample, which takes hours.
pub(crate) fn everything() -> bool {
    std::env::var_os("CHANNELD_TEST_FULL").is_some_and(|value| value != "0")
}
