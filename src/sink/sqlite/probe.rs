//! Reads the state of a database without changing it: for `check --connect`, and for the position of a lane.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use bytesize::ByteSize;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use rustix::fs::{Access, access};

use super::database::BUSY;
use super::refusal;
use super::schema::{Statements, columns, lacking};
use super::{SqliteSettings, files, key};
use crate::table::without_row;
use crate::{LaneRef, Position, SinkError};
use proof::event::Offset;

pub(super) fn probe(settings: &SqliteSettings) -> Result<String, SinkError> {
    let path = &*settings.path;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let may_write = access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(std::io::Error::from);
    may_write.map_err(|error| refusal::opening(&error, directory))?;
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            files::check_log(path)?;
            Ok("it does not exist yet and will be created".to_owned())
        }
        Err(error) => Err(refusal::opening(&error, path)),
        Ok(found) => look(settings, found.len()),
    }
}

fn look(settings: &SqliteSettings, size: u64) -> Result<String, SinkError> {
    let (path, table) = (&*settings.path, &settings.table);
    let may_write = access(path, Access::READ_OK | Access::WRITE_OK).map_err(std::io::Error::from);
    may_write.map_err(|error| refusal::opening(&error, path))?;
    let failure = |error| refusal::of(&error, path);
    files::check_log(path)?;
    let connection = read_only(path).map_err(failure)?;
    let found = columns(&connection, table).map_err(failure)?;
    let size = ByteSize(size).display().iec();
    if found.is_empty() {
        return Ok(format!("it exists ({size}), and table {table} will be created"));
    }
    let replaced =
        if key::old(&connection, table).map_err(failure)?.is_empty() { "" } else { "; its key will be replaced" };
    Ok(match lacking(&found, settings)?.len() {
        0 => format!("it exists ({size}), with table {table}{replaced}"),
        count => format!("it exists ({size}), and {count} columns will be added to table {table}{replaced}"),
    })
}

/// A lane's position. Creates nothing.
pub(super) fn position(settings: &SqliteSettings, lane: &LaneRef) -> Result<Position, SinkError> {
    let (path, table) = (&*settings.path, &settings.table);
    let failure = |error| refusal::of(&error, path);
    if !path.exists() {
        return Ok(Position::Missing(format!("the database {} does not exist", path.display())));
    }
    files::check_log(path)?;
    let connection = read_only(path).map_err(failure)?;
    // A position without its rows does not count.
    let statements = Statements::of(settings);
    for table in [table, &statements.progress_table] {
        if columns(&connection, table).map_err(failure)?.is_empty() {
            return Ok(Position::Missing(format!("the table {table} does not exist in {}", path.display())));
        }
    }
    let row = (lane.channel.id.to_string(), &*lane.sink);
    let through = connection.query_row(&statements.position, row, |row| row.get::<_, Option<i64>>(0)).optional();
    Ok(match through.map_err(failure)? {
        Some(through) => Position::At(through.and_then(Offset::new)),
        None => Position::Missing(without_row(&statements.progress_table)),
    })
}

pub(super) fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}
