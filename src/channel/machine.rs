//! What the loop takes from the machine that it runs on: the time of day, chance, and processors for signatures. A trait,
//! so that the loop can be held against a model in which each of them does as it is told.

use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use crate::event::RawEvent;
use crate::retry::{Retry, RetryPolicy};
use crate::verify::{Verdict, Verifier};

use super::ChannelError;

/// A machine.
#[async_trait]
pub(super) trait Machine: Send + Sync + fmt::Debug {
    /// Unix seconds. They go back where somebody sets the clock back.
    fn now(&self) -> i64;

    /// Waits that grow, and differ by chance.
    fn retry(&self, policy: RetryPolicy) -> Retry;

    /// Judges events in their order, off the async threads.
    async fn judge(&self, verifier: &Arc<Verifier>, events: Vec<RawEvent>) -> Result<Vec<Verdict>, ChannelError>;
}

/// The machine itself.
#[derive(Debug)]
pub(super) struct ThisMachine {
    processors: usize,
    /// What is made ready for signers, beside the judging of the pages that follow.
    preparing: Mutex<JoinSet<()>>,
}

impl ThisMachine {
    pub(super) fn new() -> Self {
        Self { processors: std::thread::available_parallelism().map_or(1, NonZero::get), preparing: Mutex::default() }
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

    fn retry(&self, policy: RetryPolicy) -> Retry {
        Retry::new(policy)
    }

    async fn judge(&self, verifier: &Arc<Verifier>, events: Vec<RawEvent>) -> Result<Vec<Verdict>, ChannelError> {
        let share = events.len().div_ceil(self.processors).max(1);
        let shares = events.chunks(share).map(|events| {
            let (verifier, events) = (verifier.clone(), events.to_vec());
            tokio::task::spawn_blocking(move || events.into_iter().map(|raw| verifier.judge(raw)).collect::<Vec<_>>())
        });
        let judged = try_join_all(shares).await.map_err(ChannelError::Panicked)?;
        self.prepare(verifier)?;
        Ok(judged.into_iter().flatten().collect())
    }
}
