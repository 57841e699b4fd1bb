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
//! * **In order.** Two statements of a lane are under way at the same time, and the second writes only what follows the first.
//! * **Committed before `Ok`.** A batch counts as delivered when the server has answered that it is committed.
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
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{MaybeDone, maybe_done};
use serde_json::json;
use tokio_postgres::Error;
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
use pool::{Borrowed, Pool};
use refusal::Failure;
use statements::Statements;

/// Events offered at once, which the ledger records as one.
const AT_ONCE: usize = 2_000;

/// The most rows of one transaction.
const ROWS: usize = 200;

/// Rows of more bytes than this are written by several statements.
const AT_ONCE_BYTES: usize = 8 << 20;

/// How far a statement moves the lane's position.
#[derive(Clone, Copy)]
struct Step {
    /// It writes only where the position has reached this.
    after: Option<Offset>,
    through: Offset,
}

/// Rows that were sent, and the statement that is to write them.
struct Part<F: Future> {
    /// The place of the first one among the messages.
    first: usize,
    rows: Arc<Vec<Row>>,
    statement: Pin<Box<MaybeDone<F>>>,
}

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

    /// Sends a statement that writes rows of one lane, with its position; `true` where the lane is ours, and the position has
    /// reached what it has to.
    async fn insert(
        &self,
        connection: &Borrowed<'_>,
        delivery: &Delivery<'_>,
        Step { after, through }: Step,
        rows: &[Row],
    ) -> Result<bool, Error> {
        let columns = cells::columns(rows);
        let (channel, sink) = (delivery.lane.channel.id.0, &*delivery.lane.sink);
        let (through, epoch, after) = (through.get(), bigint(delivery.epoch), after.map(Offset::get));
        let note = json!({"channel": &*delivery.lane.channel.name, "sink": sink, "through": through}).to_string();
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&epoch as _, Type::INT8),
            (&after as _, Type::INT8),
        ];
        parameters.extend(columns.iter().map(|(column, kind)| (column as _, kind.clone())));
        if let Some(notified) = &self.settings.notify {
            parameters.extend([(notified as _, Type::TEXT), (&note as _, Type::TEXT)] as [Parameter<'_>; 2]);
        }
        let answer = connection.send(&self.statements.insert, &parameters).await?;
        Ok(answer.first().is_some_and(|row| row.get::<_, i64>(0) > 0))
    }

    /// Waits for the answer to an insert.
    async fn inserted(
        &self,
        connection: &Borrowed<'_>,
        delivery: &Delivery<'_>,
        sent: impl Future<Output = Result<bool, Error>>,
    ) -> Result<(), Failure> {
        let is_ours = connection.answer(sent).await?;
        self.check_claim(delivery.lane, delivery.epoch, is_ours)
    }

    /// Writes every message. While one statement is carried out, the next is made and sent.
    ///
    /// Behind a statement that is refused, the next one writes nothing: it writes only where the lane's position has reached the
    /// end of the one before. Where the table is ahead of the daemon's record, because a cursor was put back, the position is
    /// beyond that already, and the rows of the refused statement come after those of the next.
    async fn write_all(&self, connection: &Borrowed<'_>, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let mut parts = Parts::of(delivery.messages, ROWS, cells::row);
        let (mut last, mut after) = (None, None);
        while let Some((place, rows)) = parts.next().await {
            let (first, through) = (place.start, delivery.through_part(&place));
            if pieces(&rows).len() > 1 {
                if let Some(before) = last.take() {
                    self.finish(connection, delivery, before).await?;
                }
                self.write(connection, delivery, first, rows).await?;
                after = None;
                continue;
            }
            let (step, rows) = (Step { after, through }, Arc::new(rows));
            let sent = rows.clone();
            let insert = async move { self.insert(connection, delivery, step, &sent).await };
            let mut statement = Box::pin(maybe_done(insert));
            // Sends it.
            let _ = statement.as_mut().now_or_never();
            after = Some(through);
            let part = Part { first, rows, statement };
            let Some(before) = last.take() else {
                last = Some(part);
                continue;
            };
            match self.finish(connection, delivery, before).await {
                Ok(true) => last = Some(part),
                // What was sent behind it has written nothing.
                otherwise => {
                    connection.abandon(part.statement).await;
                    otherwise?;
                    self.write(connection, delivery, first, Arc::unwrap_or_clone(part.rows)).await?;
                    after = None;
                }
            }
        }
        if let Some(last) = last {
            self.finish(connection, delivery, last).await?;
        }
        Ok(())
    }

    /// Waits for a statement. Where it is refused for one of its events, its rows are written anew. Returns whether the statement
    /// itself has written.
    async fn finish<F>(
        &self,
        connection: &Borrowed<'_>,
        delivery: &Delivery<'_>,
        Part { first, rows, mut statement }: Part<F>,
    ) -> Result<bool, Undelivered>
    where
        F: Future<Output = Result<bool, Error>>,
    {
        let sent = async {
            statement.as_mut().await;
            statement.as_mut().take_output().expect("it is taken once")
        };
        match self.inserted(connection, delivery, sent).await {
            Ok(()) => Ok(true),
            Err(Failure::Event { .. }) => {
                self.write(connection, delivery, first, Arc::unwrap_or_clone(rows)).await.map(|()| false)
            }
            Err(failure) => Err(Undelivered::after(first, failure.error())),
        }
    }

    /// Writes the rows of the messages from this place on, each statement when the one before it is answered: in one, if all
    /// of them are taken.
    async fn write(
        &self,
        connection: &Borrowed<'_>,
        delivery: &Delivery<'_>,
        first: usize,
        mut rows: Vec<Row>,
    ) -> Result<(), Undelivered> {
        // Written one after the other, the first one last in here.
        let mut pieces = pieces(&rows);
        while let Some(piece) = pieces.pop() {
            let through = delivery.through_part(&(first + piece.start..first + piece.end));
            let sent = self.insert(connection, delivery, Step { after: None, through }, &rows[piece.clone()]);
            match self.inserted(connection, delivery, sent).await {
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
        let rows = self.pool.borrow().await?.query(&self.statements.claim, &parameters).await?;
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
        let connection = self.pool.borrow().await.map_err(|failure| Undelivered::after(0, failure.error()))?;
        let written = self.write_all(&connection, delivery).await;
        written.map_err(|undelivered| with_size(undelivered, delivery.messages))
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
