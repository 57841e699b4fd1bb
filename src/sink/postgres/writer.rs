//! Writes one delivery, up to 500 rows in each statement. While the server executes one statement, the next is made and sent.
//!
//! # Invariants
//!
//! * **In order.** A statement writes only if the lane has the position that the previous statement has set. If an operator
//!   moved the daemon's cursor back, a statement does not move the position. Each statement is then sent only after the
//!   previous one was answered. Otherwise a statement would write even if the previous one was refused.
//! * **Durable before it counts.** Only the last of several statements waits for the server's disk. All earlier commits are
//!   then on the disk too. Rows that were written without this wait count as delivered only after the last statement was
//!   answered.
//! * **One server process.** A server process ends when its server crashes. If the same process answers again, no earlier
//!   commit was lost. Behind a pooler, another process may execute the next statement. The delivery then ends with an error,
//!   and from then on each statement waits for the disk.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{MaybeDone, maybe_done};
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use super::cells::{self, parameters};
use super::insert::{AT_ONCE_BYTES, ATTEMPTS, Outcome, StatementResult, Step, insert, number, pieces, warn_of_cursors};
use super::pool::Borrowed;
use super::refusal::{Detail, StatementRefusal};
use crate::narrowing::{OtherContent, halves};
use crate::table::{Row, RowLimit, displaced, next_rows, overtaken, probe};
use crate::{Delivery, SinkError, Undelivered};
use net::postgres::bigint;
use proof::event::Offset;
use record::Message;

/// How long to wait for a statement whose result is no longer needed.
const MOMENT: Duration = Duration::from_secs(1);

/// Rows that were sent, and the statement that writes them.
struct SentRows<F: Future> {
    place: Range<usize>,
    rows: Arc<Vec<Row>>,
    step: Step,
    at: Instant,
    statement: Pin<Box<MaybeDone<F>>>,
}

