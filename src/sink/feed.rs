//! Reads the rows of a table in the order of delivery, and stores how far each consumer has processed them.
//!
//! A row's *position* is the number of its event in the order in which the channel's events were delivered to the table. A
//! late delivery therefore has a higher position than the events that were delivered before it.
//!
//! # Invariants
//!
//! * **Nothing is skipped.** If a reader can read position P, it can read every row with a lower position. Rows become
//!   readable in the order of their positions, and only when they are on the disk of the database.
//! * **One lease.** At any time, at most one lease of a consumer and channel is valid. One statement takes it, and the clock of
//!   the database decides when it expires.
//! * **A cursor moves by a commit.** Only the holder of a valid lease moves the cursor, and only over the events of the lease. An
//!   operator can set any cursor.
//! * **No cursor is overtaken.** After a table was restored, cursors can be above its newest position. Whatever gives positions to
//!   rows moves these cursors back in the same transaction, and ends their leases. The exception is an instance that does not serve the
//!   feed and whose PostgreSQL role may not change the table of consumers: it delivers, and logs a warning.
//!
//! # Cancellation
//!
//! If the future of a lease or a commit is dropped, the lease may have been taken, or the cursor may have moved.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use super::SinkError;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod lease;

/// The feed of one table.
#[async_trait]
pub trait FeedTable: Send + Sync + 'static {
    /// The oldest and the newest position of a channel.
    async fn newest(&self, channel: Uuid) -> Result<FeedPosition, FeedError>;

    /// The first events of a channel after a position, in order.
    async fn page(&self, channel: Uuid, after: i64, most: PageSize) -> Result<FeedPage, FeedError>;

    /// Leases the next events after the consumer's cursor. A consumer without a cursor begins with the oldest event.
    async fn lease(&self, consumer: &str, channel: Uuid, most: PageSize, valid: Duration) -> Result<Leased, FeedError>;

    /// Moves the consumer's cursor to `through`, and ends the lease.
    async fn commit(&self, consumer: &str, channel: Uuid, lease: &str, through: i64) -> Result<Committed, FeedError>;

    /// The cursors of all consumers, in the order of their names.
    async fn consumers(&self) -> Result<Vec<ConsumerState>, FeedError>;

    /// The positions of all channels that have rows or had rows. One request, however many channels there are.
    async fn channels(&self) -> Result<Vec<ChannelPosition>, FeedError>;

    /// Sets a consumer's cursor for an operator, and ends the consumer's lease.
    async fn set_cursor(&self, consumer: &str, channel: Uuid, through: i64) -> Result<(), FeedError>;

    /// Changes whenever a channel may have new events. Must be called within a runtime.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// The positions of a channel that can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedPosition {
    /// The position of the oldest row. If all rows were deleted, this is the position after `newest`. `None` if the channel
    /// never had a row.
    pub oldest: Option<i64>,
    /// The newest position. 0 if the channel never had a row.
    pub newest: i64,
}

impl FeedPosition {
    /// The positions of a channel whose oldest row has this position.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn of(oldest: Option<i64>, newest: i64) -> Self {
        Self { oldest: (newest > 0).then(|| oldest.unwrap_or(newest + 1)), newest }
    }

    /// The position after which a reader receives all events that remain.
    pub fn before_oldest(&self) -> i64 {
        self.oldest.map_or(0, |oldest| oldest - 1)
    }
}

/// The maximum size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// The maximum number of events.
    pub events: usize,
    /// The maximum number of bytes of the records. A single record can be longer.
    pub bytes: usize,
}

/// The events of a channel directly after a position, in order. Between two events of a page, no event was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedPage {
    /// The events. Empty if the channel has no later event, or if `gone` is set.
    pub events: Vec<FeedEvent>,
    /// If the event directly after the position was deleted: the position of the first event that remains after it. The page then
    /// has no events.
    pub gone: Option<i64>,
    /// The positions of the channel at the time of the page.
    pub position: FeedPosition,
}

impl FeedPage {
    /// Makes a page of the first rows after the position `after`. The page ends where a row was deleted.
    pub fn of(after: i64, mut events: Vec<FeedEvent>, position: FeedPosition) -> Self {
        let dense = events.iter().zip(after.saturating_add(1)..).take_while(|(event, next)| event.position == *next);
        let dense = dense.count();
        let next = events.first().map_or(position.newest + 1, |first| first.position);
        events.truncate(dense);
        let gone = (dense == 0 && after < position.newest).then_some(next);
        Self { events, gone, position }
    }
}

/// An event with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// The position.
    pub position: i64,
    /// The delivered record, byte for byte.
    pub record: Box<str>,
}

/// The answer to a request for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leased {
    /// The events of a new lease.
    Events {
        /// Identifies the lease.
        lease: String,
        /// How long the lease is valid.
        expires_in: Duration,
        /// The events after the cursor. Never empty.
        events: Vec<FeedEvent>,
    },
    /// The channel has no event after the cursor.
    Nothing,
    /// Another lease of this consumer and channel is valid.
    Held,
    /// The event after the cursor was deleted.
    Gone {
        /// The position of the first event that remains after the cursor.
        oldest: i64,
    },
}

/// The answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The cursor has moved, and the lease has ended.
    Moved,
    /// The lease is unknown or has expired. Nothing was changed.
    NotHeld,
    /// The position is not one of the leased events. Nothing was changed.
    Beyond,
}

/// The cursor of a consumer in one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerState {
    /// The name of the consumer.
    pub consumer: String,
    /// The id of the channel.
    pub channel: Uuid,
    /// The position of the last event that the consumer has committed.
    pub through: i64,
    /// The end of the lease. `None` if no lease is valid.
    pub leased_until: Option<Timestamp>,
    /// When the first row after the cursor was delivered. `None` if no row follows the cursor.
    pub waiting_since: Option<Timestamp>,
    /// Whether the event directly after the cursor was deleted.
    pub is_gone: bool,
}

/// The positions of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelPosition {
    /// The id of the channel.
    pub channel: Uuid,
    /// Its positions.
    pub position: FeedPosition,
    /// When the oldest row was delivered. `None` if the channel has no row.
    pub oldest_since: Option<Timestamp>,
}

/// Why a request to the table failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FeedError {
    /// The table cannot be used now.
    #[error(transparent)]
    Table(#[from] SinkError),
    /// The cursor was not set, because it would skip events that do not exist yet.
    #[error("position {through} is above {newest}, the newest position of the channel")]
    TooHigh {
        /// The position that was requested.
        through: i64,
        /// The newest position.
        newest: i64,
    },
}
