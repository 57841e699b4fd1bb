//! The work of one lane within a transaction. If a row is refused, other rows, which do not stay in the table, show whose fault this is
//! (see `narrowing`).

use std::collections::BTreeSet;
use std::iter;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, TransactionBehavior, params, params_from_iter};

use super::error::{SqliteError, suppressed};
use super::read::key_of;
use super::schema::Statements;
use crate::narrowing::OtherContent;
use crate::table::{Cell, Row, displaced, overtaken, probe, without_row};
use crate::{LaneRef, Position, Recorded, Resumed, Undelivered};
use proof::event::{ChannelId, EventKey, Offset};

#[derive(Debug)]
pub(super) enum Work {
    Resume(Recorded),
    Deliver {
        lane: LaneRef,
        epoch: u64,
        /// The position that the table is expected to have.
        after: Option<Offset>,
        /// The position becomes the higher one of `after` and `through`.
        through: Offset,
        rows: Vec<Row>,
    },
}

/// The state of the lane in the table, or the number of rows that were written and the error that prevented the others.
pub(super) type LaneResult = Result<Resumed, Undelivered>;

impl Work {
    pub(super) fn rows(&self) -> usize {
        if let Self::Deliver { rows, .. } = self { rows.len() } else { 0 }
    }

    /// Splits a delivery. Keeps the first `count` rows, and lowers the position to the offset of the last of these rows.
    /// Returns a delivery of the other rows, which follows. `count` is at least one.
    pub(super) fn split_off(&mut self, count: usize) -> Option<Self> {
        let Self::Deliver { lane, epoch, after, through, rows } = self else { return None };
        let rest = rows.split_off(count);
        let offset = |row: &Row| if let Cell::Number(offset) = row.key()[0] { Offset::new(*offset) } else { None };
        let first = rows.last().and_then(offset).unwrap_or(*through);
        let through = std::mem::replace(through, first);
        Some(Self::Deliver { lane: lane.clone(), epoch: *epoch, after: (*after).max(Some(first)), through, rows: rest })
    }
}

impl Statements {
    /// Carries out the work of several lanes in one transaction. Fails if a row is refused, or if the database cannot be used.
    pub(super) fn carry_out_all(
        &self,
        connection: &mut Connection,
        group: &[Work],
    ) -> Result<Vec<Result<Resumed, SqliteError>>, SqliteError> {
        let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
        let done = group.iter().map(|work| match self.carry_out(&transaction, work) {
            Err(failure @ SqliteError::Sqlite(..)) => Err(failure),
            other => Ok(other),
        });
        let done = done.collect::<Result<_, _>>()?;
        transaction.commit().map_err(|error| SqliteError::Sqlite(error, None))?;
        Ok(done)
    }

    pub(super) fn carry_out(&self, connection: &Connection, work: &Work) -> Result<Resumed, SqliteError> {
        match work {
            Work::Resume(recorded) => {
                let position = self.take_over(connection, recorded)?;
                let pending = self.with_rows(connection, recorded.lane.channel.id, &recorded.pending)?;
                let mut held: Vec<_> = pending.into_iter().collect();
                if let Some((above, to)) = recorded.unrecorded(&position) {
                    let (mut rows, channel) =
                        (connection.prepare(&self.between)?, recorded.lane.channel.id.to_string());
                    let rows = rows.query_and_then(params![channel, above, to], key_of)?;
                    held.extend(rows.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()?);
                }
                let late = recorded.late_in_doubt(&position);
                let lost = &late - &self.with_rows(connection, recorded.lane.channel.id, &late)?;
                Ok(Resumed { position, held, lost })
            }
            Work::Deliver { lane, epoch, after, through, rows } => {
                let channel = lane.channel.id.to_string();
                let to = params![channel, lane.sink, through.get(), number(*epoch), after.map(Offset::get)];
                if connection.execute(&self.advance, to)? == 0 {
                    let found = self.position_under(connection, lane, *epoch)?;
                    return Err(displaced(&self.progress_table, &found, *after).into());
                }
                // Rows without a position exist only if an older version writes to the database while this one has it open.
                while self.positions.number(connection, &channel)? > 0 {}
                self.insert(connection, &channel, rows)?;
                Ok(Resumed::default())
            }
        }
    }

    fn take_over(&self, connection: &Connection, recorded: &Recorded) -> Result<Position, SqliteError> {
        let Recorded { lane, epoch, through, confirmed, .. } = recorded;
        let found = self.position_under(connection, lane, *epoch)?;
        let (channel, epoch) = (lane.channel.id.to_string(), number(*epoch));
        if confirmed.is_some() {
            // The statement changes nothing if the lane has no row.
            connection.execute(&self.claim, params![channel, lane.sink, epoch])?;
            return Ok(found);
        }
        connection.execute(&self.adopt, params![channel, lane.sink, through.map(Offset::get), epoch])?;
        Ok(Position::At(*through))
    }

