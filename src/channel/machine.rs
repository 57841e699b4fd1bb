//! What the loop takes from the machine that it runs on: the time of day, chance, and processors for signatures. A trait,
//! so that the loop can be held against a model in which each of them does as it is told.

use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::event::RawEvent;
use crate::retry::{Retry, RetryPolicy};
use crate::verify::Verifier;

use super::ChannelError;
use super::clerk::{Clerk, Heard};

/// Events that a processor takes at a time. Few, so that a page is spread evenly and no other channel waits for long; not
/// too few, because each share has to be handed over.
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

    /// Hears events in their order, off the async threads.
    async fn hear(&self, clerk: &Arc<Clerk>, events: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError>;
}

/// The machine itself. All channels share its processors: however many are behind, no more threads compete for them than
/// there are, and each channel has its turn.
#[derive(Debug)]
pub(super) struct ThisMachine {
    began: Instant,
    processors: Arc<Semaphore>,
    /// What is made ready for signers, beside the judging of the pages that follow.
    preparing: Mutex<JoinSet<()>>,
}

impl ThisMachine {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { began: Instant::now(), processors: Arc::new(Semaphore::new(processors)), preparing: Mutex::default() }
    }

    async fn hear_share(&self, clerk: Arc<Clerk>, events: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError> {
        let processor = self.processors.clone().acquire_owned().await.expect("it is never closed");
        let hearing = tokio::task::spawn_blocking(move || {
            let heard = clerk.hear(events);
            drop(processor);
            heard
        });
        hearing.await.map_err(ChannelError::Panicked)
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

    async fn hear(&self, clerk: &Arc<Clerk>, events: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError> {
        let (shares, mut events) = (events.len().div_ceil(SHARE), events.into_iter());
        let shares = (0..shares).map(|_| self.hear_share(clerk.clone(), events.by_ref().take(SHARE).collect()));
        let heard = try_join_all(shares).await?;
        self.prepare(clerk.verifier())?;
        Ok(heard.into_iter().flatten().collect())
    }
}
