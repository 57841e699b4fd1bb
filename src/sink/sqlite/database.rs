//! The open database, and writing to it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tracing::{error, info, warn};

use super::SqliteSettings;
use super::files::{self, Files};
use super::refusal;
use super::schema::{self, Statements};
use super::work::{Answer, Done, Work};
use crate::{Fault, Resumed, SinkError, Undelivered};
use net::Chain;
use telemetry::metrics::UpkeepFailures;

/// How long to wait for a lock of another program.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Upkeep runs after this many rows.
const LOOK_AFTER: usize = 1_000;

/// After this time without a delivery the log is written into the main file.
const IDLE: Duration = Duration::from_secs(1);

/// The permissions of a new database, reduced by the umask. A file sink uses the same permissions.
const MODE: u32 = 0o640;

/// The database, opened when it is needed.
pub(super) struct Database {
    pub(super) settings: Arc<SqliteSettings>,
    pub(super) statements: Statements,
    pub(super) failures: UpkeepFailures,
    open: Option<Open>,
    /// When upkeep runs next.
    pub(super) upkeep_at: Option<Instant>,
    /// How many rows were written since upkeep was last scheduled by rows.
    written: usize,
    /// When to write the log into the main file, unless a delivery arrives before.
    rest_at: Option<Instant>,
}

/// An open database. The fields are in this order because the connection must be closed before the files.
struct Open {
    connection: Connection,
    files: Files,
}

/// Why a transaction was not written.
struct Failed {
    /// How many rows of the failed work precede the row that failed.
    after: usize,
    failure: SinkError,
}

impl Database {
    pub(super) fn new(settings: Arc<SqliteSettings>, failures: UpkeepFailures) -> Self {
        let statements = Statements::of(&settings);
        Self { settings, statements, failures, open: None, upkeep_at: None, written: 0, rest_at: None }
    }

    /// Writes the work of several lanes in one transaction. If an event is refused, writes the work of each lane in its own
    /// transaction.
    pub(super) fn write(&mut self, group: Vec<Work>) -> Vec<Answer> {
        let written = self.transaction(&group);
        self.rest_at = Some(Instant::now() + IDLE);
        self.written += group.iter().map(Work::rows).sum::<usize>();
        if self.written >= LOOK_AFTER || self.upkeep_at.is_none() {
            (self.written, self.upkeep_at) = (0, Some(Instant::now()));
        }
        match written {
            Ok(done) => done.into_iter().map(|done| done.map_err(|error| Undelivered::after(0, error))).collect(),
            Err(Failed { failure, .. }) if failure.fault() != Fault::Event => {
                group.iter().map(|_| Err(Undelivered::after(0, failure.clone()))).collect()
            }
            Err(_) => group.into_iter().map(|work| self.write_one(work)).collect(),
        }
    }

    /// Writes the work of one lane, up to the first row that is refused.
    fn write_one(&mut self, mut work: Work) -> Answer {
        let (after, failure) = match self.one(&work) {
            Ok(done) => return done.map_err(|error| Undelivered::after(0, error)),
            Err(Failed { after, failure }) => (after, failure),
        };
        if after > 0 {
            work.keep_first(after);
            let written = self.one(&work).unwrap_or_else(|failed| Err(failed.failure));
            written.map_err(|error| Undelivered::after(0, error))?;
        }
        Err(Undelivered::after(after, failure))
    }

    fn one(&mut self, work: &Work) -> Result<Done, Failed> {
        let done = self.transaction(std::slice::from_ref(work))?;
        Ok(done.into_iter().next().unwrap_or_else(|| Ok(Resumed::default())))
    }

