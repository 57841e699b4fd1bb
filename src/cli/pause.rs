//! `channeld pause` and `channeld resume`.

use std::io::Write;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say};
use crate::operator::api::{self, Paused};

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
pub async fn pause(args: Pause, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let What { channel, sink } = args.what;
    let request = api::Pause { channel, sink };
    let now = Operator::open(config)?.ask_daemon(&request).await?;
    report(out, &request.channel, request.sink.as_deref(), &now, "paused")
}

/// Resumes.
///
/// # Errors
/// [`Failure`]: nothing was changed.
pub async fn resume(args: Resume, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let What { channel, sink } = args.what;
    let request = api::Resume { channel, sink };
    let now = Operator::open(config)?.ask_daemon(&request).await?;
    report(out, &request.channel, request.sink.as_deref(), &now, "going on")
}

fn report(out: &mut impl Write, channel: &str, sink: Option<&str>, now: &Paused, done: &str) -> Result<Exit, Failure> {
    let already = if now.changed { "" } else { " already" };
    let sink = sink.map(|sink| format!(" sink {sink}")).unwrap_or_default();
    say(out, &format!("{channel}{sink}:{already} {done}"))
}
