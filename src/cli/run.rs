//! `channeld run`: the daemon.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::assembly;
use crate::channel::{Channel, Handles, RecentEvents};
use crate::config::Config;
use crate::control::{Operations, Process, Socket};
use crate::signals::{Signal, Signals};
use crate::state::{State, StateError};
use crate::supervisor::{self, Outcome};
use crate::systemd::Notifier;
use crate::telemetry::{self, Chain, LogLevel};
use crate::version;

use super::exit::Exit;

mod supervision;

/// Read the configured channels and deliver their verified events, until told to stop.
///
/// Events go to the configured sinks, logs to standard error. SIGTERM and SIGINT let the batch in hand finish and be
/// recorded; a second one ends at once. SIGHUP reads the configuration and the secrets again.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the daemon until a signal, or until nothing is left to do.
pub async fn run(file: Option<PathBuf>) -> Exit {
    // First, so that a signal that comes while we start ends us in good order too.
    let signals = Signals::listen();
    let config = match Config::load(file.as_deref()) {
        Ok(config) => config,
        Err(problems) => {
            eprintln!("{problems}");
            return Exit::Config;
        }
    };
    let level = telemetry::init(&config.log);
    info!(version = version::text(), channels = config.channels.len(), "channeld starts");
    for note in &config.notes {
        warn!(note, "configuration");
    }
    match Daemon::start(file, config, level, signals).await {
        Ok((daemon, channels)) => {
            let controlled = daemon.controlled();
            let notifier = Notifier::from_environment();
            let told = supervision::tell(&notifier, daemon.operations.subscribe());
            tokio::select! {
                exit = daemon.serve(channels, &notifier) => exit,
                () = controlled => Exit::Failed,
                () = told => Exit::Failed,
            }
        }
        Err(error) => {
            error!(error = %Chain(&*error), "channeld could not start");
            Exit::Failed
        }
    }
}

type StartError = Box<dyn std::error::Error + Send + Sync>;

struct Daemon {
    file: Option<PathBuf>,
    config: Config,
    level: LogLevel,
    process: Process,
    state: Arc<State>,
    recent: Arc<RecentEvents>,
    handles: Arc<Handles>,
    /// What the control socket answers with: over the configuration in force.
    operations: watch::Sender<Arc<Operations>>,
    signals: Signals,
}

/// A configuration that was read again, and its channels, ready to run.
type Reloaded = Option<(Config, Vec<Channel>)>;

/// What ended the channels of one configuration.
enum Ended {
    /// They themselves, or a signal.
    With(Outcome),
    /// The next configuration.
    For(Box<Config>, Vec<Channel>),
    /// A second signal.
    Killed,
}

impl Daemon {
    async fn start(
        file: Option<PathBuf>,
        config: Config,
        level: LogLevel,
        signals: io::Result<Signals>,
    ) -> Result<(Self, Vec<Channel>), StartError> {
        let signals = signals?;
        let state = Arc::new(open_state(config.state.path.clone()).await?);
        let (recent, handles) = (Arc::default(), Arc::<Handles>::default());
        let channels = assemble(&config, &state, &recent, &handles)?;
        let process = Process { pid: std::process::id(), started: Timestamp::now() };
        let operations = Operations::of_daemon(process, state.clone(), handles.clone(), &config);
        let operations = watch::Sender::new(Arc::new(operations));
        Ok((Self { file, config, level, process, state, recent, handles, operations, signals }, channels))
    }

    /// Answers at the control socket, where there can be one. Does not end.
    fn controlled(&self) -> impl Future<Output = ()> + use<> {
        let socket = Socket::listen(&self.config.state.path).inspect_err(
            |error| warn!(%error, "no control socket: commands reach the state only while this daemon does not run"),
        );
        let operations = self.operations.subscribe();
        async move {
            match socket {
                Ok(socket) => socket.serve(operations).await,
                Err(_) => std::future::pending().await,
            }
        }
    }

