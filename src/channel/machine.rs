//! What the loop takes from the machine that it runs on: the time of day, chance, and processors for signatures. A trait,
//! so that the loop can be held against a model in which each of them does as it is told.

use std::fmt;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::event::RawEvent;
use crate::retry::{Retry, RetryPolicy};
use crate::verify::Verifier;

use super::ChannelError;
use super::clerk::{Clerk, Heard};
use super::turns::{Turn, Turns};

/// Events that a processor takes at a time. Few, so that a page is spread evenly and no other channel waits for long; not
/// too few, because each share begins without knowing who signed before.
const SHARE: usize = 25;

/// A machine.
#[async_trait]
pub(super) trait Machine: Send + Sync + fmt::Debug {
    /// Unix seconds. They go back where somebody sets the clock back.
    fn now(&self) -> i64;

    /// When it began: what happens at fixed times counts from here.
    fn began(&self) -> Instant;

    /// Waits that grow, and differ by chance.
    fn retry(&self, policy: RetryPolicy) -> Retry;

    /// A turn to ask for a range and to hear it.
    async fn turn(&self) -> Turn;

    /// Hears events in their order, off the async threads.
    async fn hear(&self, clerk: &Arc<Clerk>, events: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError>;
}

/// The machine itself. All channels share its processors: however many are behind, no more threads compete for them than
/// there are, and what comes first is heard first.
#[derive(Debug)]
pub(super) struct ThisMachine {
    began: Instant,
    processors: ThreadPool,
    turns: Turns,
    /// What is made ready for signers, beside the judging of what follows.
    preparing: Mutex<JoinSet<()>>,
}

impl ThisMachine {
    /// # Panics
    /// If the system gives no thread for each processor.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = ThreadPoolBuilder::new().num_threads(processors).thread_name(|number| format!("verify-{number}"));
        let turns = Turns::new(processors);
        let processors = threads.build().expect("a thread for each processor can be started");
        Self { began: Instant::now(), processors, turns, preparing: Mutex::default() }
    }

    async fn hear_share(&self, clerk: Arc<Clerk>, share: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError> {
        let verifier = clerk.verifier().clone();
        let heard = self.on_a_processor(move || clerk.hear(share)).await;
        self.prepare(&verifier)?;
        Ok(heard)
    }

    /// What comes of work that takes a processor. A panic goes on in whoever waits.
    async fn on_a_processor<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, done) = oneshot::channel();
        self.processors.spawn_fifo(move || {
            // Not where nobody waits any more.
            if !answer.is_closed() {
                drop(answer.send(catch_unwind(AssertUnwindSafe(work))));
            }
        });
        let done = done.await.expect("who waits is answered");
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Prepares a verifier that has something to prepare, unless that is being done.
    fn prepare(&self, verifier: &Arc<Verifier>) -> Result<(), ChannelError> {
        let mut preparing = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(prepared) = preparing.try_join_next() {
            prepared.map_err(ChannelError::Panicked)?;
        }
        if preparing.is_empty() && verifier.wants_preparing() {
            let verifier = verifier.clone();
            preparing.spawn_blocking(move || verifier.prepare());
        }
        Ok(())
    }
}

#[async_trait]
impl Machine for ThisMachine {
    fn now(&self) -> i64 {
        jiff::Timestamp::now().as_second()
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn retry(&self, policy: RetryPolicy) -> Retry {
        Retry::new(policy)
    }

    async fn turn(&self) -> Turn {
        self.turns.next().await
    }

    async fn hear(&self, clerk: &Arc<Clerk>, events: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError> {
        let (shares, mut events) = (events.len().div_ceil(SHARE), events.into_iter());
        let shares = (0..shares).map(|_| self.hear_share(clerk.clone(), events.by_ref().take(SHARE).collect()));
        Ok(try_join_all(shares).await?.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn a_panic_goes_on_in_who_waits_and_stops_nobody_else() {
        let machine = ThisMachine::new();
        // More than there are threads to lose.
        for _ in 0..4 * machine.processors.current_num_threads() {
            let panics = machine.on_a_processor(|| panic!("it is said once"));
            AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
        }
        assert_eq!(machine.on_a_processor(|| 7).await, 7);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_begun() {
        let (machine, begun) = (ThisMachine::new(), Arc::<AtomicUsize>::default());
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        // All threads are busy until the sender is dropped.
        let busy = (0..machine.processors.current_num_threads()).map(|_| {
            let held = held.clone();
            machine.on_a_processor(move || held.lock().unwrap().recv().unwrap_err())
        });
        let mut busy = Box::pin(join_all(busy));
        assert!(busy.as_mut().now_or_never().is_none());
        let counts = || {
            let begun = begun.clone();
            machine.on_a_processor(move || begun.fetch_add(1, SeqCst))
        };
        assert!(counts().now_or_never().is_none(), "it is queued, and then dropped");
        let last = counts();
        drop(hold);
        assert_eq!(last.await, 0);
        busy.await;
    }
}
