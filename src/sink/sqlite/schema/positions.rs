//! The column `position`: how it is created, and the statements that assign positions.
//!
//! Rows of older versions have no position. They are numbered in the order of their ids, which is the order in which they were
//! written: the column `delivered` would not be better, because a clock can be set back. SQLite stores the column in the row,
//! so every page of the table is written again. Several transactions do this, so that the log stays short and a restart
//! continues where the last one stopped. No event is written meanwhile, because later events get higher positions.

use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tracing::warn;

use super::columns;
use crate::settings::SqliteSettings;
use crate::table::{POSITION, consumers, position_index, progress, quoted};

/// How many rows one transaction numbers.
const AT_ONCE: i64 = 5_000;

#[derive(Clone, Debug)]
pub(in crate::sqlite) struct PositionStatements {
    /// The newest position of the channel `?1`.
    newest: String,
    /// Records the newest position `?2` of the channel `?1`.
    pub(in crate::sqlite) record: String,
    /// The table of consumers. Another instance may have created it.
    consumers: String,
    /// The consumers of the channel `?1` whose cursors or leases are above the position `?2`.
    ahead: String,
    /// Moves these cursors back to the position `?2`, and ends these leases.
    move_back: String,
    /// The ids of at most `?2` rows of the channel `?1` that have no position, in the order in which they were written.
    unnumbered: String,
    /// Gives the position `?2` to the row `?1`.
    number: String,
    /// The first channel after `?1`.
    next_channel: String,
}

impl PositionStatements {
    pub(super) fn of(settings: &SqliteSettings) -> Self {
        let (table, progress) = (quoted(&settings.table), quoted(&progress(&settings.table)));
        let consumers = consumers(&settings.table);
        let cursors = quoted(&consumers);
        let ahead = "channel_id = ?1 and (through > ?2 or leased_through > ?2)";
        Self {
            ahead: format!("select consumer, through from {cursors} where {ahead}"),
            move_back: format!(
                "update {cursors} set through = min(through, ?2), lease = null, leased_until = null, \
                 leased_through = null where {ahead}"
            ),
            consumers,
            // Both maxima, because an operator may have removed the rows of one of the two tables.
            newest: format!(
                "select max(ifnull((select max({POSITION}) from {progress} where channel_id = ?1), 0), \
                 ifnull((select max({POSITION}) from {table} where channel_id = ?1), 0))"
            ),
            record: format!("update {progress} set {POSITION} = ?2 where channel_id = ?1"),
            unnumbered: format!(
                "select id from {table} where channel_id = ?1 and {POSITION} is null order by id limit ?2"
            ),
            number: format!("update {table} set {POSITION} = ?2 where id = ?1"),
            next_channel: format!("select min(channel_id) from {table} where channel_id > ?1"),
        }
    }

    pub(in crate::sqlite) fn newest(&self, connection: &Connection, channel: &str) -> rusqlite::Result<i64> {
        connection.prepare(&self.newest)?.query_row([channel], |row| row.get(0))
    }

    /// Moves the cursors of consumers back that are above the newest position, because the table was restored from a backup. Must
    /// precede new rows: these get the positions above `newest`, and each consumer must receive them.
    pub(in crate::sqlite) fn move_cursors_back(
        &self,
        connection: &Connection,
        channel: &str,
        newest: i64,
    ) -> rusqlite::Result<()> {
        if columns(connection, &self.consumers)?.is_empty() {
            return Ok(());
        }
        let mut ahead = connection.prepare(&self.ahead)?;
        let mut ahead = ahead.query(params![channel, newest])?;
        let mut is_ahead = false;
        while let Some(row) = ahead.next()? {
            let (consumer, from): (String, i64) = (row.get(0)?, row.get(1)?);
            let to = from.min(newest);
            warn!(
                consumer,
                channel,
                from,
                to,
                "a consumer of the feed was ahead of its table, which was restored from a backup: its cursor moves back, and its lease ends"
            );
            is_ahead = true;
        }
        if is_ahead {
            connection.execute(&self.move_back, params![channel, newest])?;
        }
        Ok(())
    }

    /// Numbers some rows of a channel that have no position. Returns how many.
    pub(in crate::sqlite) fn number(&self, connection: &Connection, channel: &str) -> rusqlite::Result<usize> {
        let mut unnumbered = connection.prepare(&self.unnumbered)?;
        let ids = unnumbered.query_map(params![channel, AT_ONCE], |row| row.get::<_, i64>(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
        if ids.is_empty() {
            return Ok(0);
        }
        let mut number = connection.prepare(&self.number)?;
        let mut position = self.newest(connection, channel)?;
        self.move_cursors_back(connection, channel, position)?;
        for id in &ids {
            position += 1;
            number.execute([*id, position])?;
        }
        connection.execute(&self.record, params![channel, position])?;
        Ok(ids.len())
    }
}

/// Adds the column to an older table of lanes, and creates the index and the table of consumers.
pub(super) fn prepare(transaction: &Transaction<'_>, settings: &SqliteSettings) -> rusqlite::Result<()> {
    let (table, lanes) = (quoted(&settings.table), progress(&settings.table));
    let found = columns(transaction, &lanes)?;
    // A table without an epoch belongs to another program. The first delivery reports this.
    if found.iter().any(|name| name == "epoch") && !found.iter().any(|name| name == POSITION) {
        let lanes = quoted(&lanes);
        transaction.execute_batch(&format!("alter table {lanes} add column {POSITION} integer not null default 0"))?;
    }
    let index = quoted(&position_index(&settings.table));
    transaction
        .execute_batch(&format!("create unique index if not exists {index} on {table} (channel_id, {POSITION})"))?;
    if settings.feed || !settings.keep_for_consumers.is_empty() {
        let consumers = quoted(&consumers(&settings.table));
        transaction.execute_batch(&format!(
            "create table if not exists {consumers} (consumer text not null, channel_id text not null, \
             through integer not null, lease text, leased_until text, leased_through integer, \
             primary key (consumer, channel_id)) without rowid"
        ))?;
    }
    Ok(())
}

/// Numbers the rows of all channels that have no position, with several transactions. Returns how many rows were numbered, and
/// whether all rows have a position now. Stops at the time `until`.
pub(in crate::sqlite) fn number_existing(
    connection: &mut Connection,
    statements: &PositionStatements,
    until: Instant,
) -> rusqlite::Result<(usize, bool)> {
    let (mut numbered, mut channel) = (0, String::new());
    loop {
        let next = connection
            .query_row(&statements.next_channel, [&channel], |row| row.get::<_, Option<String>>(0))
            .optional()?;
        let Some(next) = next.flatten() else { return Ok((numbered, true)) };
        channel = next;
        // Most openings find nothing to number, and then start no transaction that writes.
        while connection.prepare(&statements.unnumbered)?.exists(params![channel, 1])? {
            if Instant::now() >= until {
                return Ok((numbered, false));
            }
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
            numbered += statements.number(&transaction, &channel)?;
            transaction.commit()?;
        }
    }
}
