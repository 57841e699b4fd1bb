//! PostgreSQL: one row for each event, each event exactly once.
//!
//! ```text
//! deliver ──► writer ──► insert       one statement: the lane's position, and up to 500 rows
//! resume ──────────────► claim        one statement: the lane's position, and which pending events have a row
//!                           │
//! pool, table ◄─────────────┘         connections; the state of the tables, and the SQL that adds what they lack
//! feed                                reads events and leases them to consumers, with connections of its own
//! ```
//!
//! # Invariants
//!
//! * **Durable before `Ok`.** A batch counts as delivered when the server has answered that its last rows are committed,
//!   with the durability that the role's `synchronous_commit` specifies. All earlier rows are then at least as durable.
//! * **Rows and position in one statement.** The statement is its own transaction. So the sink works through a pooler, and
//!   an instance that is stopped in the middle locks nothing. If the answer is lost, the lane reads the position again.
//! * **The statement compares the position.** It writes only if the table has the expected position of the lane and no later
//!   claim of the lane. So the next statement detects a database that was restored, or a standby that was promoted without
//!   the last commits. A statement that delivers never inserts the lane's row into the table of
//!   positions. If this row is gone, the lane therefore notices that its position is missing.
//! * **An unavailable database refuses no event.** Only an error that one event causes is a refusal, and only this event is
//!   refused. If the table refuses other rows too, every event waits (see `writer`).
//!
//! # Cancellation
//!
//! A statement that is not awaited to its end may still be executed. Its connection is closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_postgres::Row;
use uuid::Uuid;

use super::settings::PostgresSettings;
use super::table::{overtaken, with_size, without_row};
use super::{Delivery, LaneRef, Oldest, Position, Recorded, Resumed, Sink, SinkError, Undelivered};
use crate::feed::FeedTable;
use net::postgres::bigint;
use proof::event::{ChannelId, EventId, EventKey, Offset};

mod cells;
mod effort;
mod ends;
mod feed;
mod insert;
mod pool;
mod refusal;
mod rehearsal;
mod statements;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use ends::{ENDS_TEXT, ends_query, ends_vector};

use cells::parameters;
use feed::PostgresFeed;
use insert::number;
use pool::{Borrowed, Pool};
use refusal::{Detail, StatementRefusal};
use statements::Statements;
use writer::Writer;

/// The maximum number of events that one query looks up. The limit is low enough that other lanes do not wait long for the
/// connection.
const LOOKED_FOR_AT_ONCE: usize = 1_000;

/// The maximum number of events in one delivery. The ledger records a delivery with one commit.
const AT_ONCE: usize = 2_000;

/// Writes events into a table, shared by any number of channels and instances.
pub(crate) struct Postgres {
    pool: Pool,
    feed: Option<Arc<PostgresFeed>>,
    /// Changes after each delivery.
    changes: watch::Sender<u64>,
}

impl Postgres {
    /// Makes the sink with this name. The sink connects at the first use. Fails if the verification of server certificates
    /// cannot be set up.
    pub(crate) fn new(name: &str, settings: PostgresSettings) -> Result<Self, SinkError> {
        let changes = watch::Sender::default();
        let feed = settings.feed.then(|| PostgresFeed::new(name, settings.clone(), changes.clone())).transpose()?;
        Ok(Self { pool: Pool::new(name, settings)?, feed: feed.map(Arc::new), changes })
    }
}

