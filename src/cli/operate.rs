//! Carries out requests about the state. A running daemon receives them over its control socket. If no daemon runs, the
//! command opens the state itself.
//!
//! Only one process at a time may open a state directory. If instances share the state in a database, the command joins them
//! as one more instance while it runs. The command configures no channel, so no channel moves to it. If a request changes a
//! channel without an owner, the command takes the lease of the channel, and releases the lease at the end.
//!
//! # Invariants
//!
//! * **No state is created.** Only the user to whom the state belongs can open it: the daemon could not start if files of
//!   the state belonged to another user.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{User, geteuid};
use reqwest::Method;
use tokio::time::timeout;

use super::context::{CommandError, Context, configured};
use crate::config::LocalConfig;
use crate::daemon::membership::Sharing;
use crate::daemon::{open_blocking, open_ledgers};
use cluster::Peers;
use ledger::store::Store;
use ledger::store::shared::Configured;
use ledger::{Ledgers, StateError};
use net::Chain;
use operator::{Operations, Request};

/// How long the command waits for a state that a process has open without answering requests.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The pause between two attempts to open the state.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long a daemon may take to answer a request that changes nothing. A process that is stopped by a signal, or that hangs,
/// accepts connections and never answers. Requests that change something can wait for a sink or for another instance, and
/// their outcome would be unknown after a limit.
const MAX_WAIT_FOR_ANSWER: Duration = Duration::from_secs(30);

/// How long the database may take to report the other instances.
const MAX_WAIT_FOR_INSTANCES: Duration = Duration::from_secs(10);

/// At most this many characters of a user's name are logged.
const MOST_OF_A_NAME: usize = 80;

/// Carries out the requests of the command line.
pub(super) struct Operator {
    pub(super) config: LocalConfig,
}

impl Context<'_> {
    /// Loads the parts of the configuration that need no secrets. Also starts the log, which records changes.
    pub(super) fn operator(&self) -> Result<Operator, CommandError> {
        let config = LocalConfig::load(self.file)?;
        telemetry::init_plain(&config.log);
        Ok(Operator { config })
    }
}

impl Operator {
    /// Asks the running daemon.
    pub(super) async fn ask_daemon<R: Request>(&self, request: &R) -> Result<R::Answer, CommandError> {
        let path = self.config.state.path.display();
        let none = || CommandError::failed(format!("no daemon is running with the state in {path}"));
        self.answer(request).await?.ok_or_else(none)
    }

    /// Asks the running daemon. If none runs, carries out the request without it.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, CommandError> {
        let state = &self.config.state;
        let path = state.path.display();
        let since = Instant::now();
        loop {
            if let Some(answer) = self.answer(request).await? {
                return Ok(answer);
            }
            if let Some(database) = state.database.clone() {
                let carry_out = async |store, peers| {
                    Ok(self.operations(Ledgers::over(store), Some(peers)).carry_out(request).await?)
                };
                return visit(move || database.open(None), carry_out).await;
            }
            owned(&state.path)?;
            match open_ledgers(state.clone()).await {
                Ok(ledgers) => return Ok(self.operations(ledgers, None).carry_out(request).await?),
                // A daemon that is starting or stopping, or another command, has the state open.
                Err(StateError::InUse { .. }) if since.elapsed() < MAX_WAIT => tokio::time::sleep(LOOK_AGAIN).await,
                Err(StateError::InUse { holder, .. }) => {
                    return Err(CommandError::failed(format!(
                        "the state in {path} is in use by process {holder}, but this process does not answer at its control socket: see the log of the process, or stop the process first"
                    )));
                }
                Err(error) => return Err(CommandError::by(&error)),
            }
        }
    }

    /// The operations that carry out requests in this process, on a state that it has opened.
    fn operations(&self, ledgers: Ledgers, cluster: Option<Peers>) -> Operations {
        Operations {
            version: crate::version::text(),
            ledgers: Arc::new(ledgers),
            handles: Arc::default(),
            recent: Arc::default(),
            daemon: None,
            log: None,
            api_keys: Vec::new(),
            discovery: None,
            feed: None,
            rejected_config: None,
            cluster,
            channels: configured(&self.config.channels).into(),
        }
    }

    /// The answer of the running daemon, or `None` if none runs.
    pub(super) async fn answer<R: Request>(&self, request: &R) -> Result<Option<R::Answer>, CommandError> {
        let path = &self.config.state.path;
        let by = who();
        let asking = operator::ask(path, request, &by);
        let asked = match R::METHOD {
            Method::GET => timeout(MAX_WAIT_FOR_ANSWER, asking).await.unwrap_or_else(|_| {
                let message =
                    format!("no answer for {} s: see whether the process hangs", MAX_WAIT_FOR_ANSWER.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }),
            _ => asking.await,
        };
        let asked = asked.map_err(|error| {
            let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
            let remedy = if is_refused { ": run this command as root, or as the owner of that directory" } else { "" };
            let CommandError(exit, message) =
                CommandError::io(format!("the daemon with the state in {} did not answer", path.display()))(error);
            CommandError(exit, message + remedy)
        })?;
        Ok(asked.transpose()?)
    }
}

