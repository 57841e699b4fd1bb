//! The destinations of events: one trait, and one module per sink.
//!
//! The caller of a sink is a *lane*: one sink of one channel. Module [`feed`] reads the tables that sinks have written.
//!
//! # Invariants
//!
//! * **`Ok` means delivered.** The events were written to the pipe, synced to the disk, or answered with 2xx. A sink never
//!   returns `Ok` earlier.
//! * **Sinks do not retry.** A sink returns a refusal immediately. The lane decides when to offer the events again.
//!
//! # Adding a sink
//!
//! The shortest example is `stdout.rs`; `CONTRIBUTING.md` lists the other files that a new sink changes. A sink is a type
//! that implements [`Sink`]. It is made from validated settings and does not read the configuration. Only `deliver` is
//! required. A sink that publishes to a stream implements `stream::Log`, and uses `stream::Lane` for the protocol. The
//! calling lane handles order, retries, cursors, filters, formats, dead letters, status and metrics, in the same way for
//! every sink.
//!
//! # Cancellation
//!
//! If the future of a delivery is dropped, the delivery may or may not have happened. The caller must not drop it between
//! delivering and recording. Work that a sink has started under a lock keeps the lock until the work has ended.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use feed::FeedTable;
use net::shortage::Shortage;
use net::tasks::joined;
use proof::event::{ChannelId, EventKey, Offset};
use record::{ChannelRef, Message};

