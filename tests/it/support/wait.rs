//! Waiting for what must come true, and for no longer than that.

use std::time::{Duration, Instant};

/// How long anything may take. Far more than it does take, so that a busy machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks until there is something to see.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether everything is to be tried that is otherwise sampled, however long it takes.
pub(crate) fn everything() -> bool {
    std::env::var_os("CHANNELD_TEST_FULL").is_some_and(|value| value != "0")
}

/// Whether what a test needs of the machine was declared to be missing. Without that declaration it fails instead.
pub(crate) fn skipped(what: &str) -> bool {
    let skipped = std::env::var("CHANNELD_TEST_SKIP").unwrap_or_default();
    let skipped = skipped.split(',').any(|skipped| skipped == what);
    if skipped {
        println!("left out: CHANNELD_TEST_SKIP names {what}");
    }
    skipped
}
