//! Changes that happen over time: new events at a steady rate, the loss of events when the service goes back in time, and
//! the revocation of keys.
//!
//! # Cancellation
//!
//! `stop` is observed while waiting.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::http::backend::Backend;
use crate::keys::RevokeKey;
use crate::options::GoBack;

/// The minimum interval between two batches.
const MIN_TICK: Duration = Duration::from_millis(10);

/// Returns the time between two events at this rate. `None` if the rate produces no events.
pub(crate) fn spacing(rate: f64) -> Option<Duration> {
    let spacing = Duration::try_from_secs_f64(rate.recip()).ok()?;
    (rate > 0.0).then(|| spacing.max(Duration::from_nanos(1)))
}

/// Publishes in every channel until `stop`.
pub(crate) async fn publish(backend: Arc<Backend>, spacing: Duration, stop: CancellationToken) {
    let started = Instant::now();
    let mut published = 0;
    let mut ticks = interval(spacing.max(MIN_TICK));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let due = u64::try_from(started.elapsed().as_nanos() / spacing.as_nanos()).unwrap_or(u64::MAX);
        backend.publish(due - published);
        published = due;
    }
}

/// Goes back in time once, in every channel.
pub(crate) async fn go_back(backend: Arc<Backend>, GoBack { events, after }: GoBack, stop: CancellationToken) {
    if stop.run_until_cancelled(sleep(after)).await.is_some() {
        for channel in &backend.channels {
            channel.state_mut().log.go_back(events);
        }
    }
}

/// Revokes an API key once.
pub(crate) async fn revoke(backend: Arc<Backend>, RevokeKey { number, after }: RevokeKey, stop: CancellationToken) {
    if stop.run_until_cancelled(sleep(after)).await.is_some() {
        backend.keys.revoke_number(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_rate_publishes_nothing() {
        for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            assert_eq!(spacing(rate), None, "{rate}");
        }
        assert_eq!(spacing(4.0), Some(Duration::from_millis(250)));
        assert_eq!(spacing(f64::INFINITY), Some(Duration::from_nanos(1)));
    }
}
