//! `channeld run`: the daemon.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::admin::{Admin, Sources};
use crate::channel::{Handles, Lasting};
use crate::config::{Config, Loaded, Text};
use crate::control::{Changes, Operations, Process, Refusal, Reloading, Reloads, Socket};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::signals::{Signal, Signals};
use crate::state::{State, StateError};
use crate::supervisor::{self, Outcome, Wanted};
use crate::systemd::Notifier;
use crate::telemetry::{self, ALWAYS, Chain, Logs};
use crate::version;

use super::exit::Exit;

mod reload;
mod supervision;
mod traces;

use reload::InForce;
use traces::Exporting;

/// How long it takes at most until a secret that has changed on the disk is noticed.
const LOOK_AT_FILES: Duration = Duration::from_secs(2);

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
    let loaded = Text::read(file.as_deref()).and_then(|text| Ok((Config::of(&text, std::env::vars_os())?, text)));
    let (loaded, text) = match loaded {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprintln!("{problems}");
            return Exit::Config;
        }
    };
    let logs = telemetry::init(&loaded.config.log);
    let channels = loaded.config.channels.len();
    info!(target: ALWAYS, version = version::text(), channels, "channeld starts");
    for note in &loaded.config.notes {
        warn!(target: ALWAYS, note, "configuration");
    }
    match Daemon::start(file, text, loaded, logs, signals).await {
        Ok((daemon, wanted)) => {
            let (controlled, notifier) = (daemon.controlled(), Notifier::from_environment());
            let told = supervision::tell(&notifier, daemon.liveness.clone(), daemon.operations.subscribe());
            tokio::select! {
                exit = daemon.serve(wanted, &notifier) => exit,
                () = controlled => Exit::Failed,
                () = told => Exit::Failed,
            }
        }
        Err(error) => {
            error!(target: ALWAYS, error = %Chain(&*error), "channeld could not start");
            Exit::Failed
        }
    }
}

type StartError = Box<dyn std::error::Error + Send + Sync>;

struct Daemon {
    file: Option<PathBuf>,
    in_force: InForce,
    lasting: Lasting,
    logs: Logs,
    exporting: Exporting,
    process: Process,
    /// What the control socket answers with: over the configuration in force.
    operations: watch::Sender<Arc<Operations>>,
    /// Where commands ask for the configuration to be read again.
    reloads: mpsc::Receiver<Reloading>,
    asks: Reloads,
    signals: Signals,
    liveness: Liveness,
    _admin: Option<Admin>,
}

impl Daemon {
    async fn start(
        file: Option<PathBuf>,
        text: Text,
        loaded: Loaded,
        logs: Logs,
        signals: io::Result<Signals>,
    ) -> Result<(Self, Wanted), StartError> {
        let signals = signals?;
        let state = Arc::new(open_state(loaded.config.state.path.clone()).await?);
        let metrics = Metrics::default();
        let (traces, exporting) = Exporting::begin(&loaded.config.log, &metrics)?;
        let handles = Arc::new(Handles::traced(metrics.clone(), traces));
        let lasting = Lasting::new(state, handles);
        let (in_force, wanted) = InForce::first(text, loaded, &lasting)?;
        let process = Process { pid: std::process::id(), started: Timestamp::now() };
        let (asks, reloads) = mpsc::channel(1);
        let operations = watch::Sender::new(Arc::new(operations(process, &lasting, &asks, &in_force.config)));
        let liveness = Liveness::new(lasting.handles.clone(), lasting.state.writes());
        metrics.show(lasting.state.writes().durations());
        metrics.show_process();
        metrics.config_in_force();
        let sources = Sources { liveness: liveness.clone(), operations: operations.subscribe(), metrics };
        let admin = in_force.config.admin.listen.map(|address| Admin::start(address, sources)).transpose()?;
        let daemon = Self {
            file,
            in_force,
            lasting,
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

    /// Answers at the control socket, where there can be one. Does not end.
    fn controlled(&self) -> impl Future<Output = ()> + use<> {
        let socket = Socket::listen(&self.in_force.config.state.path).inspect_err(
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

    async fn serve(mut self, wanted: Wanted, notifier: &Notifier) -> Exit {
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
                    return exit(outcome);
                }
                signal = self.signals.next() => match signal {
                    Signal::Stop if stop.is_cancelled() => {
                        self.logs.limit.end();
                        warn!(target: ALWAYS, "second signal: ending at once");
                        return Exit::Failed;
                    }
                    Signal::Stop => {
                        info!(target: ALWAYS, "stopping: the batch in hand is finished and recorded first");
                        notifier.stopping(self.in_force.config.shutdown_grace);
                        stopping = Some(Instant::now());
                        stop.cancel();
                        self.reloads.close();
                    }
                    Signal::Reload if stop.is_cancelled() => {}
                    // What is wrong with it has been logged.
                    Signal::Reload => drop(self.reload(&wanted, notifier).await),
                },
                Some(reply) = self.reloads.recv() => {
                    let outcome = self.reload(&wanted, notifier).await;
                    // Whoever asked may have left.
                    let _ = reply.send(outcome.map_err(|error| Refusal::Config(Chain(&*error).to_string())));
                }
                _ = look.tick(), if !stop.is_cancelled() => {
                    if let Some(newer) = self.in_force.follow_files(&self.lasting).await {
                        self.put_in_force(newer, &wanted);
                    }
                }
            }
        }
    }

    async fn reload(&mut self, wanted: &watch::Sender<Wanted>, notifier: &Notifier) -> Result<Changes, StartError> {
        notifier.reloading();
        match self.in_force.reload(self.file.as_deref(), &self.lasting).await {
            Ok((changes, newer)) => {
                self.put_in_force(newer, wanted);
                notifier.ready();
                Ok(changes)
            }
            Err(error) => {
                self.lasting.handles.metrics().config_rejected();
                notifier.rejected();
                Err(error)
            }
        }
    }

    fn put_in_force(&self, newer: Wanted, wanted: &watch::Sender<Wanted>) {
        let config = &self.in_force.config;
        self.logs.set(&config.log);
        self.exporting.follow(&config.log);
        self.operations.send_replace(Arc::new(operations(self.process, &self.lasting, &self.asks, config)));
        wanted.send_replace(newer);
        self.lasting.handles.metrics().config_in_force();
    }
}

fn operations(process: Process, lasting: &Lasting, asks: &Reloads, config: &Config) -> Operations {
    Operations::of_daemon(process, lasting.state.clone(), lasting.handles.clone(), asks.clone(), &config.channels)
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
    info!(target: ALWAYS, ?outcome, "channeld ends");
    match outcome {
        // Nothing is lost by what the grace did not suffice for: it is offered again at the next start.
        Outcome::Drained | Outcome::GraceExpired | Outcome::SinkClosed => Exit::Done,
        Outcome::AllGone => Exit::Unavailable,
        Outcome::StateFailed => Exit::Failed,
    }
}
