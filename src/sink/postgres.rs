//! PostgreSQL: a row an event, each event exactly once.
//!
//! ```text
//! deliver ──► writer ──► insert       one statement: the lane's position, and up to 200 rows
//! resume ──────────────► claim        one statement: the lane's position, and which late events are there
//!                           │
//! pool, table ◄─────────────┘         connections; what the database has, and the SQL for what it lacks
//! ```
//!
//! # Invariants
//!
//! * **Durable before `Ok`.** A batch counts as delivered when the server has answered that its last rows are committed, as
//!   durably as `synchronous_commit` has it for the role. Those before them are then no less durable.
//! * **Rows and position in one statement,** which is a transaction of its own: it works through a pooler, and an instance
//!   that is stopped in the middle locks nothing. Where the answer is lost, the same is written again, and changes nothing.
//! * **Fenced in the statement.** It writes only where the table knows of no later claim of the channel.
//! * **A database that is away is waited for.** Only what is wrong with one event is a refusal, and of that event alone.
//!
//! # Cancellation
//!
//! Statements that are not awaited to their end may still be carried out. Their connection is closed.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::table::{overtaken, with_size};
use super::{Delivery, LaneRef, Recorded, Resumed, Sink, SinkError, Undelivered};
use crate::event::Offset;
use crate::postgres::bigint;

mod cells;
mod jsonb;
mod pool;
mod refusal;
mod settings;
mod statements;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use settings::PostgresSettings;

use cells::Parameter;
use pool::Pool;
use refusal::Failure;
use statements::Statements;
use writer::Writer;

/// Events offered at once, which the ledger records as one.
const AT_ONCE: usize = 2_000;

/// Writes events into a table, shared by any number of channels and instances.
pub struct Postgres {
    settings: Arc<PostgresSettings>,
    statements: Statements,
    pool: Pool,
}

impl Postgres {
    /// The sink of this name. Nothing is connected yet.
    ///
    /// # Errors
    /// If no certificate can be checked.
    pub fn new(name: &str, settings: PostgresSettings) -> Result<Self, SinkError> {
        let settings = Arc::new(settings);
        let (statements, pool) = (Statements::of(&settings), Pool::new(name, settings.clone())?);
        Ok(Self { settings, statements, pool })
    }

    fn check_claim(&self, lane: &LaneRef, epoch: u64, is_ours: bool) -> Result<(), Failure> {
        if is_ours { Ok(()) } else { Err(Failure::Overtaken(overtaken(lane, epoch, &self.settings.progress()))) }
    }

    async fn claim(&self, lane: &Recorded) -> Result<BTreeSet<Offset>, Failure> {
        let (channel, sink) = (lane.lane.channel.id.0, &*lane.lane.sink);
        let (through, epoch) = (lane.through.map(Offset::get), bigint(lane.epoch));
        let owed: Vec<_> = lane.owed.iter().map(|key| key.offset.get()).collect();
        let parameters: [Parameter<'_>; 5] = [
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&epoch as _, Type::INT8),
            (&owed as _, Type::INT8_ARRAY),
        ];
        let rows = self.pool.borrow().await?.query(&self.statements.claim, &parameters).await?;
        let found = rows.first().and_then(|row| row.get::<_, Option<Vec<i64>>>(0));
        self.check_claim(&lane.lane, lane.epoch, found.is_some())?;
        Ok(found.unwrap_or_default().into_iter().filter_map(Offset::new).collect())
    }
}

#[async_trait]
impl Sink for Postgres {
    /// Claims the lane in the table, so that an older claim writes no more. What is there is offered again, and passed over.
    async fn resume(&self, lane: &Recorded) -> Result<Resumed, SinkError> {
        let held = self.claim(lane).await.map_err(Failure::error)?;
        Ok(Resumed { held: lane.keys_at(held), ..Resumed::default() })
    }

    async fn probe(&self) -> Result<String, SinkError> {
        self.pool.probe().await.map_err(Failure::error)
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let connection = self.pool.borrow().await.map_err(|failure| Undelivered::after(0, failure.error()))?;
        let written = Writer::new(self, &connection, delivery).write().await;
        written.map_err(|undelivered| with_size(undelivered, delivery.messages))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &self.settings.server.place()).finish_non_exhaustive()
    }
}
