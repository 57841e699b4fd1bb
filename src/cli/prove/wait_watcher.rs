//! `channeld wait-watcher`: waits until a watcher is active, or archived.
//!
//! A request that fails with 429, 5xx or a network error is retried. A 404 is retried only at the beginning. Any other
//! error ends the wait.

use std::time::Duration;

use clap::ValueEnum;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::cli::context::{CommandError, Connection, Context, Exit};
use crate::cli::verdict_line::printable;
use crate::config::positive_duration;
use api::{ApiError, Watcher};

/// How long a 404 is retried. According to the service's documentation, a new watcher can be missing for two seconds.
const NEW: Duration = Duration::from_secs(5);

/// Wait until a watcher is active or archived.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub(crate) channel: String,
    /// The watcher's UUID.
    #[arg(value_parser = watcher_id)]
    watcher_id: Uuid,
    /// The state to wait for.
    #[arg(long, value_enum, default_value_t = TargetStatus::Active)]
    until: TargetStatus,
    /// The interval between two requests.
    #[arg(long, value_parser = positive_duration, default_value = "2s")]
    interval: Duration,
    /// The longest time to wait.
    #[arg(long, value_parser = positive_duration, default_value = "5m")]
    timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::Display)]
#[strum(serialize_all = "lowercase")]
enum TargetStatus {
    /// The watcher is active: its events arrive.
    Active,
    /// The watcher was removed.
    Archived,
}

fn watcher_id(text: &str) -> Result<Uuid, &'static str> {
    text.parse().map_err(|_| "must be a UUID, such as 7c9e6679-7425-40de-944b-e07fc1f90ae7")
}

pub(crate) async fn run(args: &Args, connection: &Connection, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let Args { watcher_id, until, timeout, .. } = args;
    let mut last_status = None;
    if let Ok(ended) = tokio::time::timeout(*timeout, wait(args, connection, &mut last_status)).await {
        ended?;
        return cx.say(format!("watcher {watcher_id} is {until}"));
    }
    let timed_out = format!("the watcher did not become {until} within {}s", timeout.as_secs_f64());
    Err(match last_status {
        Some(status) => CommandError::failed(format!("{timed_out}; it was last {status}")),
        None => CommandError(Exit::Unavailable, format!("{timed_out}; the service never reported its state")),
    })
}

/// Requests the state at each `interval`, until the watcher is in the requested state or can no longer reach it.
async fn wait(args: &Args, connection: &Connection, last_status: &mut Option<String>) -> Result<(), CommandError> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        let pause = match connection.client.watcher(connection.channel.id, args.watcher_id).await {
            Ok(seen) if seen.status == args.until.to_string() => return Ok(()),
            Ok(seen) => {
                *last_status = Some(still_possible(args.until, seen)?);
                args.interval
            }
            Err(ApiError::NotFound(_)) if began.elapsed() < NEW => args.interval,
            Err(error @ (ApiError::RateLimited { .. } | ApiError::Transient { .. })) => {
                args.interval.max(error.retry_after().unwrap_or_default())
            }
            Err(error) => return Err(CommandError::api("the watcher's state could not be read")(error)),
        };
        sleep_until(asked + pause).await;
    }
}

/// The name of the watcher's state, if the watcher can still reach the requested state.
fn still_possible(until: TargetStatus, seen: Watcher) -> Result<String, CommandError> {
    let ends: &[&str] = match until {
        TargetStatus::Active => &["failed", "archiving", "archived"],
        TargetStatus::Archived => &["failed", "archive_failed"],
    };
    let status = printable(&seen.status);
    if !ends.contains(&seen.status.as_str()) {
        return Ok(status);
    }
    let reason = seen.status_reason.filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(" ({})", printable(&reason))).unwrap_or_default();
    Err(CommandError::failed(format!("the watcher is {status}{reason} and will not become {until}")))
}

#[cfg(test)]
mod tests;
