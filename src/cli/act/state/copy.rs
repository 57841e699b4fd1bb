//! `channeld state copy`: copies the state from sled to PostgreSQL or back, while no instance runs.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::{Operator, owned, visit};
use crate::cli::output::{say, say_json};
use crate::cli::terminal::progress::Bar;
use crate::config::load_both_backends;
use cluster::Peers;
use ledger::StateError;
use ledger::store::{Copied, Sled, copy};
use net::Chain;

/// A backend that can store the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Backend {
    Sled,
    Postgres,
}

/// Copies the state of the other backend to this one.
pub(super) async fn run(to: Backend, json: bool, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    Operator::open(file)?;
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
        let sled = spawn_blocking(move || open(&path)).await;
        let sled =
            sled.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string()))).map_err(|error| failed(&error))?;
        let mut bar = Bar::begin();
        let tell = |copied: Copied, all: usize| {
            let (done, all) = (u64::try_from(copied.channels).unwrap_or(0), u64::try_from(all).unwrap_or(0));
            bar.tell(done, all, "channels: ");
        };
        let copied = match to {
            Backend::Postgres => copy(&sled, &*postgres, tell).await,
            Backend::Sled => copy(&*postgres, &sled, tell).await,
        };
        copied.map_err(|error| failed(&error))
    };
    let copied = visit(open, copying).await?;
    if json {
        return say_json(out, &copied);
    }
    let Copied { channels, entries } = copied;
    say(out, format!("copied and compared: {channels} channels, {entries} entries; now set state.backend"))
}

fn check_alone(peers: &Peers) -> Result<(), Failure> {
    let seen = peers.seen.borrow();
    let live = seen.view.instances.values().filter(|instance| instance.shares());
    let names: Vec<_> = live.map(|instance| &*instance.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Failure(Exit::Failed, format!("instances live ({}): stop them first; nothing was copied", names.join(", "))))
}

fn failed(error: &StateError) -> Failure {
    Failure(Exit::Failed, Chain(error).to_string())
}