#[async_trait]
impl Sink for Postgres {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let connection = self.pool.borrow().await?;
        let (mut resumed, is_numbered) = take_over(&connection, recorded).await?;
        if !is_numbered && let Position::At(_) = resumed.position {
            number(&connection, recorded.lane.channel.id).await?;
        }
        if let Some((above, to)) = recorded.unrecorded(&resumed.position) {
            let parameters = parameters![recorded.lane.channel.id.0 => UUID, above => INT8, to => INT8];
            let rows = connection.query(&self.pool.statements.between, &parameters).await?;
            resumed.held.extend(rows.iter().filter_map(key_of));
        }
        let late = recorded.late_in_doubt(&resumed.position);
        if !late.is_empty() {
            resumed.lost = &late - &held_of(&connection, recorded.lane.channel.id, &late).await?;
        }
        Ok(resumed)
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let connection = self.pool.borrow_unprepared().await?;
        match connection.row_of(lane).await {
            Ok((position, _)) => Ok(position),
            Err(StatementRefusal { detail: Detail::NoTable, .. }) => {
                Ok(Position::Missing(without_row(&self.pool.settings.progress_name())))
            }
            Err(refusal) => Err(refusal.error),
        }
    }

    async fn oldest(&self, channel: ChannelId) -> Result<Oldest, SinkError> {
        match oldest(&self.pool.borrow_unprepared().await?, channel).await {
            Ok(oldest) => Ok(oldest),
            Err(StatementRefusal { detail: Detail::NoTable, .. }) => Ok(Oldest::Nothing),
            Err(refusal) => Err(refusal.error),
        }
    }

    async fn holds(&self, channel: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        let keys: Vec<_> = keys.iter().copied().collect();
        let mut held = BTreeSet::new();
        for keys in keys.chunks(LOOKED_FOR_AT_ONCE) {
            held.extend(held_of(&self.pool.borrow_unprepared().await?, channel, keys).await?);
        }
        Ok(held)
    }

    async fn probe(&self) -> Result<String, SinkError> {
        self.rehearse(&[]).await
    }

    async fn early_ack(&self) -> Option<String> {
        self.pool.early_ack()
    }

    async fn rehearse(&self, samples: &[Delivery<'_>]) -> Result<String, SinkError> {
        rehearsal::rehearse(&self.pool, samples).await
    }

    fn feed(&self) -> Option<Arc<dyn FeedTable>> {
        Some(self.feed.clone()?)
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let connection = self.pool.borrow().await.map_err(|error| Undelivered::after(0, error))?;
        let written = Writer::new(&connection, delivery).write().await;
        // If a row was refused, the rows before it may have been written.
        self.changes.send_modify(|changes| *changes += 1);
        written.map_err(|undelivered| with_size(undelivered, delivery.messages))
    }
}

/// Takes a lane over and reads its position. Also returns whether every row of the channel has a position.
async fn take_over(connection: &Borrowed<'_>, recorded: &Recorded) -> Result<(Resumed, bool), SinkError> {
    let Recorded { lane, epoch, through, pending, confirmed, .. } = recorded;
    let Pool { settings, statements: Statements { adopt, claim, .. }, .. } = connection.pool;
    let (through, numbered) = (through.map(Offset::get), bigint(*epoch));
    let (offsets, ids) = columns(pending);
    let parameters = parameters![
        lane.channel.id.0 => UUID, &*lane.sink => TEXT, through => INT8, numbered => INT8,
        offsets => INT8_ARRAY, ids => UUID_ARRAY
    ];
    let statement = if confirmed.is_some() { claim } else { adopt };
    let rows = connection.query(statement, &parameters).await?;
    let row = rows.first().expect("an aggregate gives one row");
    let (is_ours, is_there): (bool, bool) = (row.get(0), row.get(1));
    let position = match (is_ours, is_there) {
        (true, _) => Position::At(row.get::<_, Option<i64>>(2).and_then(Offset::new)),
        (false, false) if confirmed.is_some() => Position::Missing(without_row(&settings.progress_name())),
        (false, _) => return Err(overtaken(lane, *epoch, &settings.progress())),
    };
    let (offsets, ids): (Vec<i64>, Vec<Option<Uuid>>) = (row.get(3), row.get(4));
    let has_unnumbered: bool = row.get(5);
    connection.pool.remember_cursors(row.get(6));
    let held = offsets.into_iter().zip(ids).filter_map(key).collect();
    Ok((Resumed { position, held, ..Resumed::default() }, !has_unnumbered))
}

/// The oldest event of a channel that has a row.
async fn oldest(connection: &Borrowed<'_>, channel: ChannelId) -> Result<Oldest, StatementRefusal> {
    let rows = connection.query(&connection.pool.statements.oldest, &parameters![channel.0 => UUID]).await?;
    Ok(rows.first().and_then(key_of).map_or(Oldest::Nothing, Oldest::Event))
}

/// The events in `keys` that have a row.
async fn held_of(
    connection: &Borrowed<'_>,
    channel: ChannelId,
    keys: impl IntoIterator<Item = &EventKey>,
) -> Result<BTreeSet<EventKey>, StatementRefusal> {
    let (offsets, ids) = columns(keys);
    let parameters = parameters![channel.0 => UUID, offsets => INT8_ARRAY, ids => UUID_ARRAY];
    let rows = connection.query(&connection.pool.statements.holds, &parameters).await?;
    Ok(rows.iter().filter_map(key_of).collect())
}

/// The offsets and ids of events, as the parameters of a statement.
fn columns<'k>(keys: impl IntoIterator<Item = &'k EventKey>) -> (Vec<i64>, Vec<Option<Uuid>>) {
    keys.into_iter().map(|key| (key.offset.get(), key.id.map(|id| id.0))).unzip()
}

fn key((offset, id): (i64, Option<Uuid>)) -> Option<EventKey> {
    Offset::new(offset).map(|offset| EventKey { offset, id: id.map(EventId) })
}

fn key_of(row: &Row) -> Option<EventKey> {
    key((row.get(0), row.get(1)))
}
