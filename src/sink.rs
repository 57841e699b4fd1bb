//! Where events go: one trait, one file a sink.
//!
//! # Invariants
//!
//! * **`Ok` is a promise.** A sink answers `Ok` when the batch has left its hands for good: written to the pipe, synced
//!   to the disk, or answered with 2xx. Never earlier.
//! * **Sinks do not wait.** A refusal is returned at once; when to offer the rest again is for the lane to decide.
//!
//! # Adding a sink
//!
//! Write one file beside `stdout.rs`, the shortest example, and a line for it in `KINDS`, below its `mod`. In the file:
//!
//! * a type that implements [`Sink`]: it takes batches;
//! * a type that implements [`Target`]: what an operator decides about it, how `channeld check` shows that, and how the
//!   sink is made of it;
//! * a `Kind`: the word that `type` is set to, and how the keys of its table are read. `Keys` notes what is wrong under
//!   the key that it is wrong with. Document the table in `config/default.toml`: tests ask for the type and each key.
//!
//! That is all: order, retries, cursors, filters, formats, dead letters, status and metrics are the lane's, and the same
//! for every sink.
//!
//! # Cancellation
//!
//! A delivery whose future is dropped may or may not have happened: the caller must not drop it between delivering and
//! recording. What a sink guards by a lock stays locked until the work in hand has ended.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::event::Offset;
use crate::joined::joined;
use crate::record::{ChannelRef, Message};

mod file;
#[cfg(test)]
mod sample;
mod stdout;
mod target;
mod webhook;

/// Every type of sinks.
pub(crate) const KINDS: [Kind; 3] = [stdout::KIND, file::KIND, webhook::KIND];

#[doc = include_str!("sink/webhook/receivers.md")]
pub mod receivers {}

pub use file::{Access, ClosedName, Compression, File, FileSettings, Keep, Rotation};
pub use stdout::Stdout;
pub(crate) use target::Kind;
pub use target::Target;
pub use webhook::{Batching, Dispatch, SecretError, SigningKeys, Webhook, WebhookSettings};

/// Somewhere events go.
///
/// `Ok` means the sink has taken responsibility for the whole batch, so its cursor may move past it. A batch is never
/// empty and never reordered within a channel; after a crash it may come twice, with the same ids. Several channels may
/// deliver at the same time, each one batch at a time.
#[async_trait]
pub trait Sink: Send + Sync + fmt::Debug {
    /// Says what is recorded as delivered, before the first batch of a channel: a sink that can see what it already
    /// holds passes over the rest of it, and says what that is.
    ///
    /// # Errors
    /// If the sink cannot be used now: it is asked again.
    async fn resume(&self, recorded: &Recorded) -> Result<BTreeSet<Offset>, SinkError> {
        let _ = recorded;
        Ok(BTreeSet::new())
    }

    /// Looks whether it could be used, without giving it anything, and says what it has seen.
    ///
    /// # Errors
    /// If it could not, as far as can be seen.
    async fn probe(&self) -> Result<String, SinkError> {
        Ok("not looked at: only a delivery can tell".to_owned())
    }

    /// Begins anew what another program may have moved away or replaced: SIGHUP asks for it.
    ///
    /// # Errors
    /// If the sink cannot be used now. Nothing follows from it: it is used again when there is something to deliver.
    async fn reopen(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// How many records are offered at once. A sink that takes its time over each wants few: what has arrived is recorded
    /// after each offer, and stopping waits for no more than one.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    /// How long to wait for more where there is less to offer than it takes at once. Not at all, as a rule.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }

    /// Takes a batch of one channel, in ascending offset order.
    ///
    /// # Errors
    /// If any event may not have arrived. What [`Undelivered`] says has arrived is not offered again, the rest is.
    async fn deliver(&self, channel: &ChannelRef, batch: &[Message]) -> Result<(), Undelivered>;
}

/// What is durably recorded as delivered by one sink of one channel.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The channel.
    pub channel: ChannelRef,
    /// Every event up to this one has been dealt with; `None` where none has.
    pub through: Option<Offset>,
    /// Those below it that wait for a late proof, and so have not been delivered after all.
    pub owed: BTreeSet<Offset>,
}

impl Recorded {
    /// Whether the event at `offset` is recorded as delivered, and will not be offered again.
    #[must_use]
    pub fn covers(&self, offset: Offset) -> bool {
        self.through.is_some_and(|through| offset <= through) && !self.owed.contains(&offset)
    }
}

/// A batch that was not taken as a whole.
#[derive(Debug)]
pub struct Undelivered {
    /// How many of the batch's first records have arrived for certain.
    pub delivered: usize,
    /// Those of the others that have too, where a sink delivers several at the same time.
    pub beyond: BTreeSet<Offset>,
    /// Why the next one has not.
    pub error: SinkError,
}

impl Undelivered {
    /// The first `delivered` have arrived, none of the others.
    #[must_use]
    pub fn after(delivered: usize, error: SinkError) -> Self {
        Self { delivered, beyond: BTreeSet::new(), error }
    }
}

/// Why a sink did not take an event.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Nobody reads on the other side, and nobody will: the daemon ends, cleanly.
    #[error("the reader has gone")]
    Closed,
    /// Not now. The same is offered again after a wait.
    #[error("{message}")]
    Refused {
        /// What happened, for an operator. Holds no body and no secret.
        message: String,
        /// How long the other side asked to wait.
        retry_after: Option<Duration>,
        /// Whether the other side means this event, or us, and somebody must act. Otherwise it may well pass by itself.
        needs_attention: bool,
    },
    /// Not now and not later: the other side wants no more. Nothing is offered again until an operator says so.
    #[error("{message}")]
    Gone {
        /// What happened, for an operator.
        message: String,
    },
    /// The system did not let us. The same is offered again after a wait.
    #[error("{doing}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl SinkError {
    /// A short constant name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Refused { .. } => "refused",
            Self::Gone { .. } => "gone",
            Self::Io { .. } => "io",
        }
    }

    /// Whether somebody must act: it is not expected to pass by itself.
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        match self {
            Self::Closed | Self::Gone { .. } | Self::Io { .. } => true,
            Self::Refused { needs_attention, .. } => *needs_attention,
        }
    }
}

/// Runs blocking work off the async threads. A panic in it goes on in the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work).await).await
}
