//! Whether the process makes progress, for `/livez` and for the service manager's watchdog.
//!
//! A process that cannot make progress must not look alive: no async thread turns, no signature is checked. A restart helps
//! then. An outage elsewhere must not look like a hang, because a restart would not help: a service that does not answer, a
//! sink that refuses, a proof that does not come.
//!
//! # Invariants
//!
//! * **Of the process, not of a channel.** A channel that stands still is a reason not to be ready. A restart for it would
//!   also stop the others.
//! * **Checked from outside.** `Liveness::check` does not await and holds locks only for a moment. A thread of its own can
//!   call it while every thread of the runtime is stuck.
//! * **Long limits.** Each limit is many times what a loaded machine takes.
//!
//! # Cancellation
//!
//! [`Liveness::beat`] may be dropped at any point. The process then counts as stuck.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use channel::Processors;
use ledger::Writes;

/// How long each part may go without progress.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Between two heartbeats.
    beat: Duration,
    /// The async runtime without running a task.
    runtime: Duration,
    /// The blocking threads without taking more work.
    blocking: Duration,
    /// One write of the state.
    write: Duration,
    /// The processors without finishing any work. A piece of it takes milliseconds. How much is queued does not count: with
    /// many channels behind, the last piece may wait for most of a minute.
    processors: Duration,
}

const LIMITS: Limits = Limits {
    beat: Duration::from_secs(1),
    runtime: Duration::from_secs(30),
    blocking: Duration::from_secs(60),
    write: Duration::from_secs(60),
    processors: Duration::from_secs(60),
};

/// Watches the process. Clones share what they know.
#[derive(Clone, Debug)]
pub struct Liveness {
    limits: Limits,
    /// The last heartbeats.
    runtime: watch::Sender<Instant>,
    blocking: watch::Sender<Instant>,
    checking: watch::Sender<Instant>,
    processors: Arc<Processors>,
    writes: Arc<Writes>,
}

impl Liveness {
    /// Watches the threads that check events, and the writes of the state. [`beat`](Self::beat) has to run from now on.
    pub fn new(processors: Arc<Processors>, writes: Arc<Writes>) -> Self {
        let [runtime, blocking, checking] = [(); 3].map(|()| watch::Sender::new(Instant::now()));
        Self { limits: LIMITS, runtime, blocking, checking, processors, writes }
    }

    /// The heartbeat of the runtime. Does not end. Has to be a task of its own on the runtime of the channels.
    pub async fn beat(self) {
        let tasks = async {
            loop {
                sleep(self.limits.beat).await;
                self.runtime.send_replace(Instant::now());
            }
        };
        let blocking = async {
            loop {
                sleep(self.limits.beat).await;
                // Work that is refused while the runtime shuts down does not count.
                if tokio::task::spawn_blocking(|| ()).await.is_ok() {
                    self.blocking.send_replace(Instant::now());
                }
            }
        };
        let checking = async {
            loop {
                sleep(self.limits.beat).await;
                self.processors.turn().await;
                self.checking.send_replace(Instant::now());
            }
        };
        tokio::join!(tasks, blocking, checking);
    }

    /// Whether the process makes progress.
    ///
    /// # Errors
    /// What makes none, and for how long.
    pub fn check(&self) -> Result<(), String> {
        let Limits { runtime, blocking, write, processors, .. } = self.limits;
        let silence = |beat: &watch::Sender<Instant>| beat.borrow().elapsed();
        let stuck =
            |what, lasted: Duration, limit| (lasted > limit).then(|| format!("{what} for {} s", lasted.as_secs()));
        let stuck = stuck("the async runtime has not turned", silence(&self.runtime), runtime)
            // Before the blocking threads: writes to a dead disk may be what fills them.
            .or_else(|| stuck("a write of the state has been under way", self.writes.under_way()?, write))
            .or_else(|| stuck("no blocking work has been done", silence(&self.blocking), blocking))
            .or_else(|| stuck("no signature has been checked", silence(&self.checking), processors));
        stuck.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
