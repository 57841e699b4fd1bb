//! `channeld pause` and `channeld resume`.

use jiff::{SignedDuration, Timestamp};

use crate::cli::context::{CommandError, Context, Exit};
use crate::config::positive_duration;
use operator::api::SetPaused;

/// Pause a channel, or one of its sinks.
///
/// A paused channel reads and delivers nothing, and its cursors can be set. If only a sink is paused, the other sinks
/// of the channel continue. The current batch is finished first. The pause lasts until `channeld resume` or the end of
/// --for. A restart of the daemon or SIGHUP does not end the pause.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld pause settlements --for 30m
  channeld pause settlements --sink ledger
  channeld resume settlements --sink ledger")]
pub(crate) struct Args {
    #[command(flatten)]
    what: SetPaused,
    /// Resume automatically after this time, such as 90s, 30m or 1h. A repeated command sets a new time.
    #[arg(long = "for", value_name = "DURATION", value_parser = ends_after)]
    until: Option<Timestamp>,
}

impl Args {
    pub(crate) fn request(self) -> SetPaused {
        SetPaused { paused: true, until: self.until, ..self.what }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    what: SetPaused,
    /// Accept a sink that has lost its data as it is. The lost events are not delivered again.
    #[arg(long, requires = "sink")]
    accept_loss: bool,
}

impl ResumeArgs {
    pub(crate) fn request(self) -> SetPaused {
        SetPaused { accept_loss: self.accept_loss, ..self.what }
    }
}

fn ends_after(text: &str) -> Result<Timestamp, String> {
    let duration = SignedDuration::try_from(positive_duration(text)?).map_err(|error| error.to_string())?;
    Timestamp::now().checked_add(duration).map_err(|error| error.to_string())
}

pub(crate) async fn run(what: SetPaused, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    // A state that is not shared has only one daemon, and only a running daemon can be paused.
    let is_shared = operator.config.state.database.is_some();
    let changed = if is_shared { operator.ask(&what).await? } else { operator.ask_daemon(&what).await? };
    cx.say(outcome(&what, changed))
}

/// The effect of the request as text.
pub(crate) fn outcome(SetPaused { channel, sink, paused, until, .. }: &SetPaused, changed: bool) -> String {
    let sink = sink.as_ref().map(|sink| format!(" sink {sink}")).unwrap_or_default();
    let already = if changed { "" } else { " already" };
    let now = if *paused { "paused" } else { "resumed" };
    let until = until.map(|until| format!(" until {until:.0}")).unwrap_or_default();
    format!("{channel}{sink}:{already} {now}{until}")
}
