//! Messages to the service manager: ready, reloading, stopping, the status line, and the watchdog.
//!
//! By the protocol of `sd_notify(3)`: datagrams to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is
//! sent. The crate `sd-notify` writes the messages; it cannot send them to an abstract name, nor with a time limit.
//!
//! # Invariants
//!
//! * **Alive means progress.** The watchdog is fed only while the process makes progress: see [`liveness`](operator::liveness).
//! * **Never in the way.** A manager that does not read costs a wait of a second and a warning.
//! * **One line.** Text from elsewhere cannot add a line to a message.
//!
//! # Cancellation
//!
//! [`keep_up`] may be dropped at any point: the watchdog is then not fed any more.

use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, error, info, warn};

use net::tasks::lock;
use operator::{Report, Sources};

#[cfg(test)]
mod tests;

/// How long a message may wait for a manager whose queue is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The characters of a status. It is a line of `systemctl status`.
const MAX_STATUS: usize = 200;

/// Between two status lines.
const BETWEEN_STATUSES: Duration = Duration::from_secs(2);

/// What a stop may take beyond its grace period, for the end of the process itself.
const END: Duration = Duration::from_secs(10);

/// Sends messages to the service manager, where there is one.
pub(super) struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// How often the watchdog has to be fed.
    watchdog: Option<Duration>,
    sent: Mutex<Sent>,
}

/// What the status that was sent last was made of.
struct Sent {
    phase: Phase,
    summary: String,
}

/// What the status line says beside the summary.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// The configuration is in force and its channels run.
    Running,
    /// The configuration that was read again was rejected: the one before stays in force.
    Rejected,
    /// The process ends within this time. Asks for it, whatever the unit's stop timeout.
    Stopping(Duration),
}

/// Feeds the watchdog and keeps the status line up to date.
pub(super) async fn keep_up(notifier: &Notifier, sources: &Sources) -> Infallible {
    if notifier.manager.is_none() {
        return pending().await;
    }
    let status = async {
        loop {
            let operations = sources.operations.borrow().clone();
            match operations.report().await {
                Ok(report) => notifier.status(&summary(&report)),
                Err(error) => debug!(%error, "how things are could not be reported"),
            }
            sleep(BETWEEN_STATUSES).await;
        }
    };
    tokio::join!(notifier.keep_alive(|| sources.liveness.check()), status).0
}

impl Notifier {
    /// For the manager that the environment names.
    pub(super) fn from_environment() -> Self {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            manager(&name)
                .inspect_err(|error| warn!(%error, "NOTIFY_SOCKET cannot be used: the service manager is told nothing"))
                .ok()
        });
        Self::to(manager, sd_notify::watchdog_enabled())
    }

    fn to(manager: Option<(UnixDatagram, SocketAddr)>, watchdog: Option<Duration>) -> Self {
        let sent = Sent { phase: Phase::Running, summary: "started".to_owned() };
        Self { manager, watchdog, sent: Mutex::new(sent) }
    }

    /// The configuration is read again. Another phase follows.
    pub(super) fn reloading(&self) {
        // Since version 253 the manager tells by the time whether this answers its request or an earlier one.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => warn!(%error, "the service manager could not be told: no clock"),
        }
    }

    /// Sends a status line, unless it is the one that was sent last.
    fn status(&self, summary: &str) {
        let mut sent = self.sent();
        let before = sent.status();
        sent.summary = summary.chars().take(MAX_STATUS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let status = sent.status();
        if status != before {
            self.send(&[NotifyState::Status(&status)]);
        }
    }

    /// Feeds the watchdog, if there is one, while `progress` is `Ok`.
    async fn keep_alive<E: Display>(&self, progress: impl Fn() -> Result<(), E>) -> Infallible {
        let Some(watchdog) = self.watchdog else { return pending().await };
        // Half, as `sd_watchdog_enabled(3)` advises; and an interval cannot be zero.
        let mut ticks = interval((watchdog / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut progressed = true;
        loop {
            ticks.tick().await;
            let now = progress();
            match &now {
                Ok(()) => {
                    self.send(&[NotifyState::Watchdog]);
                    if !progressed {
                        info!("there is progress again: the watchdog is fed");
                    }
                }
                Err(error) if progressed => {
                    error!(%error, watchdog_ms = watchdog.as_millis(), "no progress: the watchdog is not fed");
                }
                Err(_) => {}
            }
            progressed = now.is_ok();
        }
    }

    /// Reports a phase and the new status line in one message.
    pub(super) fn enter(&self, phase: Phase) {
        let mut sent = self.sent();
        sent.phase = phase;
        let status = sent.status();
        let status = NotifyState::Status(&status);
        match phase {
            Phase::Running | Phase::Rejected => self.send(&[NotifyState::Ready, status]),
            Phase::Stopping(grace) => {
                let longest = u32::try_from(grace.saturating_add(END).as_micros()).unwrap_or(u32::MAX);
                self.send(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(longest), status]);
            }
        }
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        lock(&self.sent)
    }

    /// Sends one message, to the address and not over a connection: the manager may have recreated its socket.
    fn send(&self, states: &[NotifyState<'_>]) {
        let Some((socket, address)) = &self.manager else { return };
        let message = states.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            warn!(%error, "the service manager could not be told");
        }
    }
}

impl Sent {
    fn status(&self) -> String {
        match self.phase {
            Phase::Running => self.summary.clone(),
            Phase::Rejected => format!("{}; the configuration read last was rejected: see the log", self.summary),
            Phase::Stopping(_) => "stopping: the batch in hand is finished and recorded first".to_owned(),
        }
    }
}

/// Where messages go.
fn manager(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = address(name)?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok((socket, address))
}

/// A path, or after an `@` a name in the abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name")),
    }
}

/// How many channels and reasons there are. Any user of the machine can read it, so it has no details.
fn summary(report: &Report) -> String {
    let channels = counted(report.channels.len(), "channel");
    match report.reasons.len() {
        0 => format!("{channels}, ready"),
        reasons => format!("{channels}, not ready for {}: see channeld status", counted(reasons, "reason")),
    }
}

fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
