//! Messages to the service manager: ready, reloading, stopping, the status line, and the watchdog.
//!
//! By the protocol of `sd_notify(3)`: datagrams to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is
//! sent.
//!
//! # Invariants
//!
//! * **Alive means progress.** The watchdog is fed only while the process makes progress.
//! * **Never in the way.** A manager that does not read costs a wait of a second and a warning.
//! * **One line.** Text from elsewhere cannot add a line to a message.
//!
//! # Cancellation
//!
//! [`Notifier::keep_alive`] may be dropped at any point: the watchdog is then not fed any more.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

mod status;
#[cfg(test)]
mod tests;

pub(super) use status::tell;

/// How long a message may wait for a manager whose queue is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The characters of a status. It is a line of `systemctl status`.
const MAX_STATUS: usize = 200;

/// What a stop may take beyond its grace period, for the end of the process itself.
const END: Duration = Duration::from_secs(10);

/// Sends messages to the service manager, where there is one.
#[derive(Debug)]
pub struct Notifier {
    manager: Option<Manager>,
    sent: Mutex<Sent>,
}

/// The status that was sent last, and what it was made of.
#[derive(Debug)]
struct Sent {
    phase: Phase,
    summary: String,
    status: String,
}

/// Where messages go, and how often the watchdog has to be fed.
#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

/// What the status line says beside the summary.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Running,
    /// The configuration that was read last was rejected.
    Rejected,
    Stopping,
}

impl Notifier {
    /// For the manager that the environment names.
    #[must_use]
    pub fn from_environment() -> Self {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            Manager::at(&name, sd_notify::watchdog_enabled())
                .inspect_err(|error| warn!(%error, "NOTIFY_SOCKET cannot be used: the service manager is told nothing"))
                .ok()
        });
        Self::to(manager)
    }

    fn to(manager: Option<Manager>) -> Self {
        let sent = Sent { phase: Phase::Running, summary: "started".to_owned(), status: String::new() };
        Self { manager, sent: Mutex::new(sent) }
    }

    /// Whether there is a service manager.
    #[must_use]
    pub fn has_manager(&self) -> bool {
        self.manager.is_some()
    }

    /// The configuration is in force and its channels run.
    pub fn ready(&self) {
        self.enter(Phase::Running, &[NotifyState::Ready]);
    }

    /// The configuration is read again. [`ready`](Self::ready) or [`rejected`](Self::rejected) follows.
    pub fn reloading(&self) {
        // Since version 253 the manager tells by the time whether this answers its request or an earlier one.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => warn!(%error, "the service manager could not be told: no clock"),
        }
    }

    /// The configuration that was read again was rejected: the one before stays in force.
    pub fn rejected(&self) {
        self.enter(Phase::Rejected, &[NotifyState::Ready]);
    }

    /// The process ends within `grace`. Asks for that much time, whatever the unit's stop timeout.
    pub fn stopping(&self, grace: Duration) {
        let longest = u32::try_from(grace.saturating_add(END).as_micros()).unwrap_or(u32::MAX);
        self.enter(Phase::Stopping, &[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(longest)]);
    }

    /// Sends a status line, unless it is the one that was sent last.
    pub fn status(&self, summary: &str) {
        let mut sent = self.sent();
        sent.summary = one_line(summary);
        let status = sent.status();
        if sent.status != status {
            self.send(&[NotifyState::Status(&status)]);
            sent.status = status;
        }
    }

    /// Feeds the watchdog, if there is one, while `progress` is `Ok`. Does not end.
    pub async fn keep_alive<E: Display>(&self, progress: impl Fn() -> Result<(), E>) {
        let Some(watchdog) = self.manager.as_ref().and_then(|manager| manager.watchdog) else {
            return std::future::pending().await;
        };
        // Half, as `sd_watchdog_enabled(3)` advises; and an interval cannot be zero.
        let mut ticks = interval((watchdog / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut progressed = true;
        loop {
            ticks.tick().await;
            match progress() {
                Ok(()) => {
                    self.send(&[NotifyState::Watchdog]);
                    if !progressed {
                        info!("there is progress again: the watchdog is fed");
                    }
                    progressed = true;
                }
                Err(error) if progressed => {
                    error!(%error, watchdog_ms = watchdog.as_millis(), "no progress: the watchdog is not fed");
                    progressed = false;
                }
                Err(_) => {}
            }
        }
    }

    /// Sends `states` and the new status line in one message.
    fn enter(&self, phase: Phase, states: &[NotifyState<'_>]) {
        let mut sent = self.sent();
        sent.phase = phase;
        sent.status = sent.status();
        self.send(&[states, &[NotifyState::Status(&sent.status)]].concat());
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let Some(manager) = &self.manager else { return };
        if let Err(error) = manager.send(states) {
            warn!(%error, "the service manager could not be told");
        }
    }
}

impl Manager {
    fn at(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = address(name)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket, address, watchdog })
    }

    /// Sends one message, to the address and not over a connection: the manager may have recreated its socket.
    fn send(&self, states: &[NotifyState<'_>]) -> io::Result<()> {
        let message: Vec<_> = states.iter().map(ToString::to_string).collect();
        let message = message.join("\n");
        self.socket.send_to_addr(message.as_bytes(), &self.address).map(drop)
    }
}

impl Sent {
    fn status(&self) -> String {
        match self.phase {
            Phase::Running => self.summary.clone(),
            Phase::Rejected => format!("{}; the configuration read last was rejected: see the log", self.summary),
            Phase::Stopping => "stopping: the batch in hand is finished and recorded first".to_owned(),
        }
    }
}

/// A path, or after an `@` a name in the abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name")),
    }
}

fn one_line(text: &str) -> String {
    text.chars().take(MAX_STATUS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
