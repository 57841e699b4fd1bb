//! `channeld status`: shows the state of the daemon, its channels and their lanes.

use std::io::{self, IsTerminal};
use std::time::Duration;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::operate::Operator;
use crate::cli::terminal::{for_stdout, width_of_stdout};
use crate::daemon::signals::Signals;
use operator::api::GetStatus;

pub(crate) mod feed;
mod screen;
mod text;

use text::text;

/// Show the status of the daemon, its channels and their sinks.
///
/// The first lines say whether the daemon is ready, and if not, why. If the daemon has a feed, the last lines show its consumers.
/// If no daemon is running, the command shows the
/// state that the last daemon recorded.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld status
  channeld status --watch 5
  channeld status --json | jq '.channels[] | {channel, lag_events}'")]
pub(crate) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Update the status at this interval in seconds, 2 by default: as a screen on a terminal, otherwise as text
    ///
    /// The top of the screen always shows the overall status, and channels with problems come first. Keys: arrows,
    /// space, j and k move. Enter opens a channel with its sinks, complete errors, signers and last hour. Esc returns.
    /// p pauses or resumes a channel or sink after a confirmation. s changes the order. f changes which channels are
    /// shown. / searches names. r shows every reason. ? explains the keys and the columns. q or Ctrl-C ends the screen.
    /// Ctrl-Z suspends it, and `fg` in the shell continues it.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    if let Some(seconds) = args.watch {
        let every = Duration::from_secs(seconds.into());
        // A screen needs a terminal to draw on, and one to read keys from.
        if !args.json && io::stdout().is_terminal() && io::stdin().is_terminal() {
            return screen::watch(&operator, every).await;
        }
        return watch(args, &operator, every, cx).await;
    }
    cx.say(for_stdout(&text(args.json, &operator.ask(&GetStatus { here: false }).await?, width_of_stdout())))
}

/// Prints the report repeatedly, one below the other.
async fn watch(args: &Args, operator: &Operator, every: Duration, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(CommandError::output)?;
    loop {
        let text = match operator.ask_daemon(&GetStatus { here: false }).await {
            Ok(report) => text(args.json, &report, width_of_stdout()),
            // The daemon may start later, or restart.
            Err(failure) => failure.to_string(),
        };
        cx.say(for_stdout(&text))?;
        tokio::select! { () = tokio::time::sleep(every) => {}, _ = signals.next() => return Ok(Exit::Done) }
    }
}
