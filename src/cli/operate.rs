//! The way of a command to the state, which one process at a time may open: by the control socket of a daemon that runs,
//! by itself where none does.
//!
//! # Invariants
//!
//! * **Nothing is made.** Where there is no state, none is created; and nobody but its owner opens it, because files of
//!   somebody else in it would keep the daemon from starting.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exit::{Exit, Failure};
use super::run::open_state;
use crate::config::{Channel, Local};
use crate::control::{self, Answer, Operations, Refusal, Request};
use crate::state::StateError;
use crate::telemetry::{self, Chain};

/// How long the state may belong to a process that does not answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two tries.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the command line asks, and what it is answered.
pub(super) struct Operator {
    config: Local,
}

impl Operator {
    /// Over the state of a configuration, of which no secret is read. What is changed is logged.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let config = Local::load(file).map_err(|problems| Failure::Config(problems.to_string()))?;
        telemetry::init_plain(&config.log);
        Ok(Self { config })
    }

    /// The configured channels.
    pub(super) fn channels(&self) -> &[Channel] {
        &self.config.channels
    }

    /// Has it done by a daemon that runs.
    pub(super) async fn ask_the_daemon(&self, request: Request) -> Result<Answer, Failure> {
        let path = &self.config.state.path;
        match control::ask(path, &request).await.map_err(|source| no_answer(path, source))? {
            Some(told) => Ok(told?),
            None => Err(Failure::Failed(format!("no daemon answers in {}: nothing runs there", path.display()))),
        }
    }

    /// Has it done.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        let path = &self.config.state.path;
        let since = Instant::now();
        loop {
            let told = control::ask(path, &request).await.map_err(|source| no_answer(path, source))?;
            if let Some(told) = told {
                return Ok(told?);
            }
            owned(path)?;
            match open_state(path.clone()).await {
                Ok(state) => {
                    return Ok(Operations::offline(Arc::new(state), self.channels()).answer(request).await?);
                }
                // A daemon that begins or ends, or another command.
                Err(StateError::InUse { .. }) if since.elapsed() < PATIENCE => tokio::time::sleep(LOOK_AGAIN).await,
                Err(error) => return Err(refused(path, &error)),
            }
        }
    }
}

fn no_answer(path: &Path, source: io::Error) -> Failure {
    Failure::Io { doing: format!("the daemon on the state in {} could not be asked", path.display()), source }
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
            Failure::Failed(format!(
                "the state in {path} belongs to process {holder} now: and does not answer at its control socket: its log says why; or stop it first"
            ))
        }
        error => Failure::Failed(Chain(error).to_string()),
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Usage(message) => Self::Usage(message),
            Refusal::Config(message) => Self::Config(message),
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

/// Writes each of them as one line, of JSON or as `line` has it.
pub(super) fn write_each<T: serde::Serialize>(
    out: &mut impl io::Write,
    json: bool,
    each: &[T],
    line: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    if json {
        return write_json(out, each);
    }
    let mut lines = each.iter().map(line);
    lines.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Writes a line, and that is all there is to say.
pub(super) fn say(out: &mut impl io::Write, line: &str) -> Result<Exit, Failure> {
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::output)?;
    Ok(Exit::Done)
}
