//! Whether the process makes progress: asked by `/livez`, and by whoever restarts what has hung.
//!
//! Two promises stand against each other. A hang must not look alive: not of the async runtime, of its blocking threads,
//! of a write to a dead disk, or of one channel's loop. And what is down elsewhere must not look like a hang: a service
//! that does not answer, a sink that takes nothing, a proof that does not come are waited for as long as they last, and a
//! restart would not help.
//!
//! # Invariants
//!
//! * **Asked from outside.** [`Liveness::check`] awaits nothing and takes no lock for longer than a moment: it can be
//!   asked by a thread of its own while every thread of the runtime is stuck.
//! * **Slow to judge.** Each allowance is many times what a loaded machine takes.
//!
//! # Cancellation
//!
//! [`Liveness::beat`] may be dropped at any point. The process then looks stuck, which it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::channel::{Handles, Standstill};
use crate::state::Writes;

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// How long what should move may stand still.
#[derive(Clone, Copy, Debug)]
struct Allowances {
    /// The async runtime without a turn.
    runtime: Duration,
    /// Its blocking threads without room for one more piece of work.
    blocking: Duration,
    /// One write of the state.
    write: Duration,
    /// A channel's loop beyond the wait or the request that it is in.
    channel: Duration,
}

const ALLOWANCES: Allowances = Allowances {
    runtime: Duration::from_secs(30),
    blocking: Duration::from_secs(60),
    write: Duration::from_secs(60),
    channel: Duration::from_secs(60),
};

/// What stands still. Says since when.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// No task gets its turn.
    #[error("the async runtime has not turned for {} s", .0.as_secs())]
    Runtime(Duration),
    /// Blocking work does not begin.
    #[error("no blocking work has been done for {} s", .0.as_secs())]
    Blocking(Duration),
    /// The state is not written.
    #[error("a write of the state has been under way for {} s", .0.as_secs())]
    Write(Duration),
    /// A channel does not move.
    #[error("{0}")]
    Channel(Standstill),
}

/// The process, watched. Clones watch the same.
#[derive(Clone, Debug)]
pub struct Liveness {
    allowances: Allowances,
    beat: Duration,
    runtime: Arc<Pulse>,
    blocking: Arc<Pulse>,
    handles: Arc<Handles>,
    writes: Arc<Writes>,
}

impl Liveness {
    /// Of the process whose channels have these handles and whose state is written so. From now on [`beat`](Self::beat)
    /// has to run.
    #[must_use]
    pub fn new(handles: Arc<Handles>, writes: Arc<Writes>) -> Self {
        Self { allowances: ALLOWANCES, beat: BEAT, runtime: Arc::default(), blocking: Arc::default(), handles, writes }
    }

    /// One that judges after half a second, and never of a channel: for tests.
    #[cfg(test)]
    pub(crate) fn hasty(handles: Arc<Handles>, writes: Arc<Writes>) -> Self {
        let (short, long) = (Duration::from_millis(500), Duration::from_secs(3600));
        let allowances = Allowances { runtime: short, blocking: short, write: short, channel: long };
        Self { allowances, beat: Duration::from_millis(10), ..Self::new(handles, writes) }
    }

    /// Gives the runtime's signs of life, for ever. Has to run as a task of its own, where the channels' tasks run.
    pub async fn beat(self) {
        let turns = async {
            loop {
                tokio::time::sleep(self.beat).await;
                self.runtime.felt();
            }
        };
        let works = async {
            loop {
                tokio::time::sleep(self.beat).await;
                // A sign is given only by work that was done: what is refused while the runtime ends is none.
                if tokio::task::spawn_blocking(|| ()).await.is_ok() {
                    self.blocking.felt();
                }
            }
        };
        tokio::join!(turns, works);
    }

    /// Whether everything moves that should.
    ///
    /// # Errors
    /// [`Stuck`]: what does not.
    pub fn check(&self) -> Result<(), Stuck> {
        let silent = |pulse: &Pulse, allowance| Some(pulse.silence()).filter(|silence| *silence > allowance);
        let Allowances { runtime, blocking, write, channel } = self.allowances;
        if let Some(silence) = silent(&self.runtime, runtime) {
            return Err(Stuck::Runtime(silence));
        }
        // Before the blocking threads: what waits for a dead disk may be what fills them.
        if let Some(lasted) = self.writes.under_way().filter(|lasted| *lasted > write) {
            return Err(Stuck::Write(lasted));
        }
        if let Some(silence) = silent(&self.blocking, blocking) {
            return Err(Stuck::Blocking(silence));
        }
        self.handles.standstill(channel).map_or(Ok(()), |standstill| Err(Stuck::Channel(standstill)))
    }
}

/// When something was last felt.
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
    fn felt(&self) {
        let elapsed = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests;
