//! SQLite: one row for each event, in one file, each event exactly once.
//!
//! ```text
//! deliver ─┐  makes rows while the writer writes earlier rows
//! resume ──┴─► writer ──► database     one thread and one connection for all lanes: their rows share transactions
//!                └──────► upkeep       deletes rows that exceed keep_for or keep_size
//! feed ────────► reader                a connection that only reads; leases and commits go to the writer
//! ```
//!
//! # Invariants
//!
//! * **Synced before `Ok`.** A batch counts as delivered when its transaction is on the disk: `synchronous = FULL`.
//! * **Rows and position together.** One transaction writes the rows and the position of a lane. It writes only if the
//!   table has the expected position. So the next delivery detects a database that was restored. An event that has a row is
//!   skipped when it is offered again.
//! * **Readable while written.** The database uses write-ahead logging: readers and the writer do not block each other.
//! * **The open file is the file at the path.** If the file was moved or replaced, the rows in its write-ahead log are
//!   first written into that file, and that file is closed. Only then is the new file at the path opened. See [`files`].
//!
//! # Cancellation
//!
//! A transaction that has started is always completed, even if nothing awaits it any more.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;

use super::settings::SqliteSettings;
use super::table::{Row, RowLimit, next_rows, with_size};
use super::{
    Delivery, LaneRef, Oldest, Position, Recorded, Resumed, Sink, SinkError, Undelivered, blocking, with_warning,
};
use crate::feed::FeedTable;
use crate::system::early_ack;
use proof::event::{ChannelId, EventKey};
use record::Message;
use telemetry::metrics::UpkeepFailures;

mod connections;
mod database;
mod error;
mod feed;
mod files;
mod lane;
mod probe;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod upkeep;
mod writer;

use database::Database;
use feed::{FeedReader, SqliteFeed};
use lane::Work;
use writer::Writer;

/// The largest number of events in one delivery. The ledger records a delivery with a single commit.
const AT_ONCE: usize = 2_000;

/// How much of one lane is written in one transaction. Each transaction writes the changed pages of the indexes and waits for the
/// disk, so a large transaction costs less for each row. Two of them fit into the largest delivery: while one is written, the rows
/// of the next are made.
const AT_ONCE_IN_TRANSACTION: RowLimit = RowLimit { rows: AT_ONCE / 2, bytes: 8 << 20 };

/// Writes events into a table, shared by any number of channels.
pub(crate) struct Sqlite {
    writing: Arc<Writing>,
    feed: Option<Arc<SqliteFeed>>,
}

/// The writer, which the lanes and the feed share.
struct Writing {
    settings: Arc<SqliteSettings>,
    failures: UpkeepFailures,
    /// The writer, started at the first use.
    writer: OnceLock<Writer>,
    reader: Arc<FeedReader>,
    /// Changes after each transaction that may have written rows.
    changes: watch::Sender<u64>,
}

impl Sqlite {
    /// Makes a sink. At the first use, the sink opens the database, or creates it in an existing directory. `failures` counts
    /// failed upkeep.
    pub(crate) fn new(settings: SqliteSettings, failures: UpkeepFailures) -> Self {
        let settings = Arc::new(settings);
        let writing = Arc::new_cyclic(|writing| Writing {
            reader: Arc::new(FeedReader::new(settings.clone(), writing.clone())),
            settings,
            failures,
            writer: OnceLock::new(),
            changes: watch::Sender::default(),
        });
        let feed = writing.settings.feed.then(|| Arc::new(SqliteFeed::new(&writing)));
        Self { writing, feed }
    }

    /// Runs work that opens another connection, off the async threads.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SqliteSettings) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        self.writing.close_changed().await?;
        let settings = self.writing.settings.clone();
        blocking(move || work(&settings)).await
    }
}

impl Writing {
    /// The writer. If two lanes start one at the same time, one of the two writers is kept, and no work reaches the other.
    fn writer(&self) -> Result<&Writer, SinkError> {
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let database = Database::new(self.settings.clone(), self.failures.clone(), self.reader.clone());
        let started = Writer::start(database)?;
        Ok(self.writer.get_or_init(|| started))
    }

    /// Closes the writer's database if the path leads to another file. Must be called before another connection is opened:
    /// otherwise SQLite would use the writer's log for the other file, and could truncate the log's index, which the writer has
    /// mapped.
    async fn close_changed(&self) -> Result<(), SinkError> {
        let Some(writer) = self.writer.get() else { return Ok(()) };
        writer.use_database(Database::close_changed).await
    }
}

#[async_trait]
impl Sink for Sqlite {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        self.writing.writer()?.carry_out(Work::Resume(recorded.clone())).await.map_err(|undelivered| undelivered.error)
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let lane = lane.clone();
        self.read(move |settings| read::position(settings, &lane)).await
    }

    async fn oldest(&self, channel: ChannelId) -> Result<Oldest, SinkError> {
        self.read(move |settings| read::oldest(settings, channel)).await
    }

    async fn holds(&self, channel: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        let keys = keys.clone();
        self.read(move |settings| read::holds(settings, channel, &keys)).await
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let said = self.read(probe::probe).await?;
        Ok(with_warning(said, self.early_ack().await))
    }

    async fn early_ack(&self) -> Option<String> {
        early_ack(self.writing.settings.path.clone()).await
    }

    async fn reopen(&self) -> Result<(), SinkError> {
        let Some(writer) = self.writing.writer.get() else { return Ok(()) };
        writer.use_database(Database::reopen).await
    }

    fn feed(&self) -> Option<Arc<dyn FeedTable>> {
        Some(self.feed.clone()?)
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let messages = delivery.messages;
        let writer = self.writing.writer().map_err(|error| Undelivered::after(0, error))?;
        let has_operations = self.writing.settings.operations;
        let make = |message: &Message, delivered: Timestamp| Row::of(message, delivered, has_operations);
        let mut next = next_rows(messages, 0, AT_ONCE_IN_TRANSACTION, make).await;
        let mut after = delivery.after;
        while let Some((place, rows)) = next {
            let through = delivery.through_part(&place);
            let (lane, epoch) = (delivery.lane.clone(), delivery.epoch);
            let work = Work::Deliver { lane, epoch, after, through, rows };
            // The next part is made while this one is written.
            let making = next_rows(messages, place.end, AT_ONCE_IN_TRANSACTION, make);
            let (written, made) = tokio::join!(writer.carry_out(work), making);
            // If a row was refused, the rows before it may have been written.
            self.writing.changes.send_modify(|changes| *changes += 1);
            written.map_err(|Undelivered { delivered, error, .. }| {
                with_size(Undelivered::after(place.start + delivered, error), messages)
            })?;
            after = after.max(Some(through));
            next = made;
        }
        Ok(())
    }
}
