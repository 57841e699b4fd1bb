//! Runs the daemon from start to stop: channels, control socket, admin listener and messages to the service manager.
//!
//! # Cancellation
//!
//! The first stop signal stops reading. The current batches are delivered and recorded within `shutdown_grace`. The second stop
//! signal ends `run` at once. A reload is applied as a whole, or not at all.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Loaded;
use crate::version;
use channel::{Channel, Processors, SharedParts};
use ledger::store::StateSettings;
use ledger::{Ledgers, StateError};
use net::shortage::{DescriptorLimits, Shortage};
use operator::liveness::Liveness;
use operator::{self, Discovery, Listener, Operations, Reloading, Socket, Sources};
use telemetry::metrics::Metrics;
use telemetry::{ALWAYS, Logs};

pub(crate) mod assembly;
pub(crate) mod background;
mod catch_up;
pub(crate) mod membership;
mod opening;
mod reading;
mod reload;
pub(crate) mod signals;
pub(crate) mod supervisor;
mod systemd;
mod trace_export;

pub(crate) use assembly::{StartError, feed_cannot_listen};
pub(crate) use signals::{Signal, Signals};
pub(crate) use supervisor::EndReason;

use ::feed::Served;
use assembly::{AssemblyError, Clients, FeedService, Sinks};
use background::{discovery, keys, names, progress};
use membership::Sharing;
use reading::{FollowedFiles, Reading, Rejections};
use supervisor::Supervisor;
use systemd::{Notifier, Phase};
use trace_export::TraceExport;

/// How often the files of secrets and certificates are checked for changes.
const LOOK_AT_FILES: Duration = Duration::from_secs(2);

/// The wait before the control socket is created again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal ends it, or until no channel is left. With `until_caught_up`, the daemon also ends when every
/// sink has every event that the service had at the start. It does not wait for unavailable channels. `loaded` was read from
/// the operator's `file`, which is read again at each reload. Without a file, the configuration comes from the environment
/// alone. If this function fails, no event was read or delivered.
pub(crate) async fn run(
    file: Option<PathBuf>,
    loaded: Loaded,
    signals: io::Result<Signals>,
    logs: Logs,
    until_caught_up: bool,
) -> Result<EndReason, StartError> {
    let config = &loaded.config;
    info!(target: ALWAYS, version = version::text(), channels = config.channels.len(), "channeld starts");
    for note in &config.notes {
        warn!(target: ALWAYS, note, "configuration");
    }
    let (needed, limit) = (config.descriptors(), DescriptorLimits::now().map_or(u64::MAX, |limits| limits.soft));
    if needed as u64 > limit {
        warn!(target: ALWAYS, needed, limit, "more files and connections can be needed than the limit of open files allows: raise LimitNOFILE");
    }
    let mut signals = signals?;
    let Some(ledgers) = opening::open(&config.state, &mut signals).await? else {
        return Ok(if until_caught_up { EndReason::NotCaughtUp } else { EndReason::Drained });
    };
    let mut daemon = Daemon::start(file, loaded, ledgers, signals, logs)?;
    let (sources, notifier) = (daemon.sources.clone(), daemon.notifier.clone());
    let config = &daemon.loaded.config;
    let admin = config.listen.map(|address| {
        Listener::start(address, &config.hosts, sources.clone()).map_err(|error| AssemblyError {
            what: Shortage::of(&error).map_or_else(
                || cannot_listen(address),
                |shortage| format!("admin.listen: cannot listen on {address}{}", shortage.advice()),
            ),
            source: error.into(),
        })
    });
    let _admin = admin.transpose()?;
    let feed = FeedService::start(config, &daemon.sinks, &sources.metrics).await?;
    if let Some(feed) = &feed {
        daemon.feed = Some(feed.served.clone());
        let operators = Some(feed.operators.clone());
        daemon.operations.send_modify(|now| *now = Arc::new(Operations { feed: operators, ..(**now).clone() }));
    }
    let (stop, last_answers) = (daemon.stop.clone(), feed.as_ref().map(FeedService::last_answers));
    let mut serving_feed = pin!(assembly::serve_feed(feed, stop.clone()));
    let state_path = config.state.path.clone();
    let socket = Socket::listen(&state_path);
    daemon.follow_work();
    let control = serve_commands(socket, &state_path, &sources);
    let outcome = tokio::select! {
        outcome = daemon.serve(until_caught_up) => outcome,
        never = control => match never {},
        never = &mut serving_feed => match never {},
        never = systemd::keep_up(&notifier, &sources) => match never {},
        never = operator::answer_others(sources.operations.clone()) => match never {},
    };
    // If the daemon ends because no channel is left, requests to the feed still wait for events.
    stop.cancel();
    if let Some(last_answers) = last_answers.filter(|_| outcome != EndReason::Interrupted) {
        tokio::select! {
            never = serving_feed => match never {},
            () = last_answers => {}
        }
    }
    info!(target: ALWAYS, outcome = <&str>::from(outcome), "channeld ends");
    Ok(outcome)
}

