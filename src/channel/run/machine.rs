//! The resources of the machine that the loop uses: the time of day, random waits, and processors for signatures. A trait
//! provides them, so that tests can run the loop on a machine that they control.

use std::fmt;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::join_all;
use jiff::Timestamp;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use crate::verify::{CheckParameters, Checked};
use net::retry::{Retry, RetryPolicy};
use net::tasks::lock;
use proof::event::RawEvent;
use proof::verify::Verifier;

/// How many events a processor checks at a time. The maximum is low, so that a page is divided among the processors and no
/// other channel waits long. The minimum exists because the signatures of one share are checked together, which is faster.
const SHARE_SIZES: RangeInclusive<usize> = 50..=100;

/// How much the priority of the checking threads is lowered (`nice`). The process's other threads deliver the checked events.
/// With equal priority, they would read a database's answer and send the next rows only after a share is checked.
const NICENESS: i32 = 5;

#[async_trait]
pub(crate) trait Machine: Send + Sync + fmt::Debug {
    /// Returns the time of day, to the millisecond. It goes back if the clock is set back.
    fn time(&self) -> Timestamp;

    /// Returns the same time in Unix seconds.
    fn now(&self) -> i64 {
        self.time().as_second()
    }

    /// Returns when the process began. Polling slots are counted from this time.
    fn began(&self) -> Instant;

    /// Returns growing waits with random jitter.
    fn retry(&self, policy: RetryPolicy) -> Retry {
        Retry::new(policy)
    }

    /// Checks events outside the async threads. The results have the same order.
    async fn check(&self, parameters: CheckParameters, events: Vec<RawEvent>) -> Vec<Checked>;
}

/// The threads that check events, one for each processor. All channels share them. Work is done in the order of its arrival.
#[derive(Debug)]
pub struct Processors {
    threads: ThreadPool,
    finished: Notify,
}

impl Default for Processors {
    /// # Panics
    /// If the system cannot start a thread for each processor.
    fn default() -> Self {
        let number = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = ThreadPoolBuilder::new().num_threads(number).thread_name(|number| format!("verify-{number}"));
        let threads =
            threads.start_handler(|_| give_way()).build().expect("a thread for each processor can be started");
        Self { threads, finished: Notify::new() }
    }
}

impl Processors {
    /// Returns the number of threads.
    pub fn number(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Runs work on a processor.
    ///
    /// # Panics
    /// If the work panics.
    pub async fn run<T: Send + 'static>(self: &Arc<Self>, work: impl FnOnce() -> T + Send + 'static) -> T {
        let ((answer, done), processors) = (oneshot::channel(), self.clone());
        self.threads.spawn_fifo(move || {
            // Skip the work if the caller has been dropped.
            if !answer.is_closed() {
                drop(answer.send(catch_unwind(AssertUnwindSafe(work))));
            }
            processors.finished.notify_waiters();
        });
        let done = done.await.expect("the work of a caller that waits is run");
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Waits until a thread has finished any work. This proves that the threads do not hang, even if the queue is long.
    pub async fn turn(self: &Arc<Self>) {
        let finished = self.finished.notified();
        tokio::select! { () = finished => {}, () = self.run(|| ()) => {} }
    }
}

/// Lowers the priority of this thread. If that is not permitted, the priority stays unchanged, and deliveries are slower.
fn give_way() {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        debug!(%error, "priority of a verify thread not lowered");
    }
}

#[derive(Debug)]
pub(crate) struct ThisMachine {
    began: Instant,
    processors: Arc<Processors>,
    /// Prepares tables for signers while further events are checked.
    preparing: Mutex<JoinSet<()>>,
}

impl ThisMachine {
    pub(crate) fn new(processors: Arc<Processors>) -> Self {
        Self { began: Instant::now(), processors, preparing: Mutex::default() }
    }

    /// Prepares the verifier if it wants to be prepared and no preparation is running. Panics if an earlier preparation has
    /// panicked.
    fn prepare(&self, verifier: &Arc<Verifier>) {
        let mut preparing = lock(&self.preparing);
        while let Some(prepared) = preparing.try_join_next() {
            prepared.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        }
        if preparing.is_empty() && verifier.wants_preparing() {
            let verifier = verifier.clone();
            preparing.spawn_blocking(move || verifier.prepare());
        }
    }
}

#[async_trait]
impl Machine for ThisMachine {
    fn time(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    fn began(&self) -> Instant {
        self.began
    }

    async fn check(&self, parameters: CheckParameters, events: Vec<RawEvent>) -> Vec<Checked> {
        let size = events.len().div_ceil(self.processors.number()).clamp(*SHARE_SIZES.start(), *SHARE_SIZES.end());
        let (shares, mut events) = (events.len().div_ceil(size), events.into_iter());
        let shares = (0..shares).map(|_| {
            let (parameters, share) = (parameters.clone(), events.by_ref().take(size).collect());
            self.processors.run(move || Checked::all(&parameters, share))
        });
        let checked = join_all(shares).await.into_iter().flatten().collect();
        self.prepare(&parameters.settings.verification.verifier);
        checked
    }
}

#[cfg(test)]
mod tests;
