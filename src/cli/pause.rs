//! `channeld pause` and `channeld resume`: a channel, or a sink of it, stands still for a while.

use std::io::Write;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say, unexpected};
use crate::control::{Answer, Request};

/// Let a channel of the running daemon, or one sink of it, stand still until it is resumed.
///
/// A channel that is paused reads and delivers nothing, and its cursors can be set; of a sink that is paused the others
/// are not held up. The batch in hand is finished first. It is not remembered: a daemon that starts again goes on with
/// everything. SIGHUP resumes nothing.
#[derive(Debug, clap::Args)]
pub struct Pause {
    #[command(flatten)]
    what: What,
}

/// Let go on what was paused, and offer at once what a sink has refused.
///
/// With --sink, a sink that refuses is offered its events now and not after its next wait. A webhook that has answered 410
/// (Gone) is not asked again by itself at all: it is blocked until it is resumed so, or the daemon starts again.
#[derive(Debug, clap::Args)]
pub struct Resume {
    #[command(flatten)]
    what: What,
}

#[derive(Debug, clap::Args)]
struct What {
    /// The channel: its name in the configuration, or its UUID.
    channel: String,
    /// Only this sink of it.
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
}

/// Pauses.
///
/// # Errors
/// [`Failure`]: nothing was changed.
pub async fn pause(args: &Pause, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    run(&args.what, true, config, out).await
}

/// Resumes.
///
/// # Errors
/// [`Failure`]: nothing was changed.
pub async fn resume(args: &Resume, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    run(&args.what, false, config, out).await
}

async fn run(what: &What, paused: bool, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let request = Request::Pause { channel: what.channel.clone(), sink: what.sink.clone(), paused };
    let answer = Operator::open(config)?.ask_the_daemon(request).await?;
    let Answer::Paused(now) = answer else { return Err(unexpected()) };
    let before = if now.changed { "" } else { " already" };
    let done = if paused { "paused" } else { "going on" };
    let sink = what.sink.as_ref().map(|sink| format!(" sink {sink}")).unwrap_or_default();
    say(out, &format!("{}{sink}:{before} {done}", what.channel))
}