/// Serves the control socket. If the machine lacks a resource for it, such as a descriptor, tries again until there is one.
async fn serve_commands(mut socket: io::Result<Socket>, state_path: &Path, sources: &Sources) -> Infallible {
    let mut is_reported = false;
    loop {
        let error = match socket {
            Ok(socket) => return socket.serve(sources.clone()).await,
            Err(error) => error,
        };
        if !is_reported {
            is_reported = true;
            warn!(%error, "no control socket: commands cannot reach this daemon, and can open the state only after the daemon has ended");
        }
        if Shortage::of(&error).is_none() {
            return pending().await;
        }
        sleep(LISTEN_AGAIN).await;
        socket = Socket::listen(state_path);
    }
}

/// The message for an address on which the admin listener cannot listen.
pub(crate) fn cannot_listen(address: SocketAddr) -> String {
    format!(
        "admin.listen: cannot listen on {address}: choose another address, or set admin.listen to \"\" to turn the listener off"
    )
}

struct Daemon {
    /// The operator's configuration file.
    file: Option<PathBuf>,
    /// The configuration in force, and the text that it was read from.
    loaded: Loaded,
    /// The clients and the sinks that were built from the configuration in force.
    clients: Clients,
    sinks: Sinks,
    parts: SharedParts,
    /// The configured channels.
    channels: Vec<Arc<Channel>>,
    /// How the channels are shared with other instances. `None` if this instance does not share its channels.
    sharing: Option<Sharing>,
    supervisor: Supervisor,
    stop: CancellationToken,
    /// The table and the settings of the feed. `None` without a feed.
    feed: Option<watch::Sender<Arc<Served>>>,
    logs: Logs,
    trace_export: TraceExport,
    notifier: Arc<Notifier>,
    /// The data from which operators' requests are answered. A reload replaces the configured parts.
    sources: Sources,
    operations: watch::Sender<Arc<Operations>>,
    /// The clients of the background tasks.
    background: watch::Sender<Clients>,
    /// How the organization's channels are found, and the last outcome.
    discovery: watch::Sender<Option<discovery::DiscoveryPlan>>,
    discovered: watch::Sender<Discovery>,
    /// Requests of `channeld reload`.
    reloads: mpsc::Receiver<Reloading>,
    signals: Signals,
    /// The configuration that is being read again.
    reading: Option<Reading>,
    /// The files that the configuration in force names. Locked while they are read.
    followed: Arc<Mutex<FollowedFiles>>,
    /// The requests to read the configuration once more.
    reload_requests: Option<Vec<Reloading>>,
    /// Sinks that are opening their files again.
    reopening: JoinSet<()>,
    rejections: Rejections,
}

impl Daemon {
    /// Assembles the daemon. Its channels do not run yet.
    fn start(
        file: Option<PathBuf>,
        loaded: Loaded,
        ledgers: Ledgers,
        signals: Signals,
        logs: Logs,
    ) -> Result<Self, StartError> {
        let (config, ledgers) = (&loaded.config, Arc::new(ledgers));
        let metrics = Metrics::default();
        let (traces, trace_export) = TraceExport::begin(config.otlp.clone(), &metrics)?;
        let writes = ledgers.writes.clone();
        metrics.show(writes.took.clone());
        metrics.show(ledgers.leases_taken.clone());
        metrics.show(ledgers.leases_lost.clone());
        metrics.show(logs.queue.lost.clone());
        metrics.config_in_force();
        let sharing =
            ledgers.store.clone().membership().map(|membership| Sharing::begin(membership, config.published()));
        let processors = Arc::<Processors>::default();
        let parts = SharedParts::new(ledgers, processors.clone(), metrics.clone(), traces);
        let (clients, sinks, channels) = assembly::assemble(config, None, &parts)?;
        let stop = CancellationToken::new();
        let (asks, reloads) = mpsc::channel(1);
        let cluster = sharing.as_ref().map(|sharing| sharing.peers.clone());
        let discovered = watch::Sender::new(Discovery::default());
        let operations = assembly::operations(config, &clients, &parts, asks, discovered.subscribe(), cluster);
        let log = Some(logs.queue.clone());
        let operations = watch::Sender::new(Arc::new(Operations { log, ..operations }));
        let background = watch::Sender::new(names::counted(&clients, &parts.handles));
        let discovery = watch::Sender::new(discovery::DiscoveryPlan::of(config, &background.borrow()));
        let liveness = Liveness::new(processors, writes);
        Ok(Self {
            file,
            loaded,
            clients,
            sinks,
            parts,
            channels,
            sharing,
            supervisor: Supervisor::new(&stop),
            stop,
            feed: None,
            logs,
            trace_export,
            notifier: Arc::new(Notifier::from_environment()),
            sources: Sources { liveness, operations: operations.subscribe(), metrics },
            operations,
            background,
            discovery,
            discovered,
            reloads,
            signals,
            reading: None,
            followed: Arc::default(),
            reload_requests: None,
            reopening: JoinSet::new(),
            rejections: Rejections::default(),
        })
    }

