//! Looks up which events the table has, for a comparison with the service. Nothing is written or created.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::probe::read_only;
use super::refusal;
use super::schema::{Statements, columns};
use super::{SqliteSettings, files};
use crate::table::quoted;
use crate::{Oldest, SinkError};
use proof::event::{ChannelId, EventId, EventKey, Offset};

/// The event of a channel that was written first, among the remaining rows.
pub(super) fn oldest(settings: &SqliteSettings, channel: ChannelId) -> Result<Oldest, SinkError> {
    let find = |connection: &Connection| {
        let table = quoted(&settings.table);
        let there = format!("select 1 from {table} where channel_id = ?1");
        let channel = [channel.to_string()];
        if !connection.prepare(&there)?.exists(channel.clone())? {
            return Ok(Oldest::Nothing);
        }
        // Rows are deleted in the order in which they were written. The plus sign prevents the use of the index, which has
        // another order.
        let first = format!("select event_offset, event_id from {table} where +channel_id = ?1 order by id limit 1");
        let first = connection.query_row(&first, channel, key).optional()?.flatten();
        Ok(first.map_or(Oldest::Nothing, Oldest::Event))
    };
    Ok(read(settings, find)?.unwrap_or(Oldest::Nothing))
}

/// The events among `keys` that have a row in this channel.
pub(super) fn holds(
    settings: &SqliteSettings,
    channel: ChannelId,
    keys: &BTreeSet<EventKey>,
) -> Result<BTreeSet<EventKey>, SinkError> {
    let find = |connection: &Connection| {
        let (mut has_row, channel) = (connection.prepare(&Statements::of(settings).look)?, channel.to_string());
        let mut held = BTreeSet::new();
        for key in keys {
            if has_row.exists(params![channel, key.offset.get(), key.id.map(|id| id.to_string())])? {
                held.insert(*key);
            }
        }
        Ok(held)
    };
    Ok(read(settings, find)?.unwrap_or_default())
}

/// Reads the table. `None` if it does not exist.
fn read<T>(
    settings: &SqliteSettings,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<Option<T>, SinkError> {
    let path = &*settings.path;
    let failure = |error| refusal::of(&error, path);
    if !path.exists() {
        return Ok(None);
    }
    files::check_log(path)?;
    let connection = read_only(path).map_err(failure)?;
    if columns(&connection, &settings.table).map_err(failure)?.is_empty() {
        return Ok(None);
    }
    read(&connection).map(Some).map_err(failure)
}

fn key(row: &Row<'_>) -> rusqlite::Result<Option<EventKey>> {
    let id = row.get::<_, Option<String>>(1)?.and_then(|id| Uuid::try_parse(&id).ok()).map(EventId);
    Ok(Offset::new(row.get(0)?).map(|offset| EventKey { offset, id }))
}
