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

/// Look after the recorded state.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  channeld state acknowledge
  channeld state copy --to postgres")]
pub(crate) enum Command {
    /// Say that you have seen what was lost to a damaged database.
    ///
    /// Until then `status` and `/readyz` are not ready. No event is lost by such damage, for events are read again; but
    /// quarantined events and dead letters that could not be read are gone from the database. It was kept as it was found,
    /// under the name that is printed.
    Acknowledge {
        /// Print one JSON object: what was lost; `null` where nothing was.
        #[arg(long)]
        json: bool,
    },
    /// Copy the whole state from one backend to the other, while nothing runs.
    ///
    /// The configuration has both: `state.path`, and `state.url` or `state.url_file`. Everything is read back and compared.
    /// If a daemon or an instance runs, or if the target keeps a complete state already, nothing is copied. Afterwards set
    /// `state.backend`. A copy that was interrupted is incomplete, and nothing starts with it: run the same command again, which
    /// begins anew.
    Copy {
        /// Where it is to go.
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
