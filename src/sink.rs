//! Where events go: one trait, one file a sink.
//!
//! # Invariants
//!
//! * **`Ok` means delivered.** Written to the pipe, synced to the disk, or answered with 2xx. Never earlier.
//! * **Sinks do not retry.** A refusal is returned at once. The lane decides when to offer the rest again.
//!
//! # Adding a sink
//!
//! * Beside `stdout.rs`, the shortest example: a type for its settings, and one that implements [`Sink`] and is made of
//!   them. Neither knows keys.
//! * `config/sink/NAME.rs`: how the keys of its table are read into those settings, and how `channeld check` shows them.
//!   Document the table in `config/default.toml`: tests ask for the type and each key.
//! * In `config/sink.rs`: a variant of `SinkSettings`, and its lines in `build`, `shown`, `json` and `read`.
//!
//! Order, retries, cursors, filters, formats, dead letters, status and metrics are the lane's, and the same for every sink.
//!
//! # Cancellation
//!
//! A delivery whose future is dropped may or may not have happened: the caller must not drop it between delivering and
//! recording. A sink's lock is held until the work that was begun under it has ended.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::event::Offset;
use crate::record::{ChannelRef, Message};
use crate::tasks::joined;

mod file;
mod stdout;
#[cfg(test)]
mod tests;
mod webhook;

#[doc = include_str!("sink/webhook/receivers.md")]
pub mod receivers {}

pub use file::{Access, ClosedName, Compression, File, FileSettings, Keep, OpenFiles, Place, Rotation};
pub use stdout::Stdout;
pub use webhook::{Dispatch, SigningKeys, Webhook, WebhookSettings, has_token};

/// Somewhere events go.
///
/// Several lanes may use a sink at the same time. Each makes one call at a time.
#[async_trait]
pub trait Sink: Send + Sync + fmt::Debug {
    /// Says, before a lane's first delivery, what the sink holds beyond what is recorded of the lane.
    ///
    /// # Errors
    /// If the sink cannot be used now: it is asked again.
    async fn resume(&self, lane: &Recorded) -> Result<Held, SinkError> {
        let _ = lane;
        Ok(Held::default())
    }

    /// Whether the sink could be used, without delivering to it: what was seen, for an operator.
    ///
    /// # Errors
    /// If it could not, as far as can be seen.
    async fn probe(&self) -> Result<String, SinkError> {
        Ok("not looked at: only a delivery can tell".to_owned())
    }

    /// What the other side says where it refuses to be looked at: an excerpt for an operator.
    async fn refusal(&self) -> Option<String> {
        None
    }

    /// Opens again what another program may have moved or replaced, on SIGHUP.
    ///
    /// # Errors
    /// If the sink cannot be used now. This has no consequence: the next delivery tries again.
    async fn reopen(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// How many messages are offered at once. A sink that is slow asks for few: what has arrived is recorded after each
    /// offer, and stopping waits for one offer.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    /// How long to wait for more messages where there are fewer than `at_once`.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }

    /// Takes events of one lane. `Ok` means that the sink is responsible for all of them: the cursor may move past them.
    /// After a crash they may be offered again, with the same ids.
    ///
    /// # Errors
    /// If any event may not have arrived. What [`Undelivered`] says has arrived is not offered again, the rest is.
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered>;
}

/// One sink of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRef {
    /// The channel.
    pub channel: ChannelRef,
    /// The sink's name in the configuration.
    pub sink: Arc<str>,
}

/// Events offered to a sink.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The lane that offers them.
    pub lane: &'a LaneRef,
    /// The lease's epoch: a sink that shares its target with other instances refuses an older one.
    pub epoch: u64,
    /// Everything up to here is dealt with once these messages are delivered.
    pub through: Offset,
    /// In ascending offset order, never empty.
    pub messages: &'a [Message],
}

/// What is durably recorded of a lane.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The lane.
    pub lane: LaneRef,
    /// The lease's epoch, as in [`Delivery`].
    pub epoch: u64,
    /// Every event up to this one has been dealt with; `None` where none has.
    pub through: Option<Offset>,
    /// Those up to `through` that wait for a late proof: not delivered yet.
    pub owed: BTreeSet<Offset>,
}

impl Recorded {
    /// Whether the event at `offset` is recorded as delivered, and will not be offered again.
    pub fn covers(&self, offset: Offset) -> bool {
        self.through.is_some_and(|through| offset <= through) && !self.owed.contains(&offset)
    }
}

/// What a sink holds beyond what is recorded of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// These events. They are offered again all the same: the sink passes over them.
    Offsets(BTreeSet<Offset>),
    /// Everything up to here, less what waits for a late proof. Nothing of it is offered again.
    Through(Offset),
}

/// Nothing that it can name.
impl Default for Held {
    fn default() -> Self {
        Self::Offsets(BTreeSet::new())
    }
}

/// A delivery that was not taken as a whole.
#[derive(Debug)]
pub struct Undelivered {
    /// How many of the first messages have arrived for certain.
    pub delivered: usize,
    /// Those of the others that have arrived too, where a sink delivers several at the same time.
    pub beyond: BTreeSet<Offset>,
    /// Why the next one has not.
    pub error: SinkError,
}

impl Undelivered {
    /// The first `delivered` have arrived, none of the others.
    pub fn after(delivered: usize, error: SinkError) -> Self {
        Self { delivered, beyond: BTreeSet::new(), error }
    }
}

/// Why a sink did not take an event, by what follows from it.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SinkError {
    /// The other side has stopped reading for good: the daemon ends, cleanly.
    #[error("the reader has gone")]
    Closed,
    /// Not now. The same is offered again after a wait.
    #[error("{message}")]
    Refused {
        /// What happened, for an operator. Holds no body and no secret.
        message: String,
        /// How long the other side asked to wait.
        retry_after: Option<Duration>,
        /// Whether the reason is this event, or how we are set up, so that an operator must act. Otherwise it may pass by
        /// itself.
        needs_attention: bool,
    },
    /// The other side wants no more events, and says so. Nothing is offered again until an operator resumes the sink.
    #[error("{0}")]
    Gone(String),
    /// Another instance has taken this lane over, as the sink noticed: the lane ends, and its channel's lease counts as
    /// lost.
    #[error("{0}")]
    Overtaken(String),
    /// An error of the operating system. The same is offered again after a wait.
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
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Whether an operator must act: it is not expected to pass by itself.
    pub fn needs_attention(&self) -> bool {
        match self {
            Self::Closed | Self::Gone { .. } | Self::Io { .. } => true,
            Self::Overtaken { .. } => false,
            Self::Refused { needs_attention, .. } => *needs_attention,
        }
    }
}

/// Runs blocking work off the async threads. A panic in it goes on in the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work).await).await
}
