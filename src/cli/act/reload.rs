//! `channeld reload`: makes the running daemon read its configuration again.

use std::io::Write;
use std::path::Path;

use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::{say_json, write_lines};
use operator::api::Reload;

/// Have the running daemon read its configuration and secrets again, and say what that changed.
///
/// As SIGHUP does, but with an answer: where anything is wrong with it, everything goes on as before, every problem is
/// printed, and the exit code is 78. Channels and sinks that are no different do not notice. state.path, the keys of
/// admin and log.format cannot change while the daemon runs. Where events like those verified in the last 24 hours will be
/// rejected by it, that is a warning, here and in the log. Secrets that change on the disk are noticed without this.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object: what was added, removed and changed.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let changes = Operator::open(config)?.ask_daemon(&Reload {}).await?;
    if args.json {
        return say_json(out, &changes);
    }
    let mut lines = vec!["The configuration was reloaded.".to_owned()];
    lines.extend(changes.sentences());
    if changes.is_empty() {
        lines.push("Nothing in it has changed.".to_owned());
    }
    lines.extend(changes.warnings.iter().map(|warning| format!("warning: {warning}")));
    write_lines(out, lines)
}
