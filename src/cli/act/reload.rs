//! `channeld reload`: makes the running daemon read its configuration again.

use crate::cli::context::{CommandError, Context, Exit};
use operator::api::Reload;

/// Reload the configuration and secrets of the running daemon.
///
/// Does the same as SIGHUP, and also prints the changes. If the configuration is invalid, the daemon keeps the previous
/// configuration, every problem is printed, and the exit code is 78. Channels and sinks whose settings did not change
/// keep running. The tables state, cluster and admin, the keys feed.listen, feed.sink and log.format, and the address
/// of the OTLP collector cannot change while the daemon runs. If the new configuration would reject events like the
/// events verified in the last 24 hours, a warning is printed and logged. For each sink that a channel gains or loses,
/// the command prints where delivery begins, or which data of the sink the state keeps. A renamed sink or channel
/// counts as removed and added. The daemon notices changed secret files without this command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object with the additions, removals and changes.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let changes = cx.operator()?.ask_daemon(&Reload {}).await?;
    if args.json {
        return cx.say_json(&changes);
    }
    let mut lines = vec!["The configuration was reloaded.".to_owned()];
    lines.extend(changes.sentences());
    if changes.is_empty() {
        lines.push("No setting has changed.".to_owned());
    }
    lines.extend(changes.warnings.iter().map(|warning| format!("warning: {warning}")));
    cx.say_lines(lines)
}
