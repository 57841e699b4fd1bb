//! What `check --connect` says of a database, without changing it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use bytesize::ByteSize;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};

use super::SqliteSettings;
use super::refusal::Failure;
use super::schema::{columns, lacking};
use crate::sink::SinkError;

pub(super) fn probe(settings: &SqliteSettings) -> Result<String, SinkError> {
    seen(settings).map_err(Failure::error)
}

fn seen(settings: &SqliteSettings) -> Result<String, Failure> {
    let path = &*settings.path;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let may_write = access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(std::io::Error::from);
    may_write.map_err(|error| Failure::opening(&error, directory))?;
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok("it is not there yet, and will be made".to_owned()),
        Err(error) => Err(Failure::opening(&error, path)),
        Ok(found) => look(settings, found.len()),
    }
}

fn look(settings: &SqliteSettings, size: u64) -> Result<String, Failure> {
    let (path, table) = (&*settings.path, &settings.table);
    let may_write = access(path, Access::READ_OK | Access::WRITE_OK).map_err(std::io::Error::from);
    may_write.map_err(|error| Failure::opening(&error, path))?;
    let failure = |error| Failure::of(&error, path);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failure)?;
    let found = columns(&connection, table).map_err(failure)?;
    let size = ByteSize(size).display().iec();
    if found.is_empty() {
        return Ok(format!("it is there ({size}), and table {table} will be made"));
    }
    Ok(match lacking(&found, settings)?.len() {
        0 => format!("it is there ({size}), with table {table}"),
        count => format!("it is there ({size}), and {count} columns will be added to table {table}"),
    })
}