mod built_in;
pub mod feed;
mod file;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg_attr(
    not(all(feature = "kafka", feature = "nats", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "some items are used by only some of the sinks")
)]
mod narrowing;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
mod settings;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stdout;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod stream;
mod system;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[cfg_attr(
    not(all(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_imports, reason = "some items are used by only one of the databases")
)]
mod table;
#[cfg(test)]
mod tests;
mod webhook;

#[doc = include_str!("webhook/receivers.md")]
pub mod receivers {}

pub use built_in::{is_built_in, kafka, nats, postgres, sqlite};
pub use file::{Access, ClosedName, Compression, File, FileLocation, FileSettings, Keep, OpenFiles, Rotation};
pub use narrowing::OtherContent;
#[cfg(feature = "postgres")]
pub use postgres::{ENDS_TEXT, ends_query, ends_vector};
pub use settings::{
    ConsumedChannel, FeedConsumer, KafkaSettings, Login, Mechanism, NatsSettings, Pattern, PostgresSettings, SaslLogin,
    Search, Security, SqliteSettings,
};
pub use stdout::Stdout;
pub use webhook::{Credentials, Dispatch, OAuth2, Rate, SigningKeys, Webhook, WebhookSettings, has_token};

/// A destination of events. Several lanes may use a sink at the same time. Each lane makes one call at a time.
///
/// A method fails if the sink cannot be used now. The caller then calls the method again after a wait.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Takes the lane over, so that its earlier owners can no longer write, and compares the sink's own position with the
    /// recorded position. A lane calls this before its first delivery, and after each failed delivery.
    ///
    /// If no position is confirmed yet, a sink that keeps positions sets its position to [`Recorded::through`]. Otherwise
    /// the sink does not change its position. The result contains the sink's position, or [`Position::Missing`] if the sink
    /// has none.
    async fn resume(&self, _recorded: &Recorded) -> Result<Resumed, SinkError> {
        Ok(Resumed::default())
    }

    /// The sink's own position of a lane, without taking the lane over. A channel without state starts at this position.
    async fn position(&self, _lane: &LaneRef) -> Result<Position, SinkError> {
        Ok(Position::Untracked)
    }

    /// The oldest event of a channel that the sink still has, in the order of writing. A comparison with the service starts
    /// at this event. The call changes nothing, and works while a daemon is running.
    async fn oldest(&self, _channel: ChannelId) -> Result<Oldest, SinkError> {
        Ok(Oldest::Unknown)
    }

    /// The events in `keys` that the sink has, all of one channel. Not called if [`oldest`](Self::oldest) is
    /// [`Oldest::Unknown`].
    async fn holds(&self, _channel: ChannelId, _keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        Ok(BTreeSet::new())
    }

    /// Whether the sink stores its data on this machine. If so, another instance with the same configuration has its own
    /// files, and the recorded position does not apply to them.
    fn is_local(&self) -> bool {
        false
    }

    /// Checks whether the sink can be used, without a delivery. Returns a description for an operator.
    async fn probe(&self) -> Result<String, SinkError> {
        Ok("not checked: only a delivery shows whether the sink can be used".to_owned())
    }

    /// Why the target acknowledges events before they are on a disk, so that a power loss there loses events that were
    /// delivered. `None` if it does not, or if the target does not tell. Called after [`resume`](Self::resume).
    async fn early_ack(&self) -> Option<String> {
        None
    }

    /// Delivers one message that is marked as a test, without a change to the recorded state of lanes. A sink that has each
    /// event exactly once, or keeps positions in its target, only checks the target. If the message may not have arrived,
    /// the error contains the response of the target.
    async fn test(&self, _sample: &Delivery<'_>) -> Result<Tested, SinkError> {
        let seen = self.probe().await?;
        Ok(Tested::Checked(format!("{seen}; no test event is delivered, because the sink has each event exactly once")))
    }

    /// Checks whether these deliveries would succeed, and leaves nothing behind. A sink that cannot undo a delivery checks
    /// only what [`probe`](Self::probe) checks. Returns a description for an operator.
    async fn rehearse(&self, _samples: &[Delivery<'_>]) -> Result<String, SinkError> {
        self.probe().await
    }

    /// If the target refuses a check, an excerpt of its response, for an operator.
    async fn refusal(&self) -> Option<String> {
        None
    }

    /// Reopens files that another program may have moved or replaced. Called on SIGHUP. If a file cannot be reopened, the
    /// next delivery tries again.
    async fn reopen(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Waits until the sink has found, without a delivery, that another program has changed its data. The lane then calls
    /// [`resume`](Self::resume). By default, only a delivery finds a change. The future may be dropped.
    async fn displaced(&self, _lane: &LaneRef) {
        std::future::pending::<()>().await;
    }

    /// Waits until the sink's rate limit allows the lane's next offer, and until the pause that the target asked for ends.
    /// Called before each offer. The future may be dropped.
    async fn pace(&self, _lane: &LaneRef) {}

    /// How long the target has asked all lanes to wait. `None` if it has not.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// The maximum number of messages in one offer. A slow sink returns a small number: delivered events are recorded after
    /// each offer, and stopping the daemon waits for one offer.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    /// How long to wait for more messages if fewer than `at_once` are available.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }

    /// The feed of the sink's table. `None` if the sink writes no table, or its settings name no feed.
    fn feed(&self) -> Option<Arc<dyn FeedTable>> {
        None
    }

    /// Delivers events of one lane. `Ok` means that the sink is responsible for all of them: the cursor may move past them.
    /// After a crash, the same events may be offered again, with the same ids. After an error, all events are offered
    /// again, except the events that [`Undelivered`] lists as arrived.
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered>;
}

impl fmt::Debug for dyn Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

/// The result of a test, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tested {
    /// The message has arrived. Contains the response.
    Delivered(String),
    /// The message was not delivered. Contains the result of the check.
    Checked(String),
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
    /// The lane that offers the events.
    pub lane: &'a LaneRef,
    /// The epoch of the lease. A sink that shares its target with other instances refuses an older epoch.
    pub epoch: u64,
    /// The position that the sink confirmed last. A sink that keeps positions writes only if it still has this position.
    /// Otherwise it returns [`SinkError::Displaced`].
    pub after: Option<Offset>,
    /// The lane's cursor after these messages are delivered. A sink's position becomes the higher one of `after` and
    /// `through`.
    pub through: Offset,
    /// In ascending offset order, never empty.
    pub messages: &'a [Message],
}

impl Delivery<'_> {
    /// The lane's cursor after the messages up to the end of this part are delivered.
    pub fn through_part(&self, part: &Range<usize>) -> Offset {
        if part.end == self.messages.len() { self.through } else { self.messages[part.end - 1].offset() }
    }
}

