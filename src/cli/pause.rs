//! `channeld pause` and `channeld resume`.

use std::io::Write;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say};
use crate::operator::api::SetPaused;

/// Let a channel of the running daemon, or one sink of it, stand still until it is resumed.
///
/// A channel that is paused reads and delivers nothing, and its cursors can be set; of a sink that is paused the others
/// are not held up. The batch in hand is finished first. It is not remembered: a daemon that starts again goes on with
/// everything. SIGHUP resumes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct Pause {
    #[command(flatten)]
    what: SetPaused,
}

/// Let go on what was paused, and offer at once what a sink has refused.
///
/// With --sink, a sink that refuses is offered its events now and not after its next wait. A webhook that has answered 410
/// (Gone) is not asked again by itself at all: it is blocked until it is resumed so, or the daemon starts again.
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    #[command(flatten)]
    what: SetPaused,
}

pub(super) async fn pause(args: Pause, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    set(SetPaused { paused: true, ..args.what }, "paused", config, out).await
}

pub(super) async fn resume(args: Resume, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    set(args.what, "going on", config, out).await
}

async fn set(what: SetPaused, done: &str, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let already = if Operator::open(config)?.ask_daemon(&what).await? { "" } else { " already" };
    let sink = what.sink.map(|sink| format!(" sink {sink}")).unwrap_or_default();
    say(out, format!("{}{sink}:{already} {done}", what.channel))
}
