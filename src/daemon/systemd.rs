//! Sends messages to the service manager: ready, reloading, stopping, the status line, and the watchdog.
//!
//! The protocol is `sd_notify(3)`: datagrams to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is
//! sent. The crate `sd-notify` formats the messages. This module sends them, because the crate supports neither abstract
//! socket names nor a time limit.
//!
//! # Invariants
//!
//! * **The watchdog is fed only while the process makes progress:** see [`liveness`](operator::liveness).
//! * **Never blocked by the manager.** If the manager does not read its socket, a message is dropped with a warning after
//!   one second.
//! * **A status is one line.** The texts in it cannot add a line to a message.
//!
//! # Cancellation
//!
//! [`keep_up`] can be dropped at any point. The watchdog is then no longer fed.

use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, error, info, warn};

use net::tasks::lock;
use operator::{Report, Sources};

#[cfg(test)]
mod tests;

/// How long a message can wait for a manager whose queue is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum length of a status in characters. `systemctl status` shows it on one line.
const MAX_STATUS: usize = 200;

/// The interval between two status lines.
const BETWEEN_STATUSES: Duration = Duration::from_secs(2);

/// How long the process may take to exit after the grace period of a stop.
const END: Duration = Duration::from_secs(10);

/// Sends messages to the service manager, if the process has one.
pub(super) struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// How often the watchdog has to be fed.
    watchdog: Option<Duration>,
    sent: Mutex<SentStatus>,
}

/// The parts of the last status that was sent.
struct SentStatus {
    phase: Phase,
    summary: String,
}

/// The phase of the daemon, which the status line shows.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// The configuration is in force and its channels run.
    Running,
    /// The configuration that was read again was rejected. The previous configuration stays in force.
    Rejected,
    /// The process is stopping, and this is its grace period. The message asks the manager to wait for this time and
    /// [`END`], whatever the stop timeout of the unit is.
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
                Err(error) => debug!(%error, "the status could not be reported to the service manager"),
            }
            sleep(BETWEEN_STATUSES).await;
        }
    };
    tokio::join!(notifier.keep_alive(|| sources.liveness.check()), status).0
}

impl Notifier {
    /// Creates a notifier for the manager that the environment names.
    pub(super) fn from_environment() -> Self {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            manager(&name)
                .inspect_err(|error| warn!(%error, "NOTIFY_SOCKET cannot be used: the service manager receives no notifications"))
                .ok()
        });
        Self::to(manager, sd_notify::watchdog_enabled())
    }

    fn to(manager: Option<(UnixDatagram, SocketAddr)>, watchdog: Option<Duration>) -> Self {
        let sent = SentStatus { phase: Phase::Running, summary: "started".to_owned() };
        Self { manager, watchdog, sent: Mutex::new(sent) }
    }

    /// Reports that the configuration is read again. A call of [`enter`](Self::enter) must follow.
    pub(super) fn reloading(&self) {
        // Since version 253, systemd uses this time to decide whether the message answers its current reload request or
        // an earlier one.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => warn!(%error, "the service manager could not be notified: the clock cannot be read"),
        }
    }

    /// Sends a status line, unless it equals the last one that was sent.
    fn status(&self, summary: &str) {
        let mut sent = lock(&self.sent);
        let before = sent.status();
        sent.summary = summary.chars().take(MAX_STATUS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let status = sent.status();
        if status != before {
            self.send(&[NotifyState::Status(&status)]);
        }
    }

    /// Feeds the watchdog, if the unit has one, while `progress` is `Ok`.
    async fn keep_alive(&self, progress: impl Fn() -> Result<(), String>) -> Infallible {
        let Some(watchdog) = self.watchdog else { return pending().await };
        // Half of the time, as `sd_watchdog_enabled(3)` recommends. The minimum is needed because an interval cannot be
        // zero.
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
                        info!("the process makes progress again: the watchdog is notified");
                    }
                }
                Err(error) if progressed => {
                    error!(%error, watchdog_ms = watchdog.as_millis(), "the process makes no progress: the watchdog is not notified");
                }
                Err(_) => {}
            }
            progressed = now.is_ok();
        }
    }

    /// Reports a phase and the new status line in one message.
    pub(super) fn enter(&self, phase: Phase) {
        let mut sent = lock(&self.sent);
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

    /// Sends one message to the manager's address. No connection is kept, because the manager may have recreated its
    /// socket.
    fn send(&self, states: &[NotifyState<'_>]) {
        let Some((socket, address)) = &self.manager else { return };
        let message = states.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            warn!(%error, "the service manager could not be notified");
        }
    }
}

impl SentStatus {
    fn status(&self) -> String {
        match self.phase {
            Phase::Running => self.summary.clone(),
            Phase::Rejected => format!("{}; the last configuration was rejected: see the log", self.summary),
            Phase::Stopping(_) => "stopping: finishing and recording the current batch".to_owned(),
        }
    }
}

/// Returns a socket, and the address that messages are sent to.
fn manager(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = address(name)?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok((socket, address))
}

/// Parses an address: a path, or a name in the abstract namespace after an `@`.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the address is neither a path nor an abstract name")),
    }
}

/// Returns the number of channels and the number of reasons not to be ready. The text contains no details, because
/// every user of the machine can read it.
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
