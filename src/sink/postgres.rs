//! PostgreSQL: one row for each event, each event exactly once.
//!
//! ```text
//! deliver ──► writer ──► insert       one statement: the lane's position, and up to 200 rows
//! resume ──────────────► claim        one statement: the lane's position, and which pending events have a row
//!                           │
//! pool, table ◄─────────────┘         connections; the state of the tables, and the SQL that completes them
//! ```
//!
//! # Invariants
//!
//! * **Durable before `Ok`.** A batch counts as delivered when the server has answered that its last rows are committed,
//!   with the durability that the role's `synchronous_commit` specifies. All earlier rows are then at least as durable.
//! * **Rows and position in one statement.** The statement is its own transaction. So it works through a pooler, and an
//!   instance that is stopped in the middle locks nothing. If the answer is lost, the lane reads the position again.
//! * **Compared in the statement.** It writes only if the table has the expected position of the lane and no later claim of
//!   it. The next statement detects a database that was restored, or a standby that was promoted without the last commits. A
//!   statement that delivers never adds the lane's row: a missing row is a missing position.
//! * **An unavailable database is waited for.** Only an error of one event is a refusal, and only this event is refused.
//!
//! # Cancellation
//!
//! A statement that is not awaited to its end may still be executed. Its connection is closed.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::table::{with_size, without_row};
use super::{Delivery, LaneRef, Oldest, Position, Recorded, Resumed, Sink, SinkError, Undelivered};
use proof::event::{ChannelId, EventKey};

mod cells;
mod database;
mod jsonb;
mod pool;
mod refusal;
mod statements;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use database::Postgres;

use refusal::{Detail, Refusal};
use writer::Writer;

/// The most events that one query looks up. It is bounded because a lane must not wait long for the connection.
const LOOKED_FOR_AT_ONCE: usize = 1_000;

/// The most events in one delivery, which the ledger records as one.
const AT_ONCE: usize = 2_000;

#[async_trait]
impl Sink for Postgres {
    /// Claims the lane in the table, so that an older claim can no longer write.
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        self.take_over(recorded).await
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let found = async {
            let connection = self.pool.borrow_unprepared().await?;
            self.row_of(&connection, lane).await
        };
        match found.await {
            Ok((position, _)) => Ok(position),
            Err(Refusal { detail: Detail::NoTable, .. }) => Ok(Position::Missing(without_row(&self.progress_name()))),
            Err(refusal) => Err(refusal.error),
        }
    }

    async fn oldest(&self, channel: ChannelId) -> Result<Oldest, SinkError> {
        match self.first(channel).await {
            Err(Refusal { detail: Detail::NoTable, .. }) => Ok(Oldest::Nothing),
            first => Ok(first?),
        }
    }

    async fn holds(&self, channel: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        let keys: Vec<_> = keys.iter().copied().collect();
        let mut held = BTreeSet::new();
        for keys in keys.chunks(LOOKED_FOR_AT_ONCE) {
            held.extend(self.with_rows(channel, keys).await?);
        }
        Ok(held)
    }

    async fn probe(&self) -> Result<String, SinkError> {
        self.pool.probe().await
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let connection = self.pool.borrow().await.map_err(|error| Undelivered::after(0, error))?;
        let written = Writer::new(self, &connection, delivery).write().await;
        written.map_err(|undelivered| with_size(undelivered, delivery.messages))
    }
}
