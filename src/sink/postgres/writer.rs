//! One delivery: its rows, 200 a statement. While the server carries one statement out, the next is made and sent.
//!
//! # Invariants
//!
//! * **In order.** A statement writes only if the lane's position is the one that the statement before it has made. If a
//!   statement does not move the position (an operator moved the daemon's cursor back), the next one is sent after its answer:
//!   otherwise the next one would write although this one was refused.
//! * **Durable before it counts.** Of several statements the last one alone waits for the server's disk, and so for everything
//!   committed before it. What is written without such a wait does not count as delivered.
//! * **One process of the server.** A process ends when its server crashes, so the same process has lost nothing. Behind a
//!   pooler another one may carry out the next statement: then the delivery ends, and from there on each statement waits.

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
use crate::table::{Parts, Row};
use crate::{Delivery, SinkError, Undelivered};
use net::postgres::bigint;
use proof::event::Offset;

/// The most rows of one transaction.
const ROWS: usize = 200;

/// Rows of more bytes than this are written by several statements.
pub(super) const AT_ONCE_BYTES: usize = 8 << 20;

/// What a statement depends on, and does besides writing its rows.
#[derive(Clone, Copy)]
struct Step {
    /// It writes only if the lane has this position.
    after: Option<Offset>,
    /// The position becomes the higher of `after` and this.
    through: Offset,
    /// Whether it is answered only when it is on the server's disk.
    waits: bool,
}

/// The answer to a statement.
struct Written {
    /// Whether the lane is ours, and had the expected position.
    has_moved: bool,
    /// The process of the server that has carried it out.
    backend: String,
}

/// Rows that were sent, and the statement that is to write them.
struct Part<F: Future> {
    place: Range<usize>,
    rows: Arc<Vec<Row>>,
    step: Step,
    statement: Pin<Box<MaybeDone<F>>>,
}

/// Sends the statements of a delivery.
#[derive(Clone, Copy)]
struct Sender<'a> {
    sink: &'a Postgres,
    connection: &'a Borrowed<'a>,
    delivery: &'a Delivery<'a>,
}

/// Writes a delivery.
pub(super) struct Writer<'a> {
    sender: Sender<'a>,
    /// The lane's position as the answered statements have made it.
    position: Option<Offset>,
    /// So many of the first messages are on the server's disk.
    durable: usize,
    /// The process of the server that has carried out the statements before.
    backend: Option<String>,
    /// Whether each statement waits for the disk.
    each_waits: bool,
}

impl Step {
    /// The lane's position after it.
    fn position(&self) -> Option<Offset> {
        self.after.max(Some(self.through))
    }