/// The recorded state of a lane, which the sink compares with its own data.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The lane.
    pub lane: LaneRef,
    /// The epoch of the lease, as in [`Delivery`].
    pub epoch: u64,
    /// The lane's cursor. `None` before the first event.
    pub through: Option<Offset>,
    /// The pending events with offsets up to `through`. They were not delivered yet.
    pub pending: BTreeSet<EventKey>,
    /// The pending events that an operator replays. An earlier delivery of such an event does not count.
    pub replayed: BTreeSet<EventKey>,
    /// The last confirmation of the sink. `None` if the setting `start` or an operator chose the cursor, and no delivery
    /// has succeeded since.
    pub confirmed: Option<Confirmed>,
    /// The newest late deliveries, in the order of delivery.
    pub late: Vec<LateDelivery>,
}

/// An event that a sink has accepted below its position. The position does not tell whether the sink still has the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateDelivery {
    /// The event.
    pub event: EventKey,
    /// The sink's position when the event was delivered.
    pub after: Option<Offset>,
}

/// A sink's confirmation for a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The sink's position. The cursor can be higher: events that the sink does not receive move only the cursor.
    pub position: Option<Offset>,
    /// The event that was written last. `None` if no event was written since the cursor was set.
    pub last: Option<EventKey>,
}

/// The maximum number of events above the cursor that a table names in [`Resumed::held`]. After a crash, these are the events of one
/// delivery.
pub const MAX_HELD: usize = 10_000;

/// The sink's own view of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// The sink's position.
    pub position: Position,
    /// Events that the sink has although they are not recorded as delivered, in the order of writing. A sink that does not know
    /// this order uses the order of the offsets. Events that the sink cannot name are left out. The events above the cursor are
    /// still offered again, and the sink skips them. The pending events are not offered again.
    pub held: Vec<EventKey>,
    /// The events in [`Recorded::late`] that the sink has lost. They are delivered late again.
    pub lost: BTreeSet<EventKey>,
}

/// The position of a lane according to the sink itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Position {
    /// The sink keeps no positions.
    #[default]
    Untracked,
    /// The sink keeps positions, but has none for the lane. The text tells an operator where the position is missing.
    Missing(String),
    /// Every event up to this offset was delivered. `None` before the first event.
    At(Option<Offset>),
}

/// The oldest event of a channel that a sink still has, in the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// The sink cannot tell which events it has.
    Unknown,
    /// The sink has no event of the channel.
    Nothing,
    /// The sink has this event, and none that was written earlier.
    Event(EventKey),
}

impl Recorded {
    /// The recorded state of a lane that has delivered nothing.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn new(lane: LaneRef, epoch: u64) -> Self {
        let (pending, replayed) = (BTreeSet::new(), BTreeSet::new());
        Self { lane, epoch, through: None, pending, replayed, confirmed: None, late: Vec::new() }
    }

    /// Whether an event is recorded as delivered. Such an event is not offered again.
    pub fn covers(&self, key: &EventKey) -> bool {
        self.through.is_some_and(|through| key.offset <= through) && !self.pending.contains(key)
    }

    /// The late deliveries that a sink may lack if it was restored to this position. Earlier late deliveries are in the sink:
    /// they came before an event that it still has.
    fn late_since(&self, position: Option<Offset>) -> BTreeSet<EventKey> {
        self.late.iter().filter(|delivery| delivery.after >= position).map(|delivery| delivery.event).collect()
    }

    /// The late deliveries that a table may lack. None, unless the table's position is lower than the confirmed position.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn late_in_doubt(&self, position: &Position) -> BTreeSet<EventKey> {
        let confirmed = self.confirmed.and_then(|confirmed| confirmed.position);
        match position {
            Position::At(position) if *position < confirmed => self.late_since(*position),
            _ => BTreeSet::new(),
        }
    }

    /// The offsets that a table has but the state does not record, because a crash prevented the commit: those above the first
    /// number, up to the second one. `None` if no such offsets exist, or if the cursor was set: the operator then knows it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn unrecorded(&self, position: &Position) -> Option<(i64, i64)> {
        let (Position::At(Some(position)), Some(_)) = (position, self.confirmed) else { return None };
        let above = self.through.map_or(-1, Offset::get);
        (position.get() > above).then_some((above, position.get()))
    }
}

/// A delivery that failed, at least in part.
#[derive(Debug)]
pub struct Undelivered {
    /// How many messages, counted from the first, have certainly arrived.
    pub delivered: usize,
    /// Later messages that have arrived too, if the sink delivers several messages at the same time.
    pub beyond: BTreeSet<EventKey>,
    /// Why the message after the first `delivered` messages has not arrived.
    pub error: SinkError,
}

