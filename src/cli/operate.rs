//! How a command reaches the state, which one process at a time may open: over the control socket of a running daemon, and
//! directly where none runs.
//!
//! # Invariants
//!
//! * **No state is created.** And only its owner opens it: files of another user in it would keep the daemon from starting.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exit::{Exit, Failure};
use crate::config::{Channel, Local};
use crate::daemon::open_ledgers;
use crate::ledger::StateError;
use crate::operator::{self, Operations, Refusal, Request};
use crate::telemetry::{self, Chain};

/// How long the state may belong to a process that does not answer.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Between two tries.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Asks for what the command line says.
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

    /// Asks the running daemon.
    pub(super) async fn ask_daemon<R: Request>(&self, request: &R) -> Result<R::Answer, Failure> {
        let path = &self.config.state_path;
        match operator::ask(path, request).await.map_err(|source| no_answer(path, source))? {
            Some(answer) => Ok(answer?),
            None => Err(Failure::Failed(format!("no daemon answers in {}: nothing runs there", path.display()))),
        }
    }

    /// Asks the running daemon or, where none runs, carries the request out here.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, Failure> {
        let path = &self.config.state_path;
        let since = Instant::now();
        loop {
            let answer = operator::ask(path, request).await.map_err(|source| no_answer(path, source))?;
            if let Some(answer) = answer {
                return Ok(answer?);
            }
            owned(path)?;
            match open_ledgers(path.clone()).await {
                Ok(ledgers) => {
                    let channels = self.channels().iter().map(Channel::for_operator);
                    let operations = Operations::offline(Arc::new(ledgers), channels);
                    return Ok(request.perform(&operations).await?);
                }
                // A daemon that starts or ends has it, or another command.
                Err(StateError::InUse { .. }) if since.elapsed() < MAX_WAIT => tokio::time::sleep(LOOK_AGAIN).await,
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
                "the state in {path} belongs to process {holder} now, which does not answer at its control socket: its log \
                 says why; or stop it first"
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

/// Writes a line and is done.
pub(super) fn say(out: &mut impl io::Write, line: &str) -> Result<Exit, Failure> {
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::output)?;
    Ok(Exit::Done)
}