    fn transaction(&mut self, group: &[Work]) -> Result<Vec<Done>, Failed> {
        let (settings, statements) = (self.settings.clone(), self.statements.clone());
        let opened = self.opened().map_err(|failure| Failed { after: 0, failure });
        let failed = |error: rusqlite::Error, after| Failed { after, failure: refusal::of(&error, &settings.path) };
        let written = opened.and_then(|connection| {
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate);
            let transaction = transaction.map_err(|error| failed(error, 0))?;
            let each = group
                .iter()
                .map(|work| statements.carry_out(&transaction, work).map_err(|(error, after)| failed(error, after)));
            let done = each.collect::<Result<Vec<_>, _>>()?;
            transaction.commit().map_err(|error| failed(error, 0))?;
            Ok(done)
        });
        if written.as_ref().is_err_and(|failed| failed.failure.fault() != Fault::Event) {
            // The next use opens the database again and checks its tables. If closing fails, the next use reports it.
            drop(self.close());
        }
        self.note();
        written
    }

    /// The connection. Opens the database if it is not open, or if the path now leads to another file or content.
    pub(super) fn opened(&mut self) -> Result<&mut Connection, SinkError> {
        self.close_changed()?;
        if self.open.is_none() {
            self.open = Some(self.connect()?);
        }
        self.open.as_mut().map(|open| &mut open.connection).ok_or_else(|| refusal::missing(&self.settings.path))
    }

    pub(super) fn reopen(&mut self) -> Result<(), SinkError> {
        self.close().and_then(|()| self.opened().map(drop))
    }

    /// Closes the database if its path leads to another file or content.
    fn close_changed(&mut self) -> Result<(), SinkError> {
        match &self.open {
            Some(open) if !open.files.is_at_path() => self.close(),
            Some(open) if open.files.is_overwritten() => self.discard(),
            _ => Ok(()),
        }
    }

    /// Notes the state of the files after they were used.
    pub(super) fn note(&mut self) {
        if let Some(open) = &mut self.open {
            open.files.note();
        }
    }

    /// Closes the database. If the file was moved, the log, which stays at the path, is first written into it.
    fn close(&mut self) -> Result<(), SinkError> {
        let Some(Open { connection, files }) = self.open.take() else { return Ok(()) };
        if files.is_at_path() {
            drop(connection);
            files.remove_owner();
            return Ok(());
        }
        if !files.is_removed() {
            let path = &self.settings.path;
            match checkpoint(&connection) {
                Ok(true) => {
                    let path = path.display();
                    info!(%path, "the database was moved: its log was written into it, and it was closed");
                }
                Ok(false) => {
                    self.open = Some(Open { connection, files });
                    return Err(refusal::of_reader(path));
                }
                Err(error) if is_damaged(&error) => {
                    // The damaged file cannot be written. The log stays, so that an operator can repair the database.
                    drop(connection);
                    return Err(refusal::of(&error, path));
                }
                Err(error) => {
                    self.open = Some(Open { connection, files });
                    return Err(refusal::of(&error, path));
                }
            }
        }
        drop(connection);
        files.remove_log();
        Ok(())
    }

    /// Closes a file whose content was replaced. The log belongs to the previous content, and is not written into the file.
    fn discard(&mut self) -> Result<(), SinkError> {
        let Some(Open { connection, files }) = self.open.take() else { return Ok(()) };
        let path = &self.settings.path;
        if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            self.open = Some(Open { connection, files });
            return Err(refusal::of(&error, path));
        }
        drop(connection);
        files.remove_log();
        warn!(path = %path.display(), "the content of the database was replaced while it was open: it is read again");
        Ok(())
    }

    /// How long to wait for work before something else is due.
    pub(super) fn is_due_in(&self) -> Duration {
        let rest = self.rest_at.map(|at| at.saturating_duration_since(Instant::now()));
        rest.into_iter().chain([self.upkeep_is_due_in()]).min().unwrap_or_default()
    }

    /// Does the due tasks while no delivery waits.
    pub(super) fn rest(&mut self) {
        if self.rest_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.empty_log();
        }
        if self.upkeep_is_due_in().is_zero() {
            self.upkeep();
        }
    }

    /// Writes the log into the main file. The file is then complete, so that copying or moving it alone loses nothing. A
    /// reader may prevent this.
    fn empty_log(&mut self) {
        // If this fails, the next delivery reports it.
        drop(self.close_changed());
        let Some(open) = self.open.as_mut().filter(|open| open.files.is_at_path()) else { return };
        // Events that arrive meanwhile must not wait for a reader.
        let set = |busy| open.connection.busy_timeout(busy);
        let emptied = set(Duration::ZERO).and_then(|()| checkpoint(&open.connection)).and_then(|_| set(BUSY));
        open.files.note();
        if emptied.is_err() {
            drop(self.close());
        }
    }

    /// Closes the database for good.
    pub(super) fn end(&mut self) {
        if let Err(error) = self.close() {
            let path = self.settings.path.display();
            error!(%path, error = %Chain(&error), "the database was moved, and its last rows are only in the log at its path: move the log to the moved file, with -wal at its end");
        }
    }

    fn connect(&self) -> Result<Open, SinkError> {
        let path = &*self.settings.path;
        files::check_log(path)?;
        // SQLite would create the file with other permissions.
        let main = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path);
        let main = main.map_err(|error| refusal::opening(&error, path))?;
        let failure = |error| refusal::of(&error, path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failure)?;
        connection.busy_timeout(BUSY).map_err(failure)?;
        connection.execute_batch(schema::BEFORE_THE_LOG).map_err(failure)?;
        let journal = connection.query_row("pragma journal_mode = wal", [], |row| row.get::<_, String>(0));
        if journal.map_err(failure)? != "wal" {
            return Err(refusal::without_log(path));
        }
        connection.execute_batch(schema::AFTER_THE_LOG).map_err(failure)?;
        schema::prepare(&mut connection, &self.settings)?;
        let mut open = Open { connection, files: Files::of(path, main)? };
        open.files.note();
        Ok(open)
    }
}

/// Writes the log into the main file and empties the log. Returns whether the whole log was written, which a reader may
/// prevent.
fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("pragma wal_checkpoint(truncate)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
}

fn is_damaged(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
