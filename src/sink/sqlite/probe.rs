//! Checks a database for `check --connect`: executes the statements of the daemon in a transaction that is rolled back.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;
use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::{Access, access};
use uuid::Uuid;

use super::connections::{ConnectedFile, connect};
use super::error::{self, SqliteError};
use super::lane::Work;
use super::read::read;
use super::schema::{self, Statements, columns, key, lacking};
use super::{SqliteSettings, files};
use crate::system::{directory_of, if_there, target_of};
use crate::table::{Row, operations};
use crate::{LaneRef, Recorded, SinkError};
use record::{Message, Record, Shape};

/// The sink in the marked row that the transaction writes.
const TRIAL: &str = "check";

pub(super) fn probe(settings: &SqliteSettings) -> Result<String, SinkError> {
    let (path, table) = (&*settings.path, &settings.table);
    let may = |path: &Path, right| access(path, right).map_err(|error| error::opening(&io::Error::from(error), path));
    let failed = |failure: SqliteError| failure.at(path);
    may(directory_of(path), Access::WRITE_OK | Access::EXEC_OK)?;
    let Some(metadata) = if_there(fs::metadata(path)).map_err(|error| error::opening(&error, path))? else {
        may(directory_of(&target_of(path)), Access::WRITE_OK | Access::EXEC_OK)?;
        files::check_log(path)?;
        // A new database in memory accepts and refuses the same statements as a new file.
        let new = Connection::open_in_memory().map_err(SqliteError::from);
        new.and_then(|mut new| rehearse(&mut new, settings)).map_err(failed)?;
        return Ok("it does not exist yet and will be created".to_owned());
    };
    files::require_regular(path, &metadata)?;
    may(path, Access::READ_OK | Access::WRITE_OK)?;
    let size = ByteSize(metadata.len()).display().iec();
    let found = read(settings, |connection| {
        let found = columns(connection, table)?;
        if found.is_empty() {
            return Ok(format!("it exists ({size}), and table {table} will be created"));
        }
        let operations = match operations::table(&settings.table) {
            _ if !settings.operations => String::new(),
            table if columns(connection, &table)?.is_empty() => format!("; table {table} will be created"),
            table => format!("; table {table} exists"),
        };
        let is_current = key::old(connection, table)?.is_empty();
        let replaced = if is_current { "" } else { "; its key will be replaced" };
        Ok(match lacking(&found, settings)?.len() {
            0 => format!("it exists ({size}), with table {table}{operations}{replaced}"),
            count => {
                format!("it exists ({size}), and {count} columns will be added to table {table}{operations}{replaced}")
            }
        })
    })?;
    let _connected = ConnectedFile::of(&metadata);
    open(path).and_then(|mut connection| rehearse(&mut connection, settings)).map_err(failed)?;
    Ok(found.unwrap_or_else(|| format!("it was removed during the check: {} will be created", path.display())))
}

/// Opens an existing database for a transaction that changes nothing.
fn open(path: &Path) -> Result<Connection, SqliteError> {
    // A crash can leave rows in the log. Only the daemon writes them into the main file.
    let has_log = fs::metadata(files::beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    Ok(connection)
}

/// Creates or completes the tables, and delivers a marked row with a position, in a transaction that is rolled back.
fn rehearse(connection: &mut Connection, settings: &SqliteSettings) -> Result<(), SqliteError> {
    let record = Arc::new(Record::of_test(TRIAL, Uuid::new_v4(), Timestamp::now()));
    let lane = LaneRef { channel: record.channel.clone(), sink: TRIAL.into() };
    let message = Message::new(&record, &Shape::default());
    let rows = vec![Row::of(&message, Timestamp::now(), settings.operations)];
    let resume = Work::Resume(Recorded::new(lane.clone(), 0));
    let deliver = Work::Deliver { lane, epoch: 0, after: None, through: record.offset, rows };
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    schema::complete(&transaction, settings, false)?;
    let statements = Statements::of(settings);
    for work in [resume, deliver] {
        statements.carry_out(&transaction, &work)?;
    }
    Ok(transaction.rollback()?)
}
