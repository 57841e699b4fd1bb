//! The work of one lane within a transaction.

use std::collections::BTreeSet;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{OptionalExtension, ToSql, Transaction, params, params_from_iter};

use super::schema::Statements;
use super::work::{Done, Task, Work};
use crate::table::{Cell, Row, displaced, overtaken, without_row};
use crate::{Position, Resumed, SinkError};
use proof::event::{EventKey, Offset};

/// The parameters that identify a lane, and its epoch.
struct Lane<'a> {
    work: &'a Work,
    channel: String,
    epoch: i64,
}

/// A lane's row in the table with the positions.
struct Progress {
    through: Option<i64>,
    epoch: i64,
}

impl Statements {
    /// Carries out the work of a lane. A database error is returned with the number of rows before the failed row.
    pub(super) fn carry_out(
        &self,
        transaction: &Transaction<'_>,
        work: &Work,
    ) -> Result<Done, (rusqlite::Error, usize)> {
        let epoch = i64::try_from(work.epoch).unwrap_or(i64::MAX);
        let lane = Lane { work, channel: work.lane.channel.id.to_string(), epoch };
        match &work.task {
            Task::TakeOver { through, is_adopted, pending } => {
                let adopted = is_adopted.then_some(through);
                let taken_over = self.take_over(transaction, &lane, adopted).and_then(|taken_over| {
                    let Ok(position) = taken_over else { return Ok(taken_over.map(|_| Resumed::default())) };
                    Ok(Ok(Resumed { position, held: self.held(transaction, &lane, pending)? }))
                });
                taken_over.map_err(|error| (error, 0))
            }
            Task::Deliver { after, through, rows } => {
                let moved = self.advance(transaction, &lane, *after, *through).map_err(|error| (error, 0))?;
                if let Err(error) = moved {
                    return Ok(Err(error));
                }
                self.insert(transaction, rows)?;
                Ok(Ok(Resumed::default()))
            }
        }
    }

    fn take_over(
        &self,
        transaction: &Transaction<'_>,
        lane: &Lane<'_>,
        adopted: Option<&Option<Offset>>,
    ) -> rusqlite::Result<Result<Position, SinkError>> {
        let found = self.found(transaction, lane)?;
        if found.as_ref().is_some_and(|found| lane.is_overtaken(found)) {
            return Ok(Err(lane.overtaken(&self.progress_table)));
        }
        let (channel, sink) = (&lane.channel, &lane.work.lane.sink);
        Ok(Ok(match (adopted, found) {
            (Some(through), _) => {
                transaction.execute(&self.adopt, params![channel, sink, through.map(Offset::get), lane.epoch])?;
                Position::At(*through)
            }
            (None, Some(found)) => {
                transaction.execute(&self.claim, params![channel, sink, lane.epoch])?;
                Position::At(found.offset())
            }
            (None, None) => Position::Missing(without_row(&self.progress_table)),
        }))
    }

    /// The pending events that have a row.
    fn held(
        &self,
        transaction: &Transaction<'_>,
        lane: &Lane<'_>,
        pending: &BTreeSet<EventKey>,
    ) -> rusqlite::Result<BTreeSet<EventKey>> {
        let mut has_row = transaction.prepare(&self.look)?;
        let mut held = BTreeSet::new();
        for key in pending {
            if has_row.exists(params![lane.channel, key.offset.get(), key.id.map(|id| id.to_string())])? {
                held.insert(*key);
            }
        }
        Ok(held)
    }

    /// Moves the lane if it belongs to this instance and has the expected position.
    fn advance(
        &self,
        transaction: &Transaction<'_>,
        lane: &Lane<'_>,
        after: Option<Offset>,
        through: Offset,
    ) -> rusqlite::Result<Result<(), SinkError>> {
        let (channel, sink, expected) = (&lane.channel, &lane.work.lane.sink, after.map(Offset::get));
        if transaction.execute(&self.advance, params![channel, sink, through.get(), lane.epoch, expected])? > 0 {
            return Ok(Ok(()));
        }
        Ok(Err(match self.found(transaction, lane)? {
            Some(found) if lane.is_overtaken(&found) => lane.overtaken(&self.progress_table),
            Some(found) => displaced(&self.progress_table, &Position::At(found.offset()), after),
            None => displaced(&self.progress_table, &Position::default(), after),
        }))
    }

    fn found(&self, transaction: &Transaction<'_>, lane: &Lane<'_>) -> rusqlite::Result<Option<Progress>> {
        let row = params![lane.channel, lane.work.lane.sink];
        transaction
            .query_row(&self.position, row, |row| Ok(Progress { through: row.get(0)?, epoch: row.get(1)? }))
            .optional()
    }

    fn insert(&self, transaction: &Transaction<'_>, rows: &[Row]) -> Result<(), (rusqlite::Error, usize)> {
        let at_first = |error| (error, 0);
        let mut insert = transaction.prepare(&self.insert).map_err(at_first)?;
        let index = self.index.as_ref().map(|index| transaction.prepare(index)).transpose();
        let mut index = index.map_err(at_first)?;
        for (after, row) in rows.iter().enumerate() {
            let inserted = insert.execute(params_from_iter(&row.0)).map_err(|error| (error, after))?;
            if let Some(index) = index.as_mut().filter(|_| inserted > 0) {
                index.execute([transaction.last_insert_rowid()]).map_err(|error| (error, after))?;
            }
        }
        Ok(())
    }
}

impl Progress {
    fn offset(&self) -> Option<Offset> {
        self.through.and_then(Offset::new)
    }
}

impl Lane<'_> {
    /// Whether a later lease has the lane. A lease that is not shared has epoch 0 and is always valid.
    fn is_overtaken(&self, found: &Progress) -> bool {
        self.epoch != 0 && found.epoch > self.epoch
    }

    fn overtaken(&self, progress: &str) -> SinkError {
        overtaken(&self.work.lane, self.work.epoch, progress)
    }
}

/// Ids, times and hashes are written as in the record.
impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Number(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Json(json) => ToSqlOutput::Borrowed(ValueRef::Text(json)),
            Self::Id(id) => ToSqlOutput::Owned(Value::Text(id.to_string())),
            Self::Time(time) => ToSqlOutput::Owned(Value::Text(format!("{time:.3}"))),
            Self::Hash(hash) => ToSqlOutput::Owned(Value::Text(hash.to_string())),
        })
    }
}
