//! The daemon: channels, control socket, admin listener and service manager together, from start to stop.
//!
//! # Cancellation
//!
//! The first stop signal stops reading; batches in hand are delivered and recorded within `shutdown_grace`. The second one
//! ends [`run`] at once. A reload is never interrupted halfway.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::SharedParts;
use crate::config::{self, Config, Text};
use crate::ledger::store::Sled;
use crate::ledger::{Ledgers, StateError};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::operator::{Changes, Listener, Operations, Process, Refusal, Reloading, Reloads, Socket, Sources};
use crate::telemetry::{self, ALWAYS, Chain, Logs};
use crate::version;

pub mod assembly;
mod exporting;
mod in_force;
pub mod signals;
pub mod supervisor;
pub mod systemd;

pub use signals::{Signal, Signals};
pub use supervisor::Outcome;

use exporting::Exporting;
use in_force::InForce;
use supervisor::Wanted;
use systemd::Notifier;

/// Between two looks at the files of secrets and certificates.
const LOOK_AT_FILES: Duration = Duration::from_secs(2);

/// What a daemon starts with.
pub struct Start {
    /// The operator's file, read again at each reload. `None` where the environment alone configures.
    pub file: Option<PathBuf>,
    /// The file's text, as it was read.
    pub text: Text,
    /// The configuration that the text gave.
    pub config: Config,
    /// The signals of the process.
    pub signals: io::Result<Signals>,
}

/// Runs the daemon until a signal ends it, or until no channel is left.
///
/// # Errors
/// If it could not start: nothing was read or delivered.
pub async fn run(start: Start) -> Result<Outcome, StartError> {
    let config = &start.config;
    let logs = telemetry::init(&config.log);
    info!(target: ALWAYS, version = version::text(), channels = config.channels.len(), "channeld starts");
    for note in &config.notes {
        warn!(target: ALWAYS, note, "configuration");
    }
    let (daemon, wanted) = Daemon::start(start, logs).await?;
    let (controlled, notifier) = (daemon.controlled(), Notifier::from_environment());
    let told = systemd::tell(&notifier, daemon.liveness.clone(), daemon.operations.subscribe());
    let beside = async {
        tokio::join!(controlled, told);
        std::future::pending().await
    };
    let outcome = tokio::select! { outcome = daemon.serve(wanted, &notifier) => outcome, outcome = beside => outcome };
    info!(target: ALWAYS, ?outcome, "channeld ends");
    Ok(outcome)
}

/// Why the daemon could not start, or why a new configuration was rejected.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

struct Daemon {
    file: Option<PathBuf>,
    in_force: InForce,
    parts: SharedParts,
    logs: Logs,
    exporting: Exporting,
    process: Process,
    /// What the control socket answers with. Replaced with each configuration.
    operations: watch::Sender<Arc<Operations>>,
    /// Requests of `channeld reload`.
    reloads: mpsc::Receiver<Reloading>,
    asks: Reloads,
    signals: Signals,
    liveness: Liveness,
    _admin: Option<Listener>,
}

impl Daemon {
    async fn start(start: Start, logs: Logs) -> Result<(Self, Wanted), StartError> {
        let Start { file, text, config, signals } = start;
        let signals = signals?;
        let ledgers = Arc::new(open_ledgers(config.state_path.clone()).await?);
        let metrics = Metrics::default();
        let (traces, exporting) = Exporting::begin(config.otlp.clone(), &metrics)?;
        let writes = ledgers.writes();
        let parts = SharedParts::new(ledgers, metrics.clone(), traces);
        let (in_force, wanted) = InForce::first(text, config, &parts)?;
        let process = Process { pid: std::process::id(), started: Timestamp::now() };
        let (asks, reloads) = mpsc::channel(1);
        let operations = watch::Sender::new(Arc::new(operations(process, &parts, &asks, &in_force.config)));
        let liveness = Liveness::new(parts.handles.clone(), writes.clone());
        metrics.show(writes.durations());
        metrics.show_process();
        metrics.config_in_force();
        let sources = Sources { liveness: liveness.clone(), operations: operations.subscribe(), metrics };
        let admin = in_force.config.listen.map(|address| Listener::start(address, sources)).transpose()?;
        let daemon = Self {
            file,
            in_force,
            parts,
            logs,
            exporting,
            process,
            operations,
            reloads,
            asks,
            signals,
            liveness,
            _admin: admin,
        };
        Ok((daemon, wanted))
    }