    fn moves(&self) -> bool {
        self.position() != self.after
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(sink: &'a Postgres, connection: &'a Borrowed<'a>, delivery: &'a Delivery<'a>) -> Self {
        let each_waits = connection.is_pooled();
        let position = delivery.after;
        Self { sender: Sender { sink, connection, delivery }, position, durable: 0, backend: None, each_waits }
    }

    /// Writes every message.
    pub(super) async fn write(mut self) -> Result<(), Undelivered> {
        let sender @ Sender { delivery, connection, .. } = self.sender;
        let mut parts = Parts::of(delivery.messages, ROWS, cells::row);
        let mut last: Option<Part<_>> = None;
        while let Some((place, rows)) = parts.next().await {
            let is_apart = pieces(&rows).len() > 1;
            if let Some(before) = last.take_if(|before| is_apart || !before.step.moves()) {
                self.finish(before).await?;
            }
            if is_apart {
                self.write_apart(place.start, rows).await?;
                continue;
            }
            let (through, is_last) = (delivery.through_part(&place), place.end == delivery.messages.len());
            let after = last.as_ref().map_or(self.position, |before| before.step.position());
            let (step, rows) = (Step { after, through, waits: is_last || self.each_waits }, Arc::new(rows));
            let sent = rows.clone();
            let mut statement = Box::pin(maybe_done(async move { sender.insert(step, &sent).await }));
            // Sends it.
            let _ = statement.as_mut().now_or_never();
            let part = Part { place, rows, step, statement };
            let Some(before) = last.take() else {
                last = Some(part);
                continue;
            };
            match self.finish(before).await {
                Ok(true) => last = Some(part),
                // The statement behind it expects a position that this one has not made: its rows are written once more.
                otherwise => {
                    let is_idle = connection.abandon(part.statement).await;
                    otherwise?;
                    if !is_idle {
                        return Err(self.undelivered(SinkError::away(
                            "a statement could not be given up; trying again".to_owned(),
                        )));
                    }
                    self.write_apart(part.place.start, Arc::unwrap_or_clone(part.rows)).await?;
                }
            }
        }
        if let Some(last) = last {
            self.finish(last).await?;
        }
        Ok(())
    }

    /// Waits for a statement. Where it is refused for one of its events, its rows are written apart. Returns whether the statement
    /// itself has written.
    async fn finish<F>(&mut self, Part { place, rows, step, mut statement }: Part<F>) -> Result<bool, Undelivered>
    where
        F: Future<Output = Result<Written, Error>>,
    {
        let sent = async {
            statement.as_mut().await;
            statement.as_mut().take_output().expect("it is taken once")
        };
        match self.answer(step, sent).await {
            Ok(()) => {
                if step.waits {
                    self.durable = place.end;
                }
                Ok(true)
            }
            Err(Failure::Event { .. }) => {
                self.write_apart(place.start, Arc::unwrap_or_clone(rows)).await.map(|()| false)
            }
            Err(failure) => Err(self.undelivered(failure.error())),
        }
    }

    /// Writes the rows of the messages from this place on, by statements that wait. Of rows that are refused each half is written
    /// alone, until the one that is refused is found.
    async fn write_apart(&mut self, first: usize, mut rows: Vec<Row>) -> Result<(), Undelivered> {
        let (sender, delivery) = (self.sender, self.sender.delivery);
        self.settle(first).await?;
        // Written one after the other, the first one last in here.
        let mut pieces = pieces(&rows);
        while let Some(piece) = pieces.pop() {
            let place = first + piece.start..first + piece.end;
            let step = Step { after: self.position, through: delivery.through_part(&place), waits: true };
            match self.answer(step, sender.insert(step, &rows[piece.clone()])).await {
                Ok(()) => self.durable = place.end,
                Err(Failure::Event { .. }) if piece.len() > 1 => {
                    let middle = piece.start + piece.len() / 2;
                    pieces.extend([middle..piece.end, piece.start..middle]);
                }
                Err(Failure::Event { is_json: true, .. }) if cells::forgo_json(&mut rows[piece.start]) => {
                    pieces.push(piece);
                }
                Err(failure) => return Err(self.undelivered(failure.error())),
            }
        }
        Ok(())
    }

    /// Waits until so many of the first messages, which are written, are on the server's disk: by a statement without rows.
    async fn settle(&mut self, written: usize) -> Result<(), Undelivered> {
        if written == self.durable {
            return Ok(());
        }
        let through = self.sender.delivery.through_part(&(0..written));
        let step = Step { after: self.position, through, waits: true };
        match self.answer(step, self.sender.insert(step, &[])).await {
            Ok(()) => {
                self.durable = written;
                Ok(())
            }
            // There is no event in it to be refused: it is the table of positions that refuses.
            Err(Failure::Event { message, .. }) => Err(self.undelivered(SinkError::unusable(message))),
            Err(failure) => Err(self.undelivered(failure.error())),
        }
    }

    /// Waits for the answer to a statement.
    async fn answer(&mut self, step: Step, sent: impl Future<Output = Result<Written, Error>>) -> Result<(), Failure> {
        let Sender { sink, connection, delivery } = self.sender;
        let Written { has_moved, backend } = connection.answer(sent).await?;
        let is_another = self.backend.replace(backend).is_some_and(|before| Some(before) != self.backend);
        if is_another && !(has_moved && self.each_waits) {
            connection.note_pooler();
            let what = "statements of one delivery were carried out by several processes of the server, as behind a pooler: \
                        trying again, and waiting for the server's disk with each";
            return Err(Failure::Database(what.to_owned()));
        }
        if !has_moved {
            return Err(sink.why_unmoved(connection, delivery, step.after).await);
        }
        self.position = step.position();
        Ok(())
    }

    fn undelivered(&self, error: SinkError) -> Undelivered {
        Undelivered::after(self.durable, error)
    }
}

impl Sender<'_> {
    /// Sends a statement that writes rows of one lane, with its position.
    async fn insert(self, Step { after, through, waits }: Step, rows: &[Row]) -> Result<Written, Error> {
        let Self { sink: Postgres { settings, statements, .. }, connection, delivery } = self;
        let (columns, Delivery { lane, epoch, .. }) = (cells::columns(rows), delivery);
        let (channel, sink) = (lane.channel.id.0, &*lane.sink);
        let (through, epoch, after) = (through.get(), bigint(*epoch), after.map(Offset::get));
        let note = json!({"channel": &*lane.channel.name, "sink": sink, "through": through}).to_string();
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&epoch as _, Type::INT8),
            (&after as _, Type::INT8),
            (&waits as _, Type::BOOL),
        ];
        parameters.extend(columns.iter().map(|(column, kind)| (column as _, kind.clone())));
        if let Some(notified) = &settings.notify {
            parameters.extend([(notified as _, Type::TEXT), (&note as _, Type::TEXT)] as [Parameter<'_>; 2]);
        }
        let answer = connection.send(&statements.insert, &parameters).await?;
        let row = answer.first().expect("a query without a table gives one row");
        Ok(Written { has_moved: row.get::<_, i64>(0) > 0, backend: row.get(1) })
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
