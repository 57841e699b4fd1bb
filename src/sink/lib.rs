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

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use net::tasks::joined;
use proof::event::{ChannelId, EventKey, Offset};
use record::{ChannelRef, Message};

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

#[doc = include_str!("webhook/receivers.md")]
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
    /// Takes the lane over, so that no earlier owner of it can write any more, and compares the sink's own position with the
    /// recorded one. A lane calls this before its first delivery, and again before the next one after a delivery failed.
    ///
    /// A sink that keeps positions:
    ///
    /// * takes over `recorded.through` as its position if nothing is confirmed yet ([`Recorded::confirmed`] is `None`),
    /// * otherwise returns its own position and changes nothing, or [`Position::Missing`] if it has none.
    ///
    /// # Errors
    /// If the sink cannot be used now: the lane asks again.
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let _ = recorded;
        Ok(Resumed::default())
    }

    /// The sink's own position of a lane, without taking the lane over. A channel without state starts from it.
    ///
    /// # Errors
    /// If the sink cannot be used now: the channel asks again.
    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let _ = lane;
        Ok(Position::Untracked)
    }

    /// The oldest event of a channel that the sink still holds, by the time of writing. A comparison with the service begins with
    /// it: earlier events were never delivered or are not kept. Changes nothing, and works beside a running daemon.
    ///
    /// # Errors
    /// If the sink cannot be used now.
    async fn oldest(&self, channel: ChannelId) -> Result<Oldest, SinkError> {
        let _ = channel;
        Ok(Oldest::Unknown)
    }

    /// Which of these events of a channel the sink holds. Not called if [`oldest`](Self::oldest) is [`Oldest::Unknown`].
    ///
    /// # Errors
    /// If the sink cannot be used now.
    async fn holds(&self, channel: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        let _ = (channel, keys);
        Ok(BTreeSet::new())
    }

    /// Whether what it holds is on this machine: another instance with the same configuration then has files of its own, and the
    /// recorded position says nothing about them.
    fn is_local(&self) -> bool {
        false
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
    /// The sink's position as it last confirmed it. A sink that keeps positions writes only if it still has this position, and
    /// otherwise answers [`SinkError::Displaced`].
    pub after: Option<Offset>,
    /// The lane's cursor once these messages are delivered. A sink's position becomes the higher of `after` and this.
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

/// What the state records of a lane, for the sink to compare with what it holds.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The lane.
    pub lane: LaneRef,
    /// The lease's epoch, as in [`Delivery`].
    pub epoch: u64,
    /// The lane's cursor; `None` before the first event.
    pub through: Option<Offset>,
    /// The pending events up to `through`, which were not delivered yet.
    pub owed: BTreeSet<EventKey>,
    /// What the sink confirmed last. `None` if the cursor was chosen by `start` or by an operator and not reached by delivering.
    pub confirmed: Option<Confirmed>,
}

/// What a sink has confirmed of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The sink's position. The cursor can be higher: events that the sink does not get move the cursor alone.
    pub position: Option<Offset>,
    /// The event that was written last; `None` if none was written since the cursor was chosen.
    pub last: Option<EventKey>,
}

/// What a sink holds of a lane, as the sink itself says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// The sink's position.
    pub position: Position,
    /// Events that the sink holds although they are not recorded as delivered, as far as it can name them: those above the
    /// cursor are offered again and the sink skips them, pending ones are settled.
    pub held: BTreeSet<EventKey>,
}

/// How far a lane has got according to the sink itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Position {
    /// The sink keeps no positions.
    #[default]
    Untracked,
    /// The sink keeps positions and has none for the lane. The text says where it is missing, for an operator.
    Missing(String),
    /// Every event up to here was delivered; `None` before the first event.
    At(Option<Offset>),
}

/// The oldest event of a channel that a sink still holds, by the time of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// The sink cannot say which events it holds.
    Unknown,
    /// It holds no event of the channel.
    Nothing,
    /// This one.
    Event(EventKey),
}

impl Recorded {
    /// Whether an event is recorded as delivered, and will not be offered again.
    pub fn covers(&self, key: &EventKey) -> bool {
        self.through.is_some_and(|through| key.offset <= through) && !self.owed.contains(key)
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
    /// The sink's position is not the one that it confirmed last: it was restored, or another program has changed it. The lane
    /// asks for the position again before it delivers.
    #[error("{0}")]
    Displaced(String),
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
    pub fn refused(message: String) -> Self {
        Self::Refused { message, retry_after: None, needs_attention: true }
    }

    /// Whether an operator must act: it is not expected to pass by itself.
    pub fn needs_attention(&self) -> bool {
        match self {
            Self::Closed | Self::Gone { .. } | Self::Io { .. } => true,
            Self::Overtaken { .. } | Self::Displaced { .. } => false,
            Self::Refused { needs_attention, .. } | Self::Unavailable { needs_attention, .. } => *needs_attention,
        }
    }
}

/// Runs blocking work off the async threads. A panic in it goes on in the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work).await).await
}
