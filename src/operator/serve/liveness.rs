//! Checks whether the process makes progress, for `/livez` and for the service manager's watchdog.
//!
//! A process that makes no progress must not look alive, for example if no async thread runs or no signature is checked. A
//! restart helps in these cases. A restart does not help if the problem is outside the process: the service does not
//! answer, a sink refuses events, or a proof does not arrive. The process must look alive during these problems.
//!
//! # Invariants
//!
//! * **About the process, not about a channel.** A channel that makes no progress is a reason not to be ready. A
//!   restart because of one channel would also stop the other channels.
//! * **Checked from outside.** `Liveness::check` does not await and holds locks only for a moment. A separate thread can
//!   call it even if every thread of the runtime is stuck.
//! * **Long limits.** Each limit is many times longer than the work takes on a loaded machine.
//!
//! # Cancellation
//!
//! [`Liveness::beat`] can be dropped at any point. The process then counts as stuck.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use channel::Processors;
use ledger::Writes;

/// How long each part can be without progress.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The interval between two heartbeats.
    beat: Duration,
    /// How long the async runtime can go without running a task.
    runtime: Duration,
    /// How long the blocking threads can go without taking further work.
    blocking: Duration,
    /// The duration of one write of the state.
    write: Duration,
    /// How long the processors can go without finishing any work. A piece of work takes milliseconds. The time that a
    /// piece of work waits in the queue does not count: if many channels are behind, this wait can be most of a minute.
    processors: Duration,
}

const LIMITS: Limits = Limits {
    beat: Duration::from_secs(1),
    runtime: Duration::from_secs(30),
    blocking: Duration::from_secs(60),
    write: Duration::from_secs(60),
    processors: Duration::from_secs(60),
};

/// Watches the process. Clones share their data.
#[derive(Clone, Debug)]
pub struct Liveness {
    limits: Limits,
    /// The times of the last heartbeats.
    runtime: watch::Sender<Instant>,
    blocking: watch::Sender<Instant>,
    checking: watch::Sender<Instant>,
    processors: Arc<Processors>,
    writes: Arc<Writes>,
}

impl Liveness {
    /// Watches the threads that verify events, and the writes of the state. [`beat`](Self::beat) must run from now on.
    pub fn new(processors: Arc<Processors>, writes: Arc<Writes>) -> Self {
        let [runtime, blocking, checking] = [(); 3].map(|()| watch::Sender::new(Instant::now()));
        Self { limits: LIMITS, runtime, blocking, checking, processors, writes }
    }

    /// Runs the heartbeats forever. Must be a separate task on the runtime of the channels.
    pub async fn beat(self) {
        // A runtime that shuts down refuses the task. No progress is noted then.
        let blocking = || async { tokio::task::spawn_blocking(|| ()).await.is_ok() };
        let checking = || async {
            self.processors.turn().await;
            true
        };
        tokio::join!(
            self.note(&self.runtime, || async { true }),
            self.note(&self.blocking, blocking),
            self.note(&self.checking, checking),
        );
    }

    /// Notes the time at regular intervals, if the part has made progress.
    async fn note<F: Future<Output = bool>>(&self, last: &watch::Sender<Instant>, progresses: impl Fn() -> F) {
        loop {
            sleep(self.limits.beat).await;
            if progresses().await {
                last.send_replace(Instant::now());
            }
        }
    }

    /// Checks whether the process makes progress.
    ///
    /// # Errors
    /// The part that makes no progress, and for how long.
    pub fn check(&self) -> Result<(), String> {
        let Limits { runtime, blocking, write, processors, .. } = self.limits;
        let silence = |beat: &watch::Sender<Instant>| beat.borrow().elapsed();
        let stuck =
            |what, lasted: Duration, limit| (lasted > limit).then(|| format!("{what} for {} s", lasted.as_secs()));
        let stuck = stuck("the async runtime has made no progress", silence(&self.runtime), runtime)
            // Checked before the blocking threads, because writes to a dead disk may be the work that fills those
            // threads.
            .or_else(|| stuck("a write of the state has been in progress", self.writes.under_way()?, write))
            .or_else(|| stuck("no blocking task has finished", silence(&self.blocking), blocking))
            .or_else(|| stuck("no signature has been checked", silence(&self.checking), processors));
        stuck.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