pub(super) struct Writer<'a> {
    connection: &'a Borrowed<'a>,
    delivery: &'a Delivery<'a>,
    /// The lane's position after the answered statements.
    position: Option<Offset>,
    /// How many messages, counted from the first, are on the server's disk.
    durable: usize,
    /// The server process that has executed the previous statements.
    backend: Option<String>,
    /// Whether each statement waits for the disk.
    each_waits: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(connection: &'a Borrowed<'a>, delivery: &'a Delivery<'a>) -> Self {
        let each_waits = connection.pool.is_pooled.load(Ordering::Relaxed);
        Self { connection, delivery, position: delivery.after, durable: 0, backend: None, each_waits }
    }

    pub(super) async fn write(mut self) -> Result<(), Undelivered> {
        let (connection, delivery) = (self.connection, self.delivery);
        let (mut last, mut made): (Option<SentRows<_>>, _) = (None, 0);
        let has_operations = connection.pool.settings.operations;
        let make = |message: &Message, delivered: Timestamp| cells::row(message, delivered, has_operations);
        while let Some((place, rows)) = next_rows(delivery.messages, made, self.limit(), make).await {
            made = place.end;
            let is_apart = pieces(&rows).len() > 1;
            if let Some(before) = last.take_if(|SentRows { step, .. }| is_apart || step.position() == step.after) {
                self.finish(before).await?;
            }
            if is_apart {
                self.write_apart(place.start, rows).await?;
                continue;
            }
            let (through, is_last) = (delivery.through_part(&place), place.end == delivery.messages.len());
            let after = last.as_ref().map_or(self.position, |before| before.step.position());
            let step = Step { after, through, waits: is_last || self.each_waits, is_numbered: true };
            let rows = Arc::new(rows);
            let sent = rows.clone();
            let mut statement = Box::pin(maybe_done(async move { insert(connection, delivery, step, &sent).await }));
            // The first poll sends the statement.
            let _ = statement.as_mut().now_or_never();
            let part = SentRows { place, rows, step, at: Instant::now(), statement };
            let finished = match last.take() {
                Some(before) => self.finish(before).await,
                None => Ok(true),
            };
            if let Ok(true) = finished {
                last = Some(part);
                continue;
            }
            // `part` expects a position that the statement before it has not set. The rows of `part` are therefore written
            // again. If its answer does not come, the statement may be waiting for a lock. It is cancelled when `connection` is
            // dropped, and the connection is not used again, because the cancellation may hit the next statement.
            let is_idle = timeout(MOMENT, part.statement).await.is_ok();
            finished?;
            if !is_idle {
                return Err(
                    self.undelivered(SinkError::away("a statement could not be cancelled; retrying".to_owned()))
                );
            }
            self.write_apart(part.place.start, Arc::unwrap_or_clone(part.rows)).await?;
        }
        if let Some(last) = last {
            self.finish(last).await?;
        }
        Ok(())
    }

    /// The limit of the next statement. A row contains its message, and repeats some parts in other columns.
    fn limit(&self) -> RowLimit {
        let rows = self.connection.pool.effort.rows_of(self.delivery.messages.len());
        RowLimit { rows, bytes: AT_ONCE_BYTES / 2 }
    }

    /// Waits for a statement. If it is refused, perhaps because of one of its rows, [`write_apart`](Self::write_apart) writes its
    /// rows. Returns whether the statement itself has written the rows.
    async fn finish<F>(
        &mut self,
        SentRows { place, rows, step, at, mut statement }: SentRows<F>,
    ) -> Result<bool, Undelivered>
    where
        F: Future<Output = Result<StatementResult, Error>>,
    {
        let sent = async {
            statement.as_mut().await;
            statement.as_mut().take_output().expect("its output is taken only here")
        };
        match self.answer(step, sent).await {
            Ok(true) => {
                self.connection.pool.effort.succeeded(rows.len(), at.elapsed());
                if step.waits {
                    self.durable = place.end;
                }
                Ok(true)
            }
            Err(refusal) if !refusal.may_be_of_one_row() => Err(self.undelivered(refusal.error)),
            Ok(false) | Err(_) => {
                self.write_apart(place.start, Arc::unwrap_or_clone(rows)).await?;
                Ok(false)
            }
        }
    }

    /// Writes the rows of the messages from index `first` on, with statements that wait for the disk. If rows are refused,
    /// each half is written alone, until the refused row is found.
    async fn write_apart(&mut self, first: usize, mut rows: Vec<Row>) -> Result<(), Undelivered> {
        self.settle(first).await?;
        // The pieces are in reverse order, because they are popped from the end.
        let mut pieces = pieces(&rows);
        while let Some(piece) = pieces.pop() {
            let place = first + piece.start..first + piece.end;
            let step = self.waiting_step(&place);
            match self.written(step, &rows[piece.clone()]).await {
                Ok(()) => self.durable = place.end,
                Err(refusal) if refusal.may_be_of_one_row() && piece.len() > 1 => {
                    let [before, after] = halves(&piece);
                    pieces.extend([after, before]);
                }
                Err(StatementRefusal { detail: Detail::Json, .. }) if cells::forgo_json(&mut rows[piece.start]) => {
                    pieces.push(piece);
                }
                Err(refusal) => {
                    let judged = self.judged(refusal, step, &rows, piece.start).await;
                    return Err(self.undelivered(judged));
                }
            }
        }
        Ok(())
    }

    /// The error for the row at `at`, which was refused alone, by the statement of `step`. Other rows, which do not stay in the
    /// table, show whose fault the refusal is (see `narrowing`). The rows after `at` are among them.
    async fn judged(&self, refusal: StatementRefusal, step: Step, rows: &[Row], at: usize) -> SinkError {
        if !refusal.may_be_of_one_row() {
            return refusal.error;
        }
        match Box::pin(self.other_content(step, rows, at)).await {
            Ok(other) => refusal.error.judged(other),
            Err(refusal) => refusal.error,
        }
    }

    /// Tries a made-up row, other rows of the delivery, and a copy of an existing row, until the table accepts one.
    async fn other_content(&self, step: Step, rows: &[Row], at: usize) -> Result<OtherContent, StatementRefusal> {
        let Self { connection, delivery, .. } = self;
        let (mut tried, step) = (OtherContent::Untried, Step { is_numbered: false, ..step });
        for row in probe::other_rows(rows, at) {
            let inserted = async {
                let sent = insert(connection, delivery, step, std::slice::from_ref(&row));
                Ok(connection.answer(sent).await?.outcome == Outcome::Written)
            };
            let offered = Box::pin(connection.rolled_back(inserted)).await;
            tried = tried.max(OtherContent::of(offered, StatementRefusal::may_be_of_one_row)?);
            if tried == OtherContent::Accepted {
                return Ok(tried);
            }
        }
        // The copy concerns no operation.
        if rows[at].operation.is_some() {
            return Ok(tried);
        }
        let changed = probe::changed(&rows[at]);
        let kinds = [Type::INT8, Type::UUID, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ];
        let mut parameters = Vec::from(parameters![delivery.lane.channel.id.0 => UUID]);
        parameters.extend(changed.iter().zip(kinds).map(|(cell, kind)| (cell as _, kind)));
        let copied = async { Ok(!connection.query(&connection.pool.statements.copy, &parameters).await?.is_empty()) };
        let offered = connection.rolled_back(copied).await;
        Ok(tried.max(OtherContent::of(offered, StatementRefusal::may_be_of_one_row)?))
    }

    /// The rows of the first `written` messages are already written. Waits until they are on the server's disk, by sending
    /// a statement without rows that waits for the disk.
    async fn settle(&mut self, written: usize) -> Result<(), Undelivered> {
        if written == self.durable {
            return Ok(());
        }
        let step = self.waiting_step(&(0..written));
        self.written(step, &[]).await.map_err(|refusal| self.undelivered(refusal.error))?;
        self.durable = written;
        Ok(())
    }

    /// A step over these messages that waits for the disk.
    fn waiting_step(&self, place: &Range<usize>) -> Step {
        let through = self.delivery.through_part(place);
        Step { after: self.position, through, waits: true, is_numbered: true }
    }

    /// Writes rows with one statement. Repeats the statement if it was unable to assign positions.
    async fn written(&mut self, step: Step, rows: &[Row]) -> Result<(), StatementRefusal> {
        let (connection, delivery) = (self.connection, self.delivery);
        for _ in 0..ATTEMPTS {
            if self.answer(step, insert(connection, delivery, step, rows)).await? {
                return Ok(());
            }
            number(connection, delivery.lane.channel.id).await?;
        }
        let what = "other lanes write rows of this channel into the same table all the time: retrying";
        Err(SinkError::away(what.to_owned()).into())
    }

    /// Waits for the answer to a statement. Returns whether the statement was able to assign positions.
    async fn answer(
        &mut self,
        step: Step,
        sent: impl Future<Output = Result<StatementResult, Error>>,
    ) -> Result<bool, StatementRefusal> {
        let StatementResult { outcome, backend, moved_back } = self.connection.answer(sent).await?;
        warn_of_cursors(moved_back, &self.connection.pool.settings.quoted(), self.delivery.lane.channel.id);
        let is_another = self.backend.replace(backend).is_some_and(|before| Some(before) != self.backend);
        if is_another && !(outcome == Outcome::Written && self.each_waits) {
            self.connection.pool.is_pooled.store(true, Ordering::Relaxed);
            let what = "several processes of the server executed the statements of one delivery, as happens behind a pooler: \
                        retrying, and waiting for the server's disk after each statement";
            return Err(SinkError::away(what.to_owned()).into());
        }
        match outcome {
            Outcome::Written => {
                self.position = step.position();
                Ok(true)
            }
            Outcome::Unmoved => Err(self.why_unmoved(step.after).await.into()),
            Outcome::Unnumbered => Ok(false),
        }
    }

    /// Why a statement has not moved the lane from the expected position.
    async fn why_unmoved(&self, expected: Option<Offset>) -> SinkError {
        let Delivery { lane, epoch, .. } = self.delivery;
        let (settings, ours) = (&self.connection.pool.settings, bigint(*epoch));
        match self.connection.row_of(lane).await {
            Ok((_, later)) if ours != 0 && later > ours => overtaken(lane, *epoch, &settings.progress()),
            Ok((found, _)) => displaced(&settings.progress_name(), &found, expected),
            Err(refusal) => refusal.error,
        }
    }

    fn undelivered(&self, error: SinkError) -> Undelivered {
        Undelivered::after(self.durable, error)
    }
}

/// Writes rows with one statement, which waits for the disk, although there may be rows without a position. Returns whether
/// the lane had the position [`Delivery::after`].
pub(super) async fn write_once(
    connection: &Borrowed<'_>,
    delivery: &Delivery<'_>,
    rows: &[Row],
) -> Result<bool, StatementRefusal> {
    let step = Step { after: delivery.after, through: delivery.through, waits: true, is_numbered: false };
    for _ in 0..ATTEMPTS {
        let StatementResult { outcome, .. } = connection.answer(insert(connection, delivery, step, rows)).await?;
        if outcome != Outcome::Unnumbered {
            return Ok(outcome == Outcome::Written);
        }
    }
    Err(SinkError::away("other lanes write rows of this channel into the same table: try again".to_owned()).into())
}