impl Undelivered {
    /// The first `delivered` messages have certainly arrived. The others are offered again.
    pub fn after(delivered: usize, error: SinkError) -> Self {
        Self { delivered, beyond: BTreeSet::new(), error }
    }
}

/// The cause of a failed delivery. It determines who can fix the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This event: the target refuses it until an operator acts. Another event may be accepted.
    Event,
    /// The target, temporarily. It is expected to recover without help.
    Target,
    /// The target or its configuration, until an operator acts.
    Operator,
    /// Another instance, which has taken the lane over.
    Instance,
}

/// Why a sink did not accept an event. The variants differ in how the lane continues.
#[derive(Clone, Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SinkError {
    /// The reader has closed its end of the pipe. The daemon stops cleanly.
    #[error("the reader has closed the pipe")]
    Closed,
    /// The target refused the event. The same events are offered again after a wait.
    #[error("{message}")]
    Refused {
        /// A description of the failure for an operator. Contains no body and no secret.
        message: String,
        /// The wait that the target asked for.
        retry_after: Option<Duration>,
        /// The cause. If the target is the cause, the problem may be temporary, as with an HTTP status of 503.
        fault: Fault,
    },
    /// The target cannot be reached or used for any event. No event becomes a dead letter. The same events are offered again
    /// after a wait.
    #[error("{message}")]
    Unavailable {
        /// A description of the failure for an operator. Contains no body and no secret.
        message: String,
        /// The cause: the target or an operator.
        fault: Fault,
    },
    /// The target has said that it wants no more events. Nothing is offered until an operator resumes the sink.
    #[error("{0}")]
    Gone(String),
    /// Another instance has taken this lane over. The lane ends, and the lease of its channel counts as lost.
    #[error("{0}")]
    Overtaken(String),
    /// The sink's position differs from the position that it confirmed last: the target was restored, or another program
    /// has changed it. The lane asks for the position again before it delivers.
    #[error("{0}")]
    Displaced(String),
    /// An error of the operating system. The same events are offered again after a wait.
    #[error("{doing}")]
    Io {
        /// The operation that failed, and its object.
        doing: String,
        /// The error of the operating system.
        #[source]
        source: Arc<std::io::Error>,
    },
}

impl SinkError {
    /// The name of the variant, in snake case.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// The target is unavailable, and is expected to recover without help.
    pub fn away(message: String) -> Self {
        Self::Unavailable { message, fault: Fault::Target }
    }

    /// The target cannot be used until an operator acts.
    fn unusable(message: String) -> Self {
        Self::Unavailable { message, fault: Fault::Operator }
    }

    /// The target refuses an event, and will refuse it until an operator acts.
    pub fn refused(message: String) -> Self {
        Self::Refused { message, retry_after: None, fault: Fault::Event }
    }

    /// An operating system error during an operation.
    pub fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { doing: doing.into(), source: Arc::new(source) }
    }

    /// The cause.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Refused { fault, .. } | Self::Unavailable { fault, .. } => *fault,
            // A full disk stays full until an operator acts. Descriptors and memory become free again.
            Self::Io { source, .. } => match Shortage::of(&**source) {
                Some(Shortage::Descriptors | Shortage::Memory) => Fault::Target,
                Some(Shortage::Space) | None => Fault::Operator,
            },
            Self::Closed | Self::Gone { .. } => Fault::Operator,
            // The lane requests the position again, and then continues without an operator.
            Self::Displaced { .. } => Fault::Target,
            Self::Overtaken { .. } => Fault::Instance,
        }
    }

    /// Whether an operator must act.
    pub fn needs_attention(&self) -> bool {
        matches!(self.fault(), Fault::Event | Fault::Operator)
    }
}

/// The description of a target, with the warning of [`Sink::early_ack`].
fn with_warning(said: String, early_ack: Option<String>) -> String {
    match early_ack {
        Some(why) => format!("{said}; acknowledges early: {why}"),
        None => said,
    }
}

/// Runs blocking work off the async threads. If the work panics, the panic continues in the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work).await).await
}
