//! `channeld state`: what happened to the recorded state.

use std::io::Write;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say, say_json};
use crate::ledger::Lost;
use crate::operator::api::AcknowledgeLost;

/// Look after the recorded state.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
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
}

/// Does what is asked.
///
/// # Errors
/// [`Failure`]: nothing was changed.
pub async fn run(args: &Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let Action::Acknowledge { json } = args.action;
    let lost = Operator::open(config)?.ask(&AcknowledgeLost {}).await?;
    if json {
        return say_json(out, &lost);
    }
    say(out, lost.map_or_else(|| "nothing was lost".to_owned(), shown))
}

fn shown(lost: Lost) -> String {
    let Lost { at, late, quarantined, dead_letters, kept } = lost;
    let kept = kept.map_or_else(String::new, |kept| format!("; the damaged database is kept in {kept}"));
    format!(
        "acknowledged: {quarantined} quarantined events and {dead_letters} dead letters lost at {at}, {late} late events read \
         again{kept}"
    )
}
