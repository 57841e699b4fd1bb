//! Parts of the runs that plant random faults while lanes deliver.

use std::ops::Range;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::everything;

mod fault;
mod timeliness;

pub(crate) use fault::{PlantedFault, Seen, VISIBLE};
pub(crate) use timeliness::Timeliness;

/// A channel and a sink.
pub(crate) type Lane = (usize, &'static str);

/// The largest number of faults at a time.
pub(crate) const AT_ONCE: usize = 4;

/// How long a fault lasts. It lasts longer if the status does not show it yet.
pub(crate) const LASTS: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(10);

/// The time between two requests for the status.
const TICK: Duration = Duration::from_millis(500);

/// The times at which a run publishes events and requests the status.
pub(crate) fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// How long faults are planted: an hour in the full mode, and `short` otherwise, unless the environment has another length.
pub(crate) fn length(short: Duration) -> Duration {
    match std::env::var("CHANNELD_TEST_SECONDS") {
        Ok(text) => Duration::from_secs(text.parse().expect("a number of seconds")),
        Err(_) if everything() => Duration::from_secs(60 * 60),
        Err(_) => short,
    }
}