    async fn serve(mut self, mut channels: Vec<Channel>, notifier: &Notifier) -> Exit {
        loop {
            notifier.ready();
            match self.run(channels, notifier).await {
                Ended::With(outcome) => return exit(outcome),
                Ended::Killed => return Exit::Failed,
                Ended::For(config, next) => {
                    self.level.set(&config.log);
                    info!(channels = next.len(), "configuration read again: in force");
                    let operations =
                        Operations::of_daemon(self.process, self.state.clone(), self.handles.clone(), &config);
                    self.operations.send_replace(Arc::new(operations));
                    (self.config, channels) = (*config, next);
                }
            }
        }
    }

    async fn run(&mut self, channels: Vec<Channel>, notifier: &Notifier) -> Ended {
        let stop = CancellationToken::new();
        let (mut next, mut stopping) = (None, false);
        let running = supervisor::run(channels, stop.clone(), self.config.shutdown_grace);
        tokio::pin!(running);
        let outcome = loop {
            let signal = tokio::select! {
                outcome = &mut running => break outcome,
                signal = self.signals.next() => signal,
            };
            match signal {
                Signal::Stop if stopping => {
                    warn!("second signal: ending at once");
                    return Ended::Killed;
                }
                Signal::Stop => {
                    info!("stopping: the batch in hand is finished and recorded first");
                    notifier.stopping(self.config.shutdown_grace);
                    (next, stopping) = (None, true);
                }
                Signal::Reload if stopping => continue,
                // What was read last holds, also where an earlier reading is still being carried out.
                Signal::Reload => {
                    notifier.reloading();
                    let read = self.read_again().await;
                    if read.is_none() {
                        notifier.rejected();
                    }
                    next = read.or(next);
                }
            }
            if stopping || next.is_some() {
                stop.cancel();
            }
        };
        match next {
            // A sink that hangs must not turn a new configuration into an end: what it has not taken in time is offered
            // again, as it would be at a start.
            Some((config, channels)) if matches!(outcome, Outcome::Drained | Outcome::GraceExpired) => {
                Ended::For(Box::new(config), channels)
            }
            _ => Ended::With(outcome),
        }
    }

    /// Reads everything again; `None`, and nothing changes, where any of it is wrong.
    async fn read_again(&self) -> Reloaded {
        let file = self.file.clone();
        let loaded = tokio::task::spawn_blocking(move || Config::load(file.as_deref())).await;
        let read = loaded.map_err(StartError::from).and_then(|config| {
            let config = config?;
            if config.state.path != self.config.state.path {
                return Err("state.path cannot change while channeld runs".into());
            }
            let channels = assemble(&config, &self.state, &self.recent, &self.handles)?;
            Ok((config, channels))
        });
        read.inspect(|_| info!("configuration read again: the batches in hand are finished first"))
            .inspect_err(|error| error!(error = %Chain(&**error), "configuration rejected: nothing changes"))
            .ok()
    }
}

fn assemble(
    config: &Config,
    state: &Arc<State>,
    recent: &Arc<RecentEvents>,
    handles: &Handles,
) -> Result<Vec<Channel>, StartError> {
    let client = assembly::client(&config.api)?;
    let sinks = assembly::sinks(config)?;
    Ok(assembly::channels(config, &client, &sinks, state, recent, handles))
}

/// Opens the state off the async threads.
///
/// # Errors
/// [`StateError`].
pub(super) async fn open_state(path: PathBuf) -> Result<State, StateError> {
    let open = move || State::open(&path);
    tokio::task::spawn_blocking(open).await.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())))
}

fn exit(outcome: Outcome) -> Exit {
    info!(?outcome, "channeld ends");
    match outcome {
        // Nothing is lost by what the grace did not suffice for: it is offered again at the next start.
        Outcome::Drained | Outcome::GraceExpired | Outcome::SinkClosed => Exit::Done,
        Outcome::AllGone => Exit::Unavailable,
        Outcome::StateFailed => Exit::Failed,
    }
}
