//! Reads a database without changing it: for the position of a lane, and for a comparison with the service.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};
use uuid::Uuid;

use super::connections::{ConnectedFile, connect};
use super::error::{self, SqliteError};
use super::schema::{Statements, columns};
use super::{SqliteSettings, files};
use crate::table::quoted;
use crate::{LaneRef, Oldest, Position, SinkError};
use proof::event::{ChannelId, EventId, EventKey, Offset};

pub(super) fn position(settings: &SqliteSettings, lane: &LaneRef) -> Result<Position, SinkError> {
    let path = settings.path.display();
    let found = read(settings, |connection| {
        // A position without its rows does not count.
        let statements = Statements::of(settings);
        for table in [&settings.table, &statements.progress_table] {
            if columns(connection, table)?.is_empty() {
                return Ok(Position::Missing(format!("the table {table} does not exist in {path}")));
            }
        }
        Ok(statements.position(connection, lane)?.0)
    })?;
    Ok(found.unwrap_or_else(|| Position::Missing(format!("the database {path} does not exist"))))
}

/// The event of a channel whose row was written first, among the rows that remain.
pub(super) fn oldest(settings: &SqliteSettings, channel: ChannelId) -> Result<Oldest, SinkError> {
    let oldest = read_table(settings, |connection| {
        let table = quoted(&settings.table);
        let there = format!("select 1 from {table} where channel_id = ?1");
        let channel = [channel.to_string()];
        if !connection.prepare(&there)?.exists(channel.clone())? {
            return Ok(None);
        }
        // Rows are deleted in the order in which they were written. The plus sign prevents the use of the index, because
        // the index has another order.
        let first = format!("select event_offset, event_id from {table} where +channel_id = ?1 order by id limit 1");
        Ok(connection.query_row(&first, channel, key_of).optional()?.flatten())
    })?;
    Ok(oldest.flatten().map_or(Oldest::Nothing, Oldest::Event))
}

/// The events among `keys` that have a row in this channel.
pub(super) fn holds(
    settings: &SqliteSettings,
    channel: ChannelId,
    keys: &BTreeSet<EventKey>,
) -> Result<BTreeSet<EventKey>, SinkError> {
    let held = read_table(settings, |connection| Ok(Statements::of(settings).with_rows(connection, channel, keys)?));
    Ok(held?.unwrap_or_default())
}

/// Reads the table. `None` if the table does not exist.
fn read_table<T>(
    settings: &SqliteSettings,
    work: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<Option<T>, SinkError> {
    let found = read(settings, |connection| {
        let is_there = !columns(connection, &settings.table)?.is_empty();
        is_there.then(|| work(connection)).transpose()
    })?;
    Ok(found.flatten())
}

/// Reads the database. `None` if the database does not exist.
pub(super) fn read<T>(
    settings: &SqliteSettings,
    work: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<Option<T>, SinkError> {
    let path = &*settings.path;
    let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
    let open = OpenReader::open(path, &metadata)?;
    work(&open.connection).map(Some).map_err(|failure| failure.at(path))
}

/// An open connection that only reads. The fields are in the order in which they must be dropped.
pub(super) struct OpenReader {
    pub(super) connection: Connection,
    pub(super) connected: ConnectedFile,
}

impl OpenReader {
    /// Opens an existing database.
    pub(super) fn open(path: &Path, metadata: &Metadata) -> Result<Self, SinkError> {
        files::require_regular(path, metadata)?;
        files::check_log(path)?;
        let connected = ConnectedFile::of(metadata);
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|error| error::of(&error, path))?;
        Ok(Self { connection, connected })
    }
}

pub(super) fn key_of(row: &Row<'_>) -> rusqlite::Result<Option<EventKey>> {
    let id = row.get::<_, Option<String>>(1)?.and_then(|id| Uuid::try_parse(&id).ok()).map(EventId);
    Ok(Offset::new(row.get(0)?).map(|offset| EventKey { offset, id }))
}
