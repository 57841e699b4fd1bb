//! The resources of the machine that the loop uses: the time of day, random waits, and processors for signatures. They are
//! the methods of a trait, so that tests can run the loop on a machine that they control.

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

use crate::verify::checked::{CheckParameters, Checked};
use net::retry::{Retry, RetryPolicy};
use net::tasks::lock;
use proof::event::RawEvent;
use proof::verify::Verifier;

/// The number of events in a share. A processor checks one share at a time. The maximum is low, so that a page is divided
/// among the processors, and other channels do not wait long. The minimum exists because the signatures of a share are
/// checked together, and this is slow for few signatures.
const SHARE_SIZES: RangeInclusive<usize> = 50..=100;

/// How much the priority of the checking threads is lowered (`nice`). The other threads of the process deliver the checked
/// events. With equal priority, a delivery to a database would often continue only after a share was checked.
const NICENESS: i32 = 5;

#[async_trait]
pub(crate) trait Machine: Send + Sync + fmt::Debug {
    /// Returns the time of day, to the millisecond. The returned time goes back if the clock is set back.
    fn time(&self) -> Timestamp;

    /// Returns the time of day in Unix seconds.
    fn now(&self) -> i64 {
        self.time().as_second()
    }

    /// Returns when the process began. The slots for polling are counted from this time.
    fn began(&self) -> Instant;

    /// Returns the waits of a retry policy, which grow and have random jitter.
    fn retry(&self, policy: RetryPolicy) -> Retry {
        Retry::new(policy)
    }

    /// Checks events outside the async threads. The results have the order of the events.
    async fn check(&self, parameters: CheckParameters, events: Vec<RawEvent>) -> Vec<Checked>;
}

/// The threads that check events, one thread for each processor. All channels share the threads. Work is done in the order in
/// which it arrives.
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

    /// Runs work on one of the threads, and returns its result.
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

    /// Waits until one of the threads has finished any work. This proves that not all threads hang, even if the queue is
    /// long.
    pub async fn turn(self: &Arc<Self>) {
        let finished = self.finished.notified();
        tokio::select! { () = finished => {}, () = self.run(|| ()) => {} }
    }
}

/// Lowers the priority of this thread. If the system does not permit this, the priority stays unchanged, and deliveries are
/// slower.
fn give_way() {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        debug!(%error, "priority of a verify thread not lowered");
    }
}

#[derive(Debug)]
pub(crate) struct ThisMachine {
    began: Instant,
    processors: Arc<Processors>,
    /// The task that prepares tables for signers, while further events are checked.
    preparing: Mutex<JoinSet<()>>,
}

impl ThisMachine {
    pub(crate) fn new(processors: Arc<Processors>) -> Self {
        Self { began: Instant::now(), processors, preparing: Mutex::default() }
    }

    /// Starts the preparation of the verifier, if the verifier needs it and no preparation is running. Panics if an earlier
    /// preparation has panicked.
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
