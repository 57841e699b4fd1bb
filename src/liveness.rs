//! Whether the process makes progress, for `/livez` and for the service manager's watchdog.
//!
//! A hang must not look alive: of the async runtime, of its blocking threads, of a write to a dead disk, or of a channel's
//! loop. An outage elsewhere must not look like a hang: a service that does not answer, a sink that refuses, a proof that
//! does not come. A restart would not help there.
//!
//! # Invariants
//!
//! * **Checked from outside.** [`Liveness::check`] does not await and holds locks only for a moment. A thread of its own can
//!   call it while every thread of the runtime is stuck.
//! * **Long limits.** Each limit is many times what a loaded machine takes.
//!
//! # Cancellation
//!
//! [`Liveness::beat`] may be dropped at any point. The process then counts as stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::channel::{Handles, Standstill};
use crate::ledger::Writes;

/// Between two heartbeats.
const BEAT: Duration = Duration::from_secs(1);

/// How long each part may go without progress.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The async runtime without running a task.
    runtime: Duration,
    /// The blocking threads without taking more work.
    blocking: Duration,
    /// One write of the state.
    write: Duration,
    /// A channel's loop, beyond the wait or the request that it is in.
    channel: Duration,
}

const LIMITS: Limits = Limits {
    runtime: Duration::from_secs(30),
    blocking: Duration::from_secs(60),
    write: Duration::from_secs(60),
    channel: Duration::from_secs(60),
};

/// What makes no progress, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// No async task runs.
    #[error("the async runtime has not turned for {} s", .0.as_secs())]
    Runtime(Duration),
    /// Blocking work does not start.
    #[error("no blocking work has been done for {} s", .0.as_secs())]
    Blocking(Duration),
    /// A write of the state hangs.
    #[error("a write of the state has been under way for {} s", .0.as_secs())]
    Write(Duration),
    /// A channel's loop hangs.
    #[error("{0}")]
    Channel(Standstill),
}

/// Watches the process. Clones share what they know.
#[derive(Clone, Debug)]
pub struct Liveness {
    limits: Limits,
    beat: Duration,
    runtime: Arc<Pulse>,
    blocking: Arc<Pulse>,
    handles: Arc<Handles>,
    writes: Arc<Writes>,
}

impl Liveness {
    /// Watches these channels and these writes of the state. [`beat`](Self::beat) has to run from now on.
    #[must_use]
    pub fn new(handles: Arc<Handles>, writes: Arc<Writes>) -> Self {
        Self { limits: LIMITS, beat: BEAT, runtime: Arc::default(), blocking: Arc::default(), handles, writes }
    }

    /// With limits of half a second, and none for channels.
    #[cfg(test)]
    pub(crate) fn hasty(handles: Arc<Handles>, writes: Arc<Writes>) -> Self {
        let (short, long) = (Duration::from_millis(500), Duration::from_secs(3600));
        let limits = Limits { runtime: short, blocking: short, write: short, channel: long };
        Self { limits, beat: Duration::from_millis(10), ..Self::new(handles, writes) }
    }

    /// The heartbeat of the runtime. Does not end. Has to be a task of its own on the runtime of the channels.
    pub async fn beat(self) {
        let tasks = async {
            loop {
                tokio::time::sleep(self.beat).await;
                self.runtime.beat();
            }
        };
        let blocking = async {
            loop {
                tokio::time::sleep(self.beat).await;
                // Work that is refused while the runtime shuts down does not count.
                if tokio::task::spawn_blocking(|| ()).await.is_ok() {
                    self.blocking.beat();
                }
            }
        };
        tokio::join!(tasks, blocking);
    }

    /// Whether the process makes progress.
    ///
    /// # Errors
    /// [`Stuck`], where a part of it does not.
    pub fn check(&self) -> Result<(), Stuck> {
        let silent = |pulse: &Pulse, limit| Some(pulse.silence()).filter(|silence| *silence > limit);
        let Limits { runtime, blocking, write, channel } = self.limits;
        if let Some(silence) = silent(&self.runtime, runtime) {
            return Err(Stuck::Runtime(silence));
        }
        // Before the blocking threads: writes to a dead disk may be what fills them.
        if let Some(lasted) = self.writes.under_way().filter(|lasted| *lasted > write) {
            return Err(Stuck::Write(lasted));
        }
        if let Some(silence) = silent(&self.blocking, blocking) {
            return Err(Stuck::Blocking(silence));
        }
        self.handles.standstill(channel).map_or(Ok(()), |standstill| Err(Stuck::Channel(standstill)))
    }
}

/// The time of the last heartbeat.
#[derive(Debug)]
struct Pulse {
    origin: Instant,
    /// Milliseconds after it.
    last: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { origin: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Pulse {
    fn beat(&self) {
        let elapsed = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests;
