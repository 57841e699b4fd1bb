//! One delivery: its rows, 200 a statement. While the server carries one statement out, the next is made and sent.
//!
//! # Invariants
//!
//! * **In order.** A statement writes only where the lane's position has reached the end of the one before. Where the table is
//!   ahead of the daemon's record, because a cursor was put back, it is beyond that already, and the rows of a refused statement
//!   come after those of the next.
//! * **One wait for the disk.** A statement that another follows is committed without that wait: the last one's covers those
//!   before it. Where the last one is not written, nothing before it counts as delivered until such a wait is over.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{MaybeDone, maybe_done};
use serde_json::json;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use super::Postgres;
use super::cells::{self, Parameter};
use super::pool::Borrowed;
use super::refusal::Failure;
use crate::event::Offset;
use crate::postgres::bigint;
use crate::sink::table::{Parts, Row};
use crate::sink::{Delivery, Undelivered};

/// The most rows of one transaction.
const ROWS: usize = 200;

/// Rows of more bytes than this are written by several statements.
pub(super) const AT_ONCE_BYTES: usize = 8 << 20;

/// What a statement does besides writing its rows.
#[derive(Clone, Copy)]
struct Step {
    /// It writes only where the position has reached this.
    after: Option<Offset>,
    /// Where it moves the position.
    through: Offset,
    /// Whether another one follows, which waits for the disk.
    is_followed: bool,
}

/// Rows that were sent, and the statement that is to write them.
struct Part<F: Future> {
    place: Range<usize>,
    rows: Arc<Vec<Row>>,
    statement: Pin<Box<MaybeDone<F>>>,
}

/// Writes a delivery.
pub(super) struct Writer<'a> {
    sink: &'a Postgres,
    connection: &'a Borrowed<'a>,
    delivery: &'a Delivery<'a>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(sink: &'a Postgres, connection: &'a Borrowed<'a>, delivery: &'a Delivery<'a>) -> Self {
        Self { sink, connection, delivery }
    }

    /// Writes every message.
    pub(super) async fn write(&self) -> Result<(), Undelivered> {
        let mut parts = Parts::of(self.delivery.messages, ROWS, cells::row);
        let (mut last, mut after) = (None, None);
        while let Some((place, rows)) = parts.next().await {
            if pieces(&rows).len() > 1 {
                if let Some(before) = last.take() {
                    self.finish(before).await?;
                }
                self.write_apart(place.start, rows).await?;
                after = None;
                continue;
            }
            let (through, is_followed) = (self.delivery.through_part(&place), place.end < self.delivery.messages.len());
            let (step, rows) = (Step { after, through, is_followed }, Arc::new(rows));
            let sent = rows.clone();
            let insert = async move { self.insert(step, &sent).await };
            let mut statement = Box::pin(maybe_done(insert));
            // Sends it.
            let _ = statement.as_mut().now_or_never();
            after = Some(through);
            let part = Part { place, rows, statement };
            let Some(before) = last.take() else {
                last = Some(part);
                continue;
            };
            match self.finish(before).await {
                Ok(true) => last = Some(part),
                // What was sent behind it has written nothing.
                otherwise => {
                    self.connection.abandon(part.statement).await;
                    otherwise?;
                    self.write_apart(part.place.start, Arc::unwrap_or_clone(part.rows)).await?;
                    after = None;
                }
            }
        }
        if let Some(last) = last {
            self.finish(last).await?;
        }
        Ok(())
    }

    /// Waits for a statement. Where it is refused for one of its events, its rows are written anew. Returns whether the statement
    /// itself has written.
    async fn finish<F>(&self, Part { place, rows, mut statement }: Part<F>) -> Result<bool, Undelivered>
    where
        F: Future<Output = Result<bool, Error>>,
    {
        let sent = async {
            statement.as_mut().await;
            statement.as_mut().take_output().expect("it is taken once")
        };
        match self.inserted(sent).await {
            Ok(()) => Ok(true),
            Err(Failure::Event { .. }) => {
                self.write_apart(place.start, Arc::unwrap_or_clone(rows)).await.map(|()| false)
            }
            Err(failure) => Err(Undelivered::after(0, failure.error())),
        }
    }

    /// Writes the rows of the messages from this place on, each statement when the one before it is answered and on the disk: in
    /// one, if all of them are taken.
    async fn write_apart(&self, first: usize, mut rows: Vec<Row>) -> Result<(), Undelivered> {
        self.settle(first).await.map_err(|failure| Undelivered::after(0, failure.error()))?;
        // Written one after the other, the first one last in here.
        let mut pieces = pieces(&rows);
        while let Some(piece) = pieces.pop() {
            let through = self.delivery.through_part(&(first + piece.start..first + piece.end));
            let step = Step { after: None, through, is_followed: false };
            match self.inserted(self.insert(step, &rows[piece.clone()])).await {
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

    /// Waits until so many of the first messages, which are written, are on the server's disk.
    async fn settle(&self, written: usize) -> Result<(), Failure> {
        if written == 0 {
            return Ok(());
        }
        let Delivery { lane, epoch, .. } = self.delivery;
        let through = self.delivery.through_part(&(0..written));
        self.sink.claim(self.connection, lane, *epoch, Some(through), &[]).await.map(drop)
    }

    /// Sends a statement that writes rows of one lane, with its position; `true` where the lane is ours, and the position has
    /// reached what it has to.
    async fn insert(&self, Step { after, through, is_followed }: Step, rows: &[Row]) -> Result<bool, Error> {
        let (columns, Delivery { lane, epoch, .. }) = (cells::columns(rows), self.delivery);
        let (channel, sink) = (lane.channel.id.0, &*lane.sink);
        let (through, epoch, after) = (through.get(), bigint(*epoch), after.map(Offset::get));
        let note = json!({"channel": &*lane.channel.name, "sink": sink, "through": through}).to_string();
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&epoch as _, Type::INT8),
            (&after as _, Type::INT8),
            (&is_followed as _, Type::BOOL),
        ];
        parameters.extend(columns.iter().map(|(column, kind)| (column as _, kind.clone())));
        if let Some(notified) = &self.sink.settings.notify {
            parameters.extend([(notified as _, Type::TEXT), (&note as _, Type::TEXT)] as [Parameter<'_>; 2]);
        }
        let answer = self.connection.send(&self.sink.statements.insert, &parameters).await?;
        Ok(answer.first().is_some_and(|row| row.get::<_, i64>(0) > 0))
    }

    /// Waits for the answer to an insert.
    async fn inserted(&self, sent: impl Future<Output = Result<bool, Error>>) -> Result<(), Failure> {
        let is_ours = self.connection.answer(sent).await?;
        self.sink.check_claim(self.delivery.lane, self.delivery.epoch, is_ours)
    }
}

/// Which rows go into one statement: the last ones first.
pub(super) fn pieces(rows: &[Row]) -> Vec<Range<usize>> {
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