    async fn serve(mut self, until_caught_up: bool) -> EndReason {
        let mut watched = JoinSet::new();
        watched.spawn(self.sources.liveness.clone().beat());
        watched.spawn(self.logs.limit.clone().watch());
        watched.spawn(self.logs.queue.clone().watch());
        watched.spawn(progress::tell(self.sources.operations.clone()));
        watched.spawn(operator::note_minutes(self.sources.operations.clone()));
        watched.spawn(keys::report(self.sources.operations.clone()));
        watched.spawn(names::networks(self.background.subscribe()));
        watched.spawn(names::watchers(self.background.subscribe(), self.sources.operations.clone()));
        watched.spawn(discovery::run(self.discovery.subscribe(), self.discovered.clone()));
        if let Some(sharing) = &self.sharing {
            watched.spawn(membership::share_turns(sharing.peers.seen.clone(), self.parts.handles.turns.clone()));
        }
        let mut look = tokio::time::interval(LOOK_AT_FILES);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.notifier.enter(Phase::Running);
        let mut stopping = None;
        let (mut operations, mut plans) = (self.operations.subscribe(), self.discovery.subscribe());
        let mut catching_up = Box::pin(async {
            if !until_caught_up {
                pending::<()>().await;
            }
            let has_list = discovery::first_look(&mut plans, &mut operations).await;
            catch_up::wait(operations).await && has_list
        });
        // If the daemon ends before every sink has caught up, the command has not reached its goal.
        let mut missed = until_caught_up.then_some(EndReason::NotCaughtUp);
        loop {
            tokio::select! {
                outcome = self.supervisor.ended() => {
                    if let Some(sharing) = self.sharing.take() {
                        sharing.end().await;
                    }
                    self.trace_export.end(stopping.unwrap_or_else(Instant::now) + self.loaded.config.shutdown_grace).await;
                    self.logs.limit.end();
                    return missed.map_or(outcome, |missed| outcome.max(missed));
                }
                // The branch sets `stopping`, so the future is not polled again.
                has_caught_up = &mut catching_up, if stopping.is_none() => {
                    missed = (!has_caught_up).then_some(EndReason::Unavailable);
                    stopping = Some(Instant::now());
                    self.begin_stop();
                }
                signal = self.signals.next() => match signal {
                    Signal::Stop if stopping.is_some() => {
                        self.logs.limit.end();
                        warn!(target: ALWAYS, "second signal: ending at once");
                        return EndReason::Interrupted;
                    }
                    Signal::Stop => {
                        stopping = Some(Instant::now());
                        self.begin_stop();
                    }
                    Signal::Reload if stopping.is_some() => {}
                    Signal::Reload => self.request_reload(None),
                },
                Some(reply) = self.reloads.recv() => self.request_reload(Some(reply)),
                loaded = reading::read(self.reading.as_mut()), if stopping.is_none() => self.finish_reading(loaded),
                _ = look.tick(), if stopping.is_none() => self.follow_files(),
                () = membership::changed(self.sharing.as_mut()), if stopping.is_none() => self.follow_work(),
            }
        }
    }

    /// Stops reading. The channels finish their current batches.
    fn begin_stop(&mut self) {
        info!(target: ALWAYS, "stopping: finishing and recording the current batch");
        self.notifier.enter(Phase::Stopping(self.loaded.config.shutdown_grace));
        self.stop.cancel();
        if let Some(sharing) = &self.sharing {
            sharing.stop.cancel();
        }
        self.reloads.close();
        // Commands that wait for a reload receive the answer that the daemon stops.
        (self.reading, self.reload_requests) = (None, None);
    }

    /// Replaces the list of configured channels and runs the new list.
    fn follow(&mut self, channels: Vec<Arc<Channel>>) {
        self.channels = channels;
        if let Some(sharing) = &self.sharing {
            sharing.configure(self.loaded.config.published());
        }
        self.follow_work();
    }

    /// Runs the configured channels that this instance has to run.
    fn follow_work(&mut self) {
        let sharing = self.sharing.as_ref();
        let is_here = |channel: &&Arc<Channel>| sharing.is_none_or(|it| it.work.contains(&channel.identity.id));
        let wanted: Vec<_> = self.channels.iter().filter(is_here).cloned().collect();
        self.supervisor.may_grow = self.loaded.config.discover.is_some();
        self.supervisor.follow(&wanted, self.loaded.config.shutdown_grace);
    }
}

pub(crate) async fn open_ledgers(settings: StateSettings) -> Result<Ledgers, StateError> {
    open_blocking(move || settings.open()).await.map(Ledgers::over)
}

/// Opens a state with `open`, on a blocking thread.
pub(crate) async fn open_blocking<S: Send + 'static>(
    open: impl FnOnce() -> Result<S, StateError> + Send + 'static,
) -> Result<S, StateError> {
    spawn_blocking(open).await.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())))
}
