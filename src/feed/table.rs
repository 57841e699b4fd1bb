//! The table that the feed reads: its events in order of delivery, and the cursors of its consumers.
//!
//! # Invariants
//!
//! * **Positions are dense and never change.** The events of a channel have the positions 1, 2, 3, and so on, in order of delivery.
//!   A position is never used for another event, even after the oldest rows were deleted.
//! * **The database's clock decides** when a lease expires.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

/// The events after a position, in order.
#[derive(Clone, Debug, Default)]
pub struct FeedPage {
    /// The events. Without gaps, and empty only if no event has a higher position.
    pub events: Vec<FeedEvent>,
    /// The oldest row of the channel. `None` if the table has no row of the channel.
    pub oldest: Option<i64>,
    /// The newest position that was ever assigned, even if its row was deleted. 0 if none was assigned.
    pub newest: i64,
}

/// An event of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// Its position in the channel.
    pub position: i64,
    /// The delivered JSON object.
    pub record: Box<str>,
}

/// The oldest and the newest position of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedPosition {
    /// The oldest row. `None` if the table has no row of the channel.
    pub oldest: Option<i64>,
    /// The newest position that was ever assigned, even if its row was deleted. 0 if none was assigned.
    pub newest: i64,
}

/// The answer to a request for a lease.
#[derive(Clone, Debug)]
pub enum Leased {
    /// The next events, which only the holder of the lease can commit.
    Events {
        /// Identifies the lease.
        lease: String,
        /// How long the lease is valid.
        expires_in: Duration,
        /// At least one event.
        events: Vec<FeedEvent>,
    },
    /// The consumer has processed every event.
    Nothing,
    /// Another lease of this consumer and channel is valid.
    Held,
    /// The row after the consumer's cursor was deleted.
    Gone {
        /// The lowest position that can be read.
        oldest: i64,
    },
}

/// The answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The cursor was moved, and the lease has ended.
    Moved,
    /// The lease is unknown or has expired.
    NotHeld,
    /// The position is not one of the leased events. The lease is still valid.
    Beyond,
}

/// The cursor of a consumer in one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerState {
    /// The name of the consumer.
    pub consumer: String,
    /// The channel.
    pub channel: Uuid,
    /// The position of the last event that the consumer has processed.
    pub through: i64,
    /// When its lease expires. `None` without a lease.
    pub leased_until: Option<Timestamp>,
}

/// Why the table could not be read or written. Another attempt may succeed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FeedError(#[from] pub Box<dyn Error + Send + Sync>);

/// A table of a sink.
#[async_trait]
pub trait FeedTable: Send + Sync + 'static {
    /// Returns the positions of a channel.
    async fn newest(&self, channel: Uuid) -> Result<FeedPosition, FeedError>;

    /// Returns at most `limit` events after a position. Their records together have at most `max_bytes` bytes, except that the first
    /// event is always returned.
    async fn page(&self, channel: Uuid, after: i64, limit: usize, max_bytes: usize) -> Result<FeedPage, FeedError>;

    /// Leases the events after the consumer's cursor, with the same limits as for a page. A consumer without a cursor begins with the
    /// oldest event. A lease that was granted and not received expires.
    async fn lease(
        &self,
        consumer: &str,
        channel: Uuid,
        limit: usize,
        max_bytes: usize,
        valid: Duration,
    ) -> Result<Leased, FeedError>;

    /// Moves the consumer's cursor, and ends the lease.
    async fn commit(&self, consumer: &str, channel: Uuid, lease: &str, through: i64) -> Result<Committed, FeedError>;

    /// Returns the cursors of all consumers.
    async fn consumers(&self) -> Result<Vec<ConsumerState>, FeedError>;

    /// Sets a consumer's cursor, and ends its lease.
    async fn set_cursor(&self, consumer: &str, channel: Uuid, through: i64) -> Result<(), FeedError>;

    /// A number that changes after a channel has received new rows.
    fn changes(&self) -> watch::Receiver<u64>;
}
