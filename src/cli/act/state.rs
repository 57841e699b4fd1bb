//! `channeld state`: acknowledges losses of the recorded state, and copies it.

use std::io::Write;
use std::path::Path;

use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::{say, say_json};
use ledger::Lost;
use operator::api::AcknowledgeLost;

mod copy;

use copy::Backend;

/// Acknowledge a loss in the recorded state, or copy it.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  channeld state acknowledge
  channeld state copy --to postgres")]
pub(crate) enum Command {
    /// Acknowledge the loss of data from a damaged database.
    ///
    /// Until you acknowledge the loss, `status` and `/readyz` report that the daemon is not ready. Such damage loses no
    /// events of the service, because they are read again. Quarantined events and dead letters that could not be read
    /// are missing from the new database. The damaged database is kept unchanged under the printed name.
    Acknowledge {
        /// Print one JSON object that describes the loss, or `null` if nothing was lost.
        #[arg(long)]
        json: bool,
    },
    /// Copy the state to the other backend, while no instance runs.
    ///
    /// The configuration must name both backends: `state.path`, and `state.url` or `state.url_file`. The copy is read
    /// back and compared with the original. If a daemon or an instance runs, or if the target already contains a
    /// complete state, nothing is copied. After the copy, set `state.backend`. A daemon does not start with an
    /// incomplete copy. If a copy was interrupted, run the same command again: it starts from the beginning.
    Copy {
        /// The backend that receives the copy.
        #[arg(long)]
        to: Backend,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(command: Command, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let json = match command {
        Command::Acknowledge { json } => json,
        Command::Copy { to, json } => return copy::run(to, json, config, out).await,
    };
    let lost = Operator::open(config)?.ask(&AcknowledgeLost {}).await?;
    if json {
        return say_json(out, &lost);
    }
    let Some(Lost { at, late, quarantined, dead_letters, kept }) = lost else { return say(out, "nothing was lost") };
    let kept = kept.map_or_else(String::new, |kept| format!("; the damaged database is kept in {kept}"));
    let line = format!(
        "acknowledged: {quarantined} quarantined events and {dead_letters} dead letters lost at {at}, {late} late events read \
         again{kept}"
    );
    say(out, line)
}
