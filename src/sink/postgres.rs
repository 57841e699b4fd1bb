//! PostgreSQL: a row an event, each event exactly once.
//!
//! ```text
//! deliver ──► rows ──► insert.sql     one statement: the lane's position, and its rows
//! resume ───► claim.sql               the lane's position alone, and which late events are there
//!                │
//! pool, table ◄──┘                    connections; what the database has, and the SQL for what it lacks
//! ```
//!
//! # Invariants
//!
//! * **Committed before `Ok`.** A batch counts as delivered when the server has answered that it is committed.
//! * **Rows and position in one statement,** which is a transaction of its own: it works through a pooler, and an instance
//!   that is stopped in the middle locks nothing. Where the answer is lost, the same is written again, and changes nothing.
//! * **Fenced in the statement.** It writes only where the table knows of no later claim of the channel.
//! * **A database that is away is waited for.** Only what is wrong with one event is a refusal, and of that event alone.
//!
//! # Cancellation
//!
//! A statement that is not awaited to its end may still be carried out.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tokio_postgres::types::Type;

use super::table::{Parts, Row, overtaken, with_size};
use super::{Delivery, LaneRef, Recorded, Sink, SinkError, Undelivered};
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

pub use settings::PostgresSettings;

use cells::Parameter;
use pool::Pool;
use refusal::Failure;
use statements::Statements;

/// Events offered at once, which the ledger records as one.
const AT_ONCE: usize = 1_000;

/// The most rows of one transaction.
const ROWS: usize = 200;

/// Rows of more bytes than this are written by several statements.
const AT_ONCE_BYTES: usize = 8 << 20;

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

    /// Writes rows of one lane, with its position.
    async fn insert(&self, delivery: &Delivery<'_>, through: Offset, rows: &[Row]) -> Result<(), Failure> {
        let columns = cells::columns(rows);
        let (channel, sink) = (delivery.lane.channel.id.0, &*delivery.lane.sink);
        let (through, epoch) = (through.get(), bigint(delivery.epoch));
        let note = json!({"channel": &*delivery.lane.channel.name, "sink": sink, "through": through}).to_string();
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&epoch as _, Type::INT8),
        ];
        parameters.extend(columns.iter().map(|(column, kind)| (column as _, kind.clone())));
        if let Some(notified) = &self.settings.notify {
            parameters.extend([(notified as _, Type::TEXT), (&note as _, Type::TEXT)] as [Parameter<'_>; 2]);
        }
        let answer = self.pool.query(&self.statements.insert, &parameters).await?;
        self.check_claim(delivery.lane, delivery.epoch, answer.first().is_some_and(|row| row.get::<_, i64>(0) > 0))
    }

    /// Writes the rows of the messages from this place on: in one statement, if all of them are taken.
    async fn write(&self, delivery: &Delivery<'_>, first: usize, mut rows: Vec<Row>) -> Result<(), Undelivered> {
        // Written one after the other, the first one last in here.
        let mut pieces = pieces(&rows);
        while let Some(piece) = pieces.pop() {
            let through = delivery.through_part(&(first + piece.start..first + piece.end));
            match self.insert(delivery, through, &rows[piece.clone()]).await {
                Ok(()) => {}
                // One of them is refused: which one shows when each half is written alone.
                Err(Failure::Event { .. }) if piece.len() > 1 => {
                    let middle = piece.start + piece.len() / 2;
                    pieces.extend([middle..piece.end, piece.start..middle]);
                }
                Err(Failure::Event { is_json: true, .. }) if cells::forgo_json(&mut rows[piece.start]) => {
                    pieces.push(piece);
                }
                Err(failure) => return Err(Undelivered::after(first + piece.start, failure.error())),
            }
        }
        Ok(())
    }

    fn check_claim(&self, lane: &LaneRef, epoch: u64, is_ours: bool) -> Result<(), Failure> {
        if is_ours { Ok(()) } else { Err(Failure::Overtaken(overtaken(lane, epoch, &self.settings.progress()))) }
    }

    async fn claim(&self, lane: &Recorded) -> Result<BTreeSet<Offset>, Failure> {
        let (channel, sink) = (lane.lane.channel.id.0, &*lane.lane.sink);
        let (through, epoch) = (lane.through.map(Offset::get), bigint(lane.epoch));
        let owed: Vec<_> = lane.owed.iter().map(|offset| offset.get()).collect();
        let parameters: [Parameter<'_>; 5] = [
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&epoch as _, Type::INT8),
            (&owed as _, Type::INT8_ARRAY),
        ];
        let rows = self.pool.query(&self.statements.claim, &parameters).await?;
        let found = rows.first().and_then(|row| row.get::<_, Option<Vec<i64>>>(0));
        self.check_claim(&lane.lane, lane.epoch, found.is_some())?;
        Ok(found.unwrap_or_default().into_iter().filter_map(Offset::new).collect())
    }
}

#[async_trait]
impl Sink for Postgres {
    /// Claims the lane in the table, so that an older claim writes no more. What is there is offered again, and passed over.
    async fn resume(&self, lane: &Recorded) -> Result<BTreeSet<Offset>, SinkError> {
        self.claim(lane).await.map_err(Failure::error)
    }

    async fn probe(&self) -> Result<String, SinkError> {
        self.pool.probe().await.map_err(Failure::error)
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let mut parts = Parts::of(delivery.messages, ROWS, cells::row);
        while let Some((place, rows)) = parts.next().await {
            let written = self.write(delivery, place.start, rows).await;
            written.map_err(|undelivered| with_size(undelivered, delivery.messages))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &self.settings.server.place()).finish_non_exhaustive()
    }
}

/// Which rows go into one statement: the last ones first.
fn pieces(rows: &[Row]) -> Vec<Range<usize>> {
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let more = cells::bytes(row);
        if at > start && bytes + more > AT_ONCE_BYTES {
            pieces.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += more;
    }
    pieces.push(start..rows.len());
    pieces.reverse();
    pieces
}