    /// The lane's position. Fails if the table has a later epoch of the lane.
    fn position_under(&self, connection: &Connection, lane: &LaneRef, epoch: u64) -> Result<Position, SqliteError> {
        let (position, later) = self.position(connection, lane)?;
        // A lease that is not shared has epoch 0 and is always valid.
        if epoch != 0 && later > number(epoch) {
            return Err(overtaken(lane, epoch, &self.progress_table).into());
        }
        Ok(position)
    }

    /// The lane's position and epoch.
    pub(super) fn position(&self, connection: &Connection, lane: &LaneRef) -> rusqlite::Result<(Position, i64)> {
        let lane = params![lane.channel.id.to_string(), lane.sink];
        let found = connection.query_row(&self.position, lane, |row| Ok((row.get::<_, Option<i64>>(0)?, row.get(1)?)));
        Ok(match found.optional()? {
            Some((through, epoch)) => (Position::At(through.and_then(Offset::new)), epoch),
            None => (Position::Missing(without_row(&self.progress_table)), 0),
        })
    }

    /// The events among `keys` that have a row.
    pub(super) fn with_rows(
        &self,
        connection: &Connection,
        channel: ChannelId,
        keys: &BTreeSet<EventKey>,
    ) -> rusqlite::Result<BTreeSet<EventKey>> {
        let (mut has_row, channel) = (connection.prepare(&self.look)?, channel.to_string());
        let with_row = |key: &EventKey| {
            let is_there = has_row.exists(params![channel, key.offset.get(), key.id.map(|id| id.to_string())])?;
            Ok(is_there.then_some(*key))
        };
        keys.iter().map(with_row).filter_map(Result::transpose).collect()
    }

    /// The first row of `work` was refused alone. Tries a made-up row, the other rows, and a copy of an existing row, until
    /// the table accepts one.
    pub(super) fn other_content(&self, connection: &mut Connection, work: &Work) -> Result<OtherContent, SqliteError> {
        let Work::Deliver { lane, epoch, after, through, rows } = work else { return Ok(OtherContent::Refused) };
        let mut tried = OtherContent::Untried;
        for row in probe::other_rows(rows, 0) {
            let (lane, rows) = (lane.clone(), vec![row]);
            let probe = Work::Deliver { lane, epoch: *epoch, after: *after, through: *through, rows };
            tried = tried.max(rolled_back(connection, |connection| self.carry_out(connection, &probe).map(|_| true))?);
            if tried == OtherContent::Accepted {
                return Ok(tried);
            }
        }
        // The copy concerns no operation.
        if rows[0].operation.is_some() {
            return Ok(tried);
        }
        let (channel, changed) = (Cell::Id(lane.channel.id.0), probe::changed(&rows[0]));
        let copied = rolled_back(connection, |connection| {
            // If the table of positions cannot be used, no event can be written, although the copy can.
            self.position(connection, lane)?;
            Ok(connection.execute(&self.copy, params_from_iter(iter::once(&channel).chain(&changed)))? > 0)
        });
        Ok(tried.max(copied?))
    }

    fn insert(&self, connection: &Connection, channel: &str, rows: &[Row]) -> Result<(), SqliteError> {
        let newest = self.positions.newest(connection, channel)?;
        let mut position = newest;
        let mut insert = connection.prepare(&self.insert)?;
        let indexes = self.index.iter().map(|index| connection.prepare(index));
        let mut indexes = indexes.collect::<Result<Vec<_>, _>>()?;
        let mut look = None;
        let mut merge = self.merge.as_ref().map(|merge| connection.prepare(merge)).transpose()?;
        for (before, row) in rows.iter().enumerate() {
            let failed = |error| SqliteError::Sqlite(error, Some(before));
            let next = Cell::Number(position + 1);
            let inserted = insert.execute(params_from_iter(row.cells.iter().chain([&next]))).map_err(failed)?;
            if inserted > 0 {
                position += 1;
                // Filling an index changes the id that the connection inserted last.
                let id = connection.last_insert_rowid();
                for index in &mut indexes {
                    index.execute([id]).map_err(failed)?;
                }
            } else {
                // The event has a row, or a trigger has suppressed it.
                let [offset, id] = row.key();
                let look = match &mut look {
                    Some(look) => look,
                    none => none.insert(connection.prepare(&self.look)?),
                };
                if !look.exists(params![channel, offset, id])? {
                    return Err(failed(suppressed()));
                }
            }
            if let (Some(merge), Some(operation)) = (&mut merge, &row.operation) {
                merge.execute(params_from_iter(operation.cells())).map_err(failed)?;
            }
        }
        if position > newest {
            self.positions.move_cursors_back(connection, channel, newest)?;
            connection.execute(&self.positions.record, params![channel, position])?;
        }
        Ok(())
    }
}

/// Does work in a transaction that is rolled back. The work returns whether it has written a row.
fn rolled_back(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<bool, SqliteError>,
) -> Result<OtherContent, SqliteError> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    OtherContent::of(work(&transaction), SqliteError::may_be_of_one_row)
}

/// An epoch as SQLite stores it. Epochs stay far below the maximum.
fn number(epoch: u64) -> i64 {
    i64::try_from(epoch).unwrap_or(i64::MAX)
}

/// Ids, times and hashes have the same form as in the record.
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