/// Runs `work` on a state that instances share, as one of the instances. `open` opens the state on a blocking thread.
pub(super) async fn visit<T>(
    open: impl FnOnce() -> Result<Arc<dyn Store>, StateError> + Send + 'static,
    work: impl AsyncFnOnce(Arc<dyn Store>, Peers) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let store = open_blocking(open).await.map_err(|error| unreachable(&Chain(&error).to_string()))?;
    let Some(membership) = store.clone().membership() else { return Err(unreachable("instances do not share it")) };
    let sharing = Sharing::begin(membership, Configured::default());
    let peers = sharing.peers.clone();
    let worked = match arrived(&peers).await {
        Ok(()) => work(store, peers).await,
        Err(failure) => Err(failure),
    };
    sharing.end().await;
    worked
}

/// Waits until the other instances are known.
async fn arrived(peers: &Peers) -> Result<(), CommandError> {
    let mut seen = peers.seen.clone();
    let has_looked = seen.wait_for(|seen| seen.trouble.is_some() || !seen.view.instances.is_empty());
    match timeout(MAX_WAIT_FOR_INSTANCES, has_looked).await {
        Ok(Ok(seen)) => seen.trouble.as_deref().map_or(Ok(()), |trouble| Err(unreachable(trouble))),
        _ => Err(unreachable(&format!("its database has not answered for {} s", MAX_WAIT_FOR_INSTANCES.as_secs()))),
    }
}

fn unreachable(why: &str) -> CommandError {
    CommandError::failed(format!("the state cannot be reached: {why}"))
}

/// The name of the user who runs the command, for the log. If the user called `sudo`, the text contains both names.
pub(super) fn who() -> String {
    let uid = geteuid();
    let name = User::from_uid(uid).ok().flatten().map_or_else(|| format!("user {uid}"), |user| user.name);
    let before = std::env::var("SUDO_USER").ok().filter(|before| !before.is_empty() && *before != name);
    let who = before.map_or_else(|| name.clone(), |before| format!("{before} as {name}"));
    who.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MOST_OF_A_NAME).collect()
}

/// Checks that the state exists and belongs to this user.
pub(super) fn owned(path: &Path) -> Result<(), CommandError> {
    let shown = path.display();
    let found = std::fs::metadata(path.join("cursors.json")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            CommandError::failed(format!("no state exists in {shown}: is this the daemon's configuration?"))
        }
        _ => CommandError::io(format!("the state in {shown} could not be read"))(error),
    })?;
    let (owner, ours) = (found.uid(), geteuid().as_raw());
    if owner == ours {
        return Ok(());
    }
    Err(CommandError::failed(format!(
        "the state in {shown} belongs to user {owner}, but this command runs as user {ours}: run it as the owner"
    )))
}
