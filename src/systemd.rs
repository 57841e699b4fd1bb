//! What the service manager is told: that we are ready, read our configuration again, stop; how we are; that we live.
//!
//! By the protocol of `sd_notify(3)`: datagrams to the socket that `NOTIFY_SOCKET` names. Where it names none, nobody
//! asked, and nothing is done.
//!
//! # Invariants
//!
//! * **Alive means progress.** The watchdog is fed only while whoever watches the work says that it goes on.
//! * **Never in the way.** A manager that does not listen costs a wait of a second and a warning, nothing else.
//! * **One line.** What comes from elsewhere cannot put a line of its own into a message.
//!
//! # Cancellation
//!
//! [`Notifier::keep_alive`] may be dropped at any point: then the manager is told no more that we live.

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

#[cfg(test)]
mod tests;

/// How long a message may wait for a manager that has too many.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest status that is told. It is a line of `systemctl status`.
const MAX_STATUS: usize = 200;

/// What a stop may take beyond its grace: the end of the process itself.
const END: Duration = Duration::from_secs(10);

/// Speaks to the service manager, where there is one.
#[derive(Debug)]
pub struct Notifier {
    manager: Option<Manager>,
    told: Mutex<Told>,
}

/// What was told last, and what it was made of.
#[derive(Debug)]
struct Told {
    phase: Phase,
    how: String,
    status: String,
}

/// Where messages go, and how often a sign of life is expected.
#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

/// What counts beside how things are.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Running,
    /// The configuration that was read last is not the one in force.
    Rejected,
    Stopping,
}

impl Notifier {
    /// To the manager that the environment names. It stays there: who is started by this process may see it.
    #[must_use]
    pub fn from_environment() -> Self {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            Manager::at(&name, sd_notify::watchdog_enabled())
                .inspect_err(|error| warn!(%error, "NOTIFY_SOCKET is of no use: the service manager is told nothing"))
                .ok()
        });
        Self::to(manager)
    }

    fn to(manager: Option<Manager>) -> Self {
        let told = Told { phase: Phase::Running, how: "started".to_owned(), status: String::new() };
        Self { manager, told: Mutex::new(told) }
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.manager.is_some()
    }

    /// The configuration is in force and its channels run, for the first time or again.
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

    /// The configuration that was read again is of no use: everything goes on as it was.
    pub fn rejected(&self) {
        self.enter(Phase::Rejected, &[NotifyState::Ready]);
    }

    /// Everything ends, within `grace`. It is asked for, whatever the unit says of how long a stop may take.
    pub fn stopping(&self, grace: Duration) {
        let longest = u32::try_from(grace.saturating_add(END).as_micros()).unwrap_or(u32::MAX);
        self.enter(Phase::Stopping, &[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(longest)]);
    }

    /// How things are. What does not differ from what was told last is not told again.
    pub fn status(&self, how: &str) {
        let mut told = self.told();
        told.how = one_line(how);
        let status = told.status();
        if told.status != status {
            self.send(&[NotifyState::Status(&status)]);
            told.status = status;
        }
    }

    /// Feeds the watchdog, if there is one, for as long as `progress` finds nothing wrong. Does not end.
    pub async fn keep_alive<E: Display>(&self, progress: impl Fn() -> Result<(), E>) {
        let Some(watchdog) = self.manager.as_ref().and_then(|manager| manager.watchdog) else {
            return std::future::pending().await;
        };
        // Half, as `sd_watchdog_enabled(3)` advises; and an interval cannot be zero.
        let mut ticks = interval((watchdog / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut moves = true;
        loop {
            ticks.tick().await;
            match progress() {
                Ok(()) => {
                    self.send(&[NotifyState::Watchdog]);
                    if !moves {
                        info!("there is progress again: the watchdog is fed");
                    }
                    moves = true;
                }
                Err(error) if moves => {
                    error!(%error, watchdog_ms = watchdog.as_millis(), "no progress: the watchdog is not fed");
                    moves = false;
                }
                Err(_) => {}
            }
        }
    }

    /// Tells `words`, and what the status then is, in one message.
    fn enter(&self, phase: Phase, words: &[NotifyState<'_>]) {
        let mut told = self.told();
        told.phase = phase;
        told.status = told.status();
        self.send(&[words, &[NotifyState::Status(&told.status)]].concat());
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
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
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, address, watchdog })
    }

    /// Sends one message. The address is looked up anew each time: the manager may have made its socket again.
    fn send(&self, states: &[NotifyState<'_>]) -> io::Result<()> {
        let message: Vec<_> = states.iter().map(ToString::to_string).collect();
        let message = message.join("\n");
        self.socket.send_to_addr(message.as_bytes(), &self.address).map(drop)
    }
}

impl Told {
    fn status(&self) -> String {
        match self.phase {
            Phase::Running => self.how.clone(),
            Phase::Rejected => format!("{}; the configuration read last was rejected: see the log", self.how),
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
