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
//! What a sink can do besides has a default that is right for it: `test` looks and writes nothing, `pace` does not wait.
//!
//! Order, retries, cursors, filters, formats, dead letters, status and metrics are the lane's, and the same for every sink.
//!
//! # Cancellation
//!
//! A delivery whose future is dropped may or may not have happened: the caller must not drop it between delivering and
//! recording. A sink's lock is held until the work that was begun under it has ended.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::event::Offset;
use crate::record::{ChannelRef, Message};
use crate::tasks::joined;

mod file;
mod kafka;
mod nats;
mod postgres;
mod sqlite;
mod stdout;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod webhook;

#[doc = include_str!("sink/webhook/receivers.md")]
pub mod receivers {}

pub use file::{Access, ClosedName, Compression, File, FileSettings, Keep, OpenFiles, Place, Rotation};
pub use kafka::{HAS_KAFKA, KafkaSettings, Mechanism, SaslLogin, Security, kafka};
pub use nats::{Login, Nats, NatsSettings, Pattern};
pub use postgres::{Postgres, PostgresSettings};
pub use sqlite::{Sqlite, SqliteSettings};
pub use stdout::Stdout;
pub use table::Search;
pub use webhook::{Credentials, Dispatch, OAuth2, Rate, SigningKeys, Webhook, WebhookSettings, has_token};

/// Somewhere events go.
///
/// Several lanes may use a sink at the same time. Each makes one call at a time.
#[async_trait]
pub trait Sink: Send + Sync + fmt::Debug {
    /// Says, before a lane's first delivery, which events the sink holds beyond what is recorded of the lane, as far as it can
    /// name them. They are offered again all the same: the sink passes over them.
    ///
    /// # Errors
    /// If the sink cannot be used now: it is asked again.
    async fn resume(&self, lane: &Recorded) -> Result<BTreeSet<Offset>, SinkError> {
        let _ = lane;
        Ok(BTreeSet::new())
    }

    /// Whether the sink could be used, without delivering to it: what was seen, for an operator.
    ///
    /// # Errors
    /// If it could not, as far as can be seen.
    async fn probe(&self) -> Result<String, SinkError> {
        Ok("not looked at: only a delivery can tell".to_owned())
    }

    /// Gives the other side one message that is marked as a test. What is recorded of lanes does not change by it: a sink that
    /// holds each event exactly once, or keeps positions where it delivers to, looks instead.
    ///
    /// # Errors
    /// If the message may not have arrived, with what the other side says.
    async fn test(&self, sample: &Delivery<'_>) -> Result<Tested, SinkError> {
        let _ = sample;
        self.probe().await.map(Tested::Looked)
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

    /// Waits until the sink may be offered something, where it keeps a rate. Each offer waits for this first. The wait may be
    /// dropped.
    async fn pace(&self) {}

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

/// What came of a test, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tested {
    /// The message has arrived: what came back.
    Delivered(String),
    /// It was not given to the other side: what was seen instead.
    Looked(String),
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

impl Delivery<'_> {
    /// Everything up to here is dealt with once the messages up to the end of this part are delivered.
    fn through_part(&self, part: &Range<usize>) -> Offset {
        if part.end == self.messages.len() { self.through } else { self.messages[part.end - 1].offset() }
    }
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
    /// The first `delivered` have arrived for certain. The others are offered again.
    pub fn after(delivered: usize, error: SinkError) -> Self {
        Self { delivered, beyond: BTreeSet::new(), error }
    }

    /// As many more have arrived before.
    fn behind(self, arrived: usize) -> Self {
        Self { delivered: arrived + self.delivered, ..self }
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
    /// The other side cannot be reached or used, whichever event it is: no event is ever given up for it. The same is offered
    /// again after a wait.
    #[error("{message}")]
    Unavailable {
        /// What happened, for an operator. Holds no body and no secret.
        message: String,
        /// Whether it is not expected to pass by itself.
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

    /// The other side is away, and is expected to come back.
    fn away(message: String) -> Self {
        Self::Unavailable { message, needs_attention: false }
    }

    /// The other side cannot be used until an operator acts.
    fn unusable(message: String) -> Self {
        Self::Unavailable { message, needs_attention: true }
    }

    /// An event is refused, and will be until an operator acts.
    pub(crate) fn refused(message: String) -> Self {
        Self::Refused { message, retry_after: None, needs_attention: true }
    }

    /// Whether an operator must act: it is not expected to pass by itself.
    pub fn needs_attention(&self) -> bool {
        match self {
            Self::Closed | Self::Gone { .. } | Self::Io { .. } => true,
            Self::Overtaken { .. } => false,
            Self::Refused { needs_attention, .. } | Self::Unavailable { needs_attention, .. } => *needs_attention,
        }
    }
}

/// Runs blocking work off the async threads. A panic in it goes on in the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work).await).await
}
