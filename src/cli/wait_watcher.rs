//! `channeld wait-watcher`: waits until a watcher is active, or archived.
//!
//! 429, 5xx and failures of the network are waited out; any other error ends the wait.
//!
//! # Cancellation
//!
//! May be dropped at any point: it changes nothing.

use std::io::Write;
use std::time::Duration;

use clap::ValueEnum;
use tokio::time::{Instant, sleep_until, timeout_at};
use uuid::Uuid;

use super::exit::{Exit, Failure};
use super::shown::printable;
use crate::api::{ApiError, Client, Watcher};
use crate::event::ChannelId;
use crate::record::ChannelRef;

/// Wait until a watcher is active, or archived.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The watcher's UUID.
    pub watcher_id: Uuid,
    /// The state to wait for.
    #[arg(long, value_enum, default_value_t = Until::Active)]
    pub until: Until,
    /// How often to ask.
    #[arg(long, value_parser = duration, default_value = "2s")]
    pub interval: Duration,
    /// How long to wait at most.
    #[arg(long, value_parser = duration, default_value = "5m")]
    pub timeout: Duration,
}

/// A state that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Until {
    /// Its events arrive.
    Active,
    /// It has been taken down.
    Archived,
}

/// Why a wait ended without the state.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The watcher is in a state that does not lead to the one awaited.
    #[error("the watcher is {status}{} and will not become {until}", .reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default())]
    Never {
        /// The watcher's state.
        status: String,
        /// The service's `status_reason`, where it gave one.
        reason: Option<String>,
        /// What was waited for.
        until: Until,
    },
    /// The time is over.
    #[error("the watcher did not become {until} within {}s; {}", .timeout.as_secs_f64(), last(.status.as_deref()))]
    TimedOut {
        /// What was waited for.
        until: Until,
        /// How long.
        timeout: Duration,
        /// The state last seen; `None` where the service never told one.
        status: Option<String>,
    },
    /// The service will not tell.
    #[error("the watcher's state could not be read")]
    Api(#[source] ApiError),
}

fn last(status: Option<&str>) -> String {
    status.map_or_else(|| "the service never told its state".to_owned(), |status| format!("it was last {status}"))
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Api(source) => Failure::api("the watcher's state could not be read")(source),
            ended @ Ended::TimedOut { status: None, .. } => Failure::Unavailable(ended.to_string()),
            ended => Failure::Failed(ended.to_string()),
        }
    }
}

/// Waits, and says what came of it.
///
/// # Errors
/// [`Failure`], where the state is not reached.
pub async fn run(args: &Args, client: &Client, channel: &ChannelRef, out: &mut impl Write) -> Result<Exit, Failure> {
    wait(client, channel.id, args.watcher_id, args.until, args.interval, args.timeout).await?;
    writeln!(out, "watcher {} is {}", args.watcher_id, args.until).map_err(Failure::output)?;
    Ok(Exit::Done)
}

/// Asks every `interval` until the watcher is in the state, or cannot reach it any more, or `timeout` is over.
///
/// # Errors
/// [`Ended`], by which of these it was.
pub async fn wait(
    client: &Client,
    channel: ChannelId,
    watcher: Uuid,
    until: Until,
    interval: Duration,
    timeout: Duration,
) -> Result<Watcher, Ended> {
    let deadline = Instant::now() + timeout;
    let mut status = None;
    loop {
        let asked = Instant::now();
        let answer = timeout_at(deadline, client.watcher(channel, watcher)).await;
        let Ok(answer) = answer else { return Err(Ended::TimedOut { until, timeout, status }) };
        let pause = match answer {
            Ok(seen) if seen.status == until.to_string() => return Ok(seen),
            Ok(seen) => {
                status = Some(still_possible(until, seen)?);
                interval
            }
            Err(error @ (ApiError::RateLimited { .. } | ApiError::Transient { .. })) => {
                interval.max(error.retry_after().unwrap_or_default())
            }
            Err(error) => return Err(Ended::Api(error)),
        };
        let next = asked + pause;
        if next >= deadline {
            sleep_until(deadline).await;
            return Err(Ended::TimedOut { until, timeout, status });
        }
        sleep_until(next).await;
    }
}

/// The state's name, where the awaited one can still follow it.
fn still_possible(until: Until, seen: Watcher) -> Result<String, Ended> {
    let ends = match until {
        Until::Active => ["failed", "archiving", "archived"].contains(&seen.status.as_str()),
        Until::Archived => ["failed", "archive_failed"].contains(&seen.status.as_str()),
    };
    let status = printable(&seen.status);
    if ends {
        let reason = seen.status_reason.filter(|reason| !reason.is_empty()).map(|reason| printable(&reason));
        return Err(Ended::Never { status, reason, until });
    }
    Ok(status)
}

/// A duration such as `2s` or `5m`, longer than nothing.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed.filter(|duration| !duration.is_zero()).ok_or_else(|| "not a duration such as 2s, 500ms or 5m".to_owned())
}

#[cfg(test)]
mod tests;
