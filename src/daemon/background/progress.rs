//! Logs the progress of each channel that is behind, in one line every ten seconds.
//!
//! # Invariants
//!
//! * **Few lines.** If many channels are behind, the log names the channels with the largest lag and counts the others.
//!
//! # Cancellation
//!
//! [`tell`] can be dropped at any point.

use std::cmp::Reverse;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::info;

use operator::{ConfiguredChannel, Operations};
use telemetry::ALWAYS;

/// The interval between two checks. A channel is behind only if an event has waited for at least this time.
const EVERY: Duration = Duration::from_secs(10);

/// How many channels each check names.
const NAMED: usize = 5;

/// The width of the bar in columns. The bar is shown if standard error is a terminal.
const BAR: usize = 22;

/// Logs the progress of the configured channels that are behind. Never ends.
pub(in crate::daemon) async fn tell(operations: watch::Receiver<Arc<Operations>>) {
    let mut look = interval_at(Instant::now() + EVERY, EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let with_bar = io::stderr().is_terminal();
    loop {
        look.tick().await;
        let operations = operations.borrow().clone();
        let progress = |known: &ConfiguredChannel| {
            let progress = operations.handles.of(known.channel.id).board().progress(EVERY)?;
            Some((known.channel.name.clone(), progress))
        };
        let mut behind: Vec<_> = operations.channels.iter().filter_map(progress).collect();
        behind.sort_by_key(|(_, progress)| Reverse(progress.of.saturating_sub(progress.done)));
        for (channel, progress) in behind.iter().take(NAMED) {
            let (offset, newest) = (progress.done, progress.of);
            let (events_per_second, seconds_left) = (progress.per_second, progress.seconds_left);
            let bar = if with_bar { progress.bar(BAR) + " " } else { String::new() };
            info!(target: ALWAYS, %channel, progress = %format_args!("{bar}{progress}"), offset, newest, events_per_second, seconds_left, "channel catches up");
        }
        let more = behind.len().saturating_sub(NAMED);
        if more > 0 {
            info!(target: ALWAYS, more, "more channels are catching up");
        }
    }
}
