//! The way of a command to the state, which one process at a time may open.
//!
//! # Invariants
//!
//! * **Nothing is made.** Where there is no state, none is created; and nobody but its owner opens it, because files of
//!   somebody else in it would keep the daemon from starting.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::exit::Failure;
use super::run::open_state;
use crate::config::Config;
use crate::control::{Answer, Operations, Refusal, Request};
use crate::state::StateError;
use crate::telemetry::{self, Chain};

/// What the command line asks, and what it is answered.
pub(super) struct Operator<'a> {
    config: &'a Config,
}

impl<'a> Operator<'a> {
    /// Over the state of a configuration. What is changed is logged.
    pub(super) fn new(config: &'a Config) -> Self {
        telemetry::init_plain(&config.log);
        Self { config }
    }

    /// Has it done.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        let path = &self.config.state.path;
        owned(path)?;
        let state = open_state(path.clone()).await.map_err(|error| refused(path, &error))?;
        Ok(Operations::new(Arc::new(state), self.config).answer(request).await?)
    }
}

/// Whether there is a state, and it is ours.
fn owned(path: &Path) -> Result<(), Failure> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => {
            Failure::Failed(format!("there is no state in {}: is this the daemon's configuration?", path.display()))
        }
        _ => Failure::Io { doing: format!("the state in {} could not be read", path.display()), source },
    };
    let owner = std::fs::metadata(path.join("cursors.json")).map_err(failed)?.uid();
    let ours = rustix::process::geteuid().as_raw();
    if owner != ours {
        let path = path.display();
        return Err(Failure::Failed(format!(
            "the state in {path} belongs to user {owner}, and this is user {ours}: run this command as its owner"
        )));
    }
    Ok(())
}

fn refused(path: &Path, error: &StateError) -> Failure {
    match error {
        StateError::InUse { holder, .. } => {
            let path = path.display();
            Failure::Failed(format!("the state in {path} belongs to process {holder} now: stop the daemon first"))
        }
        error => Failure::Failed(Chain(error).to_string()),
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Usage(message) => Self::Usage(message),
            Refusal::Failed(message) => Self::Failed(message),
        }
    }
}

/// An answer to another question: the two sides are of different versions.
pub(super) fn unexpected() -> Failure {
    Failure::Failed(
        "the running daemon answered something else: is it of another version than this command?".to_owned(),
    )
}

/// Writes each of them as one line of JSON.
pub(super) fn write_json<T: serde::Serialize>(out: &mut impl io::Write, each: &[T]) -> Result<(), Failure> {
    let mut line = |one| writeln!(out, "{}", serde_json::to_string(one)?);
    each.iter().try_for_each(&mut line).and_then(|()| out.flush()).map_err(Failure::output)
}