    /// Serves the control socket, where there can be one. Does not end.
    fn controlled(&self) -> impl Future<Output = Infallible> + use<> {
        let socket = Socket::listen(&self.in_force.config.state_path).inspect_err(
            |error| warn!(%error, "no control socket: commands reach the state only while this daemon does not run"),
        );
        let sources = Sources {
            liveness: self.liveness.clone(),
            operations: self.operations.subscribe(),
            metrics: self.parts.metrics.clone(),
        };
        async move {
            match socket {
                Ok(socket) => socket.serve(sources).await,
                Err(_) => std::future::pending().await,
            }
        }
    }

    async fn serve(mut self, wanted: Wanted, notifier: &Notifier) -> Outcome {
        let (stop, wanted) = (CancellationToken::new(), watch::Sender::new(wanted));
        let running = supervisor::run(wanted.subscribe(), stop.clone());
        tokio::pin!(running);
        let mut watched = JoinSet::new();
        watched.spawn(self.liveness.clone().beat());
        watched.spawn(self.logs.limit.clone().watch());
        let mut look = tokio::time::interval(LOOK_AT_FILES);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        notifier.ready();
        let mut stopping = None;
        loop {
            tokio::select! {
                outcome = &mut running => {
                    let grace = self.in_force.config.shutdown_grace;
                    self.exporting.end(stopping.unwrap_or_else(Instant::now) + grace).await;
                    self.logs.limit.end();
                    return outcome;
                }
                signal = self.signals.next() => match signal {
                    Signal::Stop if stop.is_cancelled() => {
                        self.logs.limit.end();
                        warn!(target: ALWAYS, "second signal: ending at once");
                        return Outcome::Interrupted;
                    }
                    Signal::Stop => {
                        info!(target: ALWAYS, "stopping: the batch in hand is finished and recorded first");
                        notifier.stopping(self.in_force.config.shutdown_grace);
                        stopping = Some(Instant::now());
                        stop.cancel();
                        self.reloads.close();
                    }
                    Signal::Reload if stop.is_cancelled() => {}
                    // An error has been logged.
                    Signal::Reload => drop(self.reload(&wanted, notifier).await),
                },
                Some(reply) = self.reloads.recv() => {
                    let outcome = self.reload(&wanted, notifier).await;
                    // The command may have ended.
                    let _ = reply.send(outcome.map_err(|error| Refusal::Config(Chain(&*error).to_string())));
                }
                _ = look.tick(), if !stop.is_cancelled() => {
                    if let Some(newer) = self.in_force.follow_files(&self.parts).await {
                        self.put_in_force(newer, &wanted);
                    }
                }
            }
        }
    }

    async fn reload(&mut self, wanted: &watch::Sender<Wanted>, notifier: &Notifier) -> Result<Changes, StartError> {
        notifier.reloading();
        match self.in_force.reload(self.file.as_deref(), &self.parts).await {
            Ok((changes, newer)) => {
                self.put_in_force(newer, wanted);
                notifier.ready();
                Ok(changes)
            }
            Err(error) => {
                self.parts.metrics.config_rejected();
                notifier.rejected();
                Err(error)
            }
        }
    }

    fn put_in_force(&self, newer: Wanted, wanted: &watch::Sender<Wanted>) {
        let config = &self.in_force.config;
        self.logs.set(&config.log);
        self.exporting.follow(config.otlp.as_ref());
        self.operations.send_replace(Arc::new(operations(self.process, &self.parts, &self.asks, config)));
        wanted.send_replace(newer);
        self.parts.metrics.config_in_force();
    }
}

fn operations(process: Process, parts: &SharedParts, asks: &Reloads, config: &Config) -> Operations {
    let channels = config.channels.iter().map(config::Channel::for_operator);
    Operations::of_daemon(process, parts, asks.clone(), channels)
}

/// Opens the state off the async threads.
///
/// # Errors
/// [`StateError`].
pub async fn open_ledgers(path: PathBuf) -> Result<Ledgers, StateError> {
    let opened = tokio::task::spawn_blocking(move || Sled::open(&path)).await;
    let store = opened.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())))?;
    Ok(Ledgers::over(Arc::new(store)))
}
