//! `channeld state`: acknowledges losses of the recorded state, and copies it.

use std::path::Path;
use std::sync::Arc;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::operate::{owned, visit};
use crate::cli::terminal::progress::ProgressBar;
use crate::config::load_both_backends;
use crate::daemon::open_blocking;
use channel::counted;
use cluster::Peers;
use ledger::LostEntries;
use ledger::store::{CopySummary, Sled, copy};
use operator::api::AcknowledgeLost;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Backend {
    Sled,
    Postgres,
}

pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    match command {
        Command::Acknowledge { json } => {
            let lost = operator.ask(&AcknowledgeLost {}).await?;
            if json { cx.say_json(&lost) } else { cx.say(acknowledged(lost)) }
        }
        Command::Copy { to, json } => {
            let copied = copy_to(to, cx.file).await?;
            if json {
                return cx.say_json(&copied);
            }
            let CopySummary { channels, entries } = copied;
            let (channels, entries) = (counted(channels as u64, "channel"), counted(entries as u64, "entry"));
            cx.say(format!("copied and compared: {channels}, {entries}; now set state.backend"))
        }
    }
}

fn acknowledged(lost: Option<LostEntries>) -> String {
    let Some(LostEntries { at, late, quarantined, dead_letters, kept }) = lost else {
        return "nothing was lost".to_owned();
    };
    let kept = kept.map_or_else(String::new, |kept| format!("; the damaged database is kept in {kept}"));
    format!(
        "acknowledged: {} and {} were lost at {at}; {} will be read again{kept}",
        counted(quarantined, "quarantined event"),
        counted(dead_letters, "dead letter"),
        counted(late, "pending event"),
    )
}

/// Copies the state from the other backend to the backend `to`.
async fn copy_to(to: Backend, file: Option<&Path>) -> Result<CopySummary, CommandError> {
    let (path, database) = load_both_backends(file)?;
    if to == Backend::Postgres {
        owned(&path)?;
    }
    let directory = path.clone();
    let open = move || database.open_for_copy(&directory, to == Backend::Sled);
    let copying = async |postgres: Arc<_>, peers: Peers| {
        check_alone(&peers)?;
        // Opening locks the state, so no daemon on this machine can be running.
        let open = if to == Backend::Sled { Sled::open_for_copy } else { Sled::open };
        let sled = open_blocking(move || open(&path)).await.map_err(|error| CommandError::by(&error))?;
        let mut bar = ProgressBar::begin();
        let tell = |copied: CopySummary, all: usize| bar.tell(copied.channels as u64, all as u64, "channels: ");
        let copied = match to {
            Backend::Postgres => copy(&sled, &*postgres, tell).await,
            Backend::Sled => copy(&*postgres, &sled, tell).await,
        };
        copied.map_err(|error| CommandError::by(&error))
    };
    visit(open, copying).await
}

fn check_alone(peers: &Peers) -> Result<(), CommandError> {
    let seen = peers.seen.borrow();
    let live = seen.view.instances.values().filter(|instance| instance.shares());
    let names: Vec<_> = live.map(|instance| &*instance.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    Err(CommandError::failed(format!("nothing was copied, because instances are running ({names}): stop them first")))
}
