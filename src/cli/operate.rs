//! How a command reaches the state: over the control socket of a running daemon or, if none runs, directly.
//!
//! Only one process at a time may open the state of one machine. On a shared state, the command acts as an instance.
//!
//! # Invariants
//!
//! * **No state is created.** Only the owner of the state opens it: files of another user would keep the daemon from
//!   starting.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{User, geteuid};

use super::connect::configured;
use super::exit::{Exit, Failure};
use crate::config::Local;
use crate::daemon::open_ledgers;
use ledger::StateError;
use net::Chain;
use operator::{self, Operations, Request};
use telemetry::{self};

mod visit;

pub(super) use visit::visit;

/// How long the state may belong to a process that does not answer.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The pause between two attempts.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// At most this many characters of a user's name are logged.
const MOST_OF_A_NAME: usize = 80;

/// Carries out the requests of the command line.
pub(super) struct Operator {
    pub(super) config: Local,
}

impl Operator {
    /// Loads the parts of the configuration that need no secrets. Also starts the log, which records changes.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let config = Local::load(file)?;
        telemetry::init_plain(&config.log);
        Ok(Self { config })
    }

    /// Asks the running daemon.
    pub(super) async fn ask_daemon<R: Request>(&self, request: &R) -> Result<R::Answer, Failure> {
        let path = self.config.state.path.display();
        let none = || Failure(Exit::Failed, format!("no daemon is running with the state in {path}"));
        self.answer(request).await?.ok_or_else(none)
    }

    /// Asks the running daemon. If none runs, carries out the request without it.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, Failure> {
        let path = &self.config.state.path;
        let since = Instant::now();
        loop {
            if let Some(answer) = self.answer(request).await? {
                return Ok(answer);
            }
            if let Some(database) = &self.config.state.database {
                return visit::ask(database.clone(), &self.config.channels, request).await;
            }
            owned(path)?;
            match open_ledgers(self.config.state.clone()).await {
                Ok(ledgers) => {
                    let (ledgers, handles, recent) = (Arc::new(ledgers), Arc::default(), Arc::default());
                    let channels = configured(&self.config.channels);
                    let version = crate::version::text();
                    let operations =
                        Operations { version, ledgers, handles, recent, daemon: None, cluster: None, channels };
                    return Ok(request.perform(&operations).await?);
                }
                // A daemon that is starting or stopping, or another command, has the state open.
                Err(StateError::InUse { .. }) if since.elapsed() < MAX_WAIT => tokio::time::sleep(LOOK_AGAIN).await,
                Err(StateError::InUse { holder, .. }) => {
                    let path = path.display();
                    return Err(Failure(
                        Exit::Failed,
                        format!(
                            "the state in {path} belongs to process {holder} now, which does not answer at its control socket: see its log, or stop it first"
                        ),
                    ));
                }
                Err(error) => return Err(Failure(Exit::Failed, Chain(&error).to_string())),
            }
        }
    }

    /// The answer of the running daemon, or `None` if none runs.
    pub(super) async fn answer<R: Request>(&self, request: &R) -> Result<Option<R::Answer>, Failure> {
        let path = &self.config.state.path;
        let doing = format!("the daemon with the state in {} did not answer", path.display());
        let asked = operator::ask(path, request, &who()).await.map_err(|error| {
            let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
            let Failure(exit, mut message) = Failure::io(doing)(error);
            if is_refused {
                message.push_str(": run this command as root, or as the owner of that directory");
            }
            Failure(exit, message)
        })?;
        Ok(asked.transpose()?)
    }
}

/// The name of the user who asks, for the log. With `sudo`, it includes the user who called `sudo`.
pub(super) fn who() -> String {
    let uid = geteuid();
    let name = User::from_uid(uid).ok().flatten().map_or_else(|| format!("user {uid}"), |user| user.name);
    let before = std::env::var("SUDO_USER").ok().filter(|before| !before.is_empty() && *before != name);
    let who = before.map_or_else(|| name.clone(), |before| format!("{before} as {name}"));
    who.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MOST_OF_A_NAME).collect()
}

/// Checks that the state exists and belongs to this user.
pub(super) fn owned(path: &Path) -> Result<(), Failure> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => {
            Failure(Exit::Failed, format!("no state exists in {}: is this the daemon's configuration?", path.display()))
        }
        _ => Failure::io(format!("the state in {} could not be read", path.display()))(source),
    };
    let owner = std::fs::metadata(path.join("cursors.json")).map_err(failed)?.uid();
    let ours = rustix::process::geteuid().as_raw();
    if owner != ours {
        let path = path.display();
        return Err(Failure(
            Exit::Failed,
            format!(
                "the state in {path} belongs to user {owner}, and this is user {ours}: run this command as its owner"
            ),
        ));
    }
    Ok(())
}
