//! Opens the database, writes to it, and closes it if its file was moved or replaced.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tracing::{error, info, warn};

use super::SqliteSettings;
use super::connections::{BUSY, ConnectedFile, connect};
use super::error::{self, SqliteError};
use super::feed::FeedReader;
use super::files::{self, Files};
use super::lane::{LaneResult, Work};
use super::schema::positions::number_existing;
use super::schema::{self, Statements};
use crate::{Fault, Resumed, SinkError, Undelivered};
use net::Chain;
use telemetry::metrics::UpkeepFailures;

/// Upkeep runs after this many rows were written.
const LOOK_AFTER: usize = 1_000;

/// After this time without a delivery, the write-ahead log is written into the main file.
const IDLE: Duration = Duration::from_secs(1);

/// A log of this length, in bytes, is unusual: SQLite keeps it near 32 MiB if no other program reads for long.
const LONG_LOG: u64 = 64 << 20;

/// How long an attempt to open the database numbers existing rows. The next attempt continues.
const NUMBERING: Duration = Duration::from_secs(5);

/// The database. It is opened when it is needed.
pub(super) struct Database {
    pub(super) settings: Arc<SqliteSettings>,
    pub(super) statements: Statements,
    pub(super) failures: UpkeepFailures,
    open: Option<OpenDatabase>,
    /// The connection of the feed. It is closed before this one, so that closing this one writes the log into the file.
    reader: Arc<FeedReader>,
    /// When upkeep runs next.
    pub(super) upkeep_at: Option<Instant>,
    /// How many rows were written since upkeep was last scheduled because of [`LOOK_AFTER`].
    written: usize,
    /// When to write the log into the main file, unless a delivery arrives earlier.
    rest_at: Option<Instant>,
    /// Whether it was reported that a reader keeps the log long.
    pub(super) is_log_reported: bool,
}

/// An open database. The fields are in the order in which they must be dropped.
struct OpenDatabase {
    connection: Connection,
    files: Files,
    _connected: ConnectedFile,
}

impl Database {
    pub(super) fn new(settings: Arc<SqliteSettings>, failures: UpkeepFailures, reader: Arc<FeedReader>) -> Self {
        let statements = Statements::of(&settings);
        Self {
            settings,
            statements,
            failures,
            open: None,
            reader,
            upkeep_at: None,
            written: 0,
            rest_at: None,
            is_log_reported: false,
        }
    }

    /// Writes the work of several lanes in one transaction. If a row is refused, writes the work of each lane in its own
    /// transaction.
    pub(super) fn write(&mut self, group: Vec<Work>) -> Vec<LaneResult> {
        let written = self.transaction(&group);
        self.rest_at = Some(Instant::now() + IDLE);
        self.written += group.iter().map(Work::rows).sum::<usize>();
        if self.written >= LOOK_AFTER || self.upkeep_at.is_none() {
            (self.written, self.upkeep_at) = (0, Some(Instant::now()));
        }
        match written {
            Ok(answers) => answers,
            Err(failure) if failure.may_be_of_one_row() => group.into_iter().map(|work| self.write_one(work)).collect(),
            Err(failure) => {
                let error = failure.at(&self.settings.path);
                group.iter().map(|_| Err(Undelivered::after(0, error.clone()))).collect()
            }
        }
    }

    /// Writes the work of one lane, up to the first row that is refused.
    fn write_one(&mut self, mut work: Work) -> LaneResult {
        let failure = match self.transaction(std::slice::from_ref(&work)) {
            Ok(mut answers) => return answers.pop().unwrap_or_else(|| Ok(Resumed::default())),
            Err(failure) if failure.may_be_of_one_row() => failure,
            Err(failure) => return Err(Undelivered::after(0, failure.at(&self.settings.path))),
        };
        let accepted = match failure {
            SqliteError::Sqlite(_, Some(before)) => before,
            _ => work.rows() / 2,
        };
        let Some(rest) = (accepted > 0).then(|| work.split_off(accepted)).flatten() else {
            return Err(Undelivered::after(0, self.judged(&work, failure)));
        };
        self.write_one(work)?;
        let written = match failure {
            SqliteError::Sqlite(_, None) => self.write_one(rest),
            failure => Err(Undelivered::after(0, self.judged(&rest, failure))),
        };
        written.map_err(|Undelivered { delivered, error, .. }| Undelivered::after(accepted + delivered, error))
    }

    /// The error of work whose first row was refused alone.
    fn judged(&mut self, work: &Work, failure: SqliteError) -> SinkError {
        let path = self.settings.path.clone();
        if let (Work::Deliver { .. }, SqliteError::Sqlite(_, None)) = (work, &failure) {
            // A deferred constraint is compared only at the end of a transaction that is not rolled back.
            return SinkError::refused(failure.at(&path).to_string());
        }
        let statements = self.statements.clone();
        let opened = self.opened().map_err(SqliteError::from);
        match opened.and_then(|connection| statements.other_content(connection, work)) {
            Ok(other) => {
                let error = failure.at(&path).judged(other);
                if error.fault() != Fault::Event {
                    // The next use opens the database again and checks its tables.
                    drop(self.close());
                }
                error
            }
            Err(failure) => failure.at(&path),
        }
    }

    fn transaction(&mut self, group: &[Work]) -> Result<Vec<LaneResult>, SqliteError> {
        let (settings, statements) = (self.settings.clone(), self.statements.clone());
        let opened = self.opened().map_err(SqliteError::from);
        let written = opened.and_then(|connection| statements.carry_out_all(connection, group));
        if written.as_ref().is_err_and(|failure| !failure.may_be_of_one_row()) {
            // The next use opens the database again and checks its tables. If closing fails, the next use reports it.
            drop(self.close());
        }
        self.note();
        let undelivered = |failure: SqliteError| Undelivered::after(0, failure.at(&settings.path));
        Ok(written?.into_iter().map(|done| done.map_err(undelivered)).collect())
    }

    /// The connection. Opens the database if it is not open, or if the path now leads to another file or content.
    pub(super) fn opened(&mut self) -> Result<&mut Connection, SinkError> {
        self.close_changed()?;
        let open = if let Some(open) = self.open.take() { open } else { self.connect()? };
        Ok(&mut self.open.insert(open).connection)
    }

    /// Does the work of a feed in one transaction.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, SinkError> {
        let settings = self.settings.clone();
        let opened = self.opened().map_err(SqliteError::from);
        let done = opened.and_then(|connection| {
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        });
        self.rest_at = Some(Instant::now() + IDLE);
        if done.is_err() {
            drop(self.close());
        }
        self.note();
        done.map_err(|failure| failure.at(&settings.path))
    }

    /// Closes the open file, and opens the file that is now at the path.
    pub(super) fn reopen(&mut self) -> Result<(), SinkError> {
        self.close().and_then(|()| self.opened().map(drop))
    }

    /// Closes the database if its path leads to another file or content.
    pub(super) fn close_changed(&mut self) -> Result<(), SinkError> {
        match &self.open {
            Some(open) if !open.files.is_at_path() => self.close(),
            Some(open) if open.files.is_overwritten() => self.discard(),
            _ => Ok(()),
        }
    }

    pub(super) fn note(&mut self) {
        if let Some(open) = &mut self.open {
            open.files.note();
        }
    }

    /// Closes the database. If the file was moved, its log stayed at the path. The log is then first written into the moved
    /// file.
    fn close(&mut self) -> Result<(), SinkError> {
        let reader = self.reader.clone();
        // Until the log was removed: the reader must not open it. The reader is also closed if the database is not open, because the
        // database cannot be opened while the reader uses a log that was removed.
        let _closed = reader.close();
        let Some(open) = self.open.take() else { return Ok(()) };
        if open.files.is_at_path() {
            drop(open.connection);
            open.files.remove_owner();
            return Ok(());
        }
        if !open.files.is_removed() {
            let path = &self.settings.path;
            let failure = match checkpoint(&open.connection) {
                Ok(true) => None,
                Ok(false) => Some(SinkError::away(format!(
                    "{} was moved or replaced, and the rows in its log cannot be written into the moved file while another \
                     program reads it: end the transaction of that program",
                    path.display()
                ))),
                Err(error) => {
                    let failure = error::of(&error, path);
                    if let Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) = error.sqlite_error_code() {
                        // The damaged file cannot be written. The log stays, so that an operator can repair the database.
                        return Err(failure);
                    }
                    Some(failure)
                }
            };
            if let Some(failure) = failure {
                self.open = Some(open);
                return Err(failure);
            }
            let path = path.display();
            info!(%path, "the database was moved: its log was written into the moved file, and the moved file was closed");
        }
        drop(open.connection);
        open.files.remove_log();
        Ok(())
    }

    /// Closes a file whose content was replaced. The log belongs to the previous content, so it is removed and not written
    /// into the file.
    fn discard(&mut self) -> Result<(), SinkError> {
        let reader = self.reader.clone();
        let _closed = reader.close();
        let Some(open) = self.open.take() else { return Ok(()) };
        let path = &self.settings.path;
        if let Err(error) = open.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            self.open = Some(open);
            return Err(error::of(&error, path));
        }
        drop(open.connection);
        open.files.remove_log();
        warn!(path = %path.display(), "the content of the database was replaced while it was open: opening it again");
        Ok(())
    }

    pub(super) fn is_due_in(&self) -> Duration {
        let rest = self.rest_at.map(|at| at.saturating_duration_since(Instant::now()));
        rest.into_iter().chain([self.upkeep_is_due_in()]).min().unwrap_or_default()
    }

    pub(super) fn rest(&mut self) {
        if self.rest_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.empty_log();
        }
        if self.upkeep_is_due_in().is_zero() {
            self.upkeep();
        }
    }

    /// Writes the log into the main file. The main file is then complete, so that copying or moving it alone loses nothing.
    /// Another program that reads the database may prevent this.
    fn empty_log(&mut self) {
        // If this fails, the next delivery reports it.
        drop(self.close_changed());
        let Some(open) = self.open.as_mut().filter(|open| open.files.is_at_path()) else { return };
        let emptied = checkpoint_now(&open.connection);
        open.files.note();
        match emptied {
            Ok(is_whole) => self.report_log(is_whole, LONG_LOG),
            Err(_) => drop(self.close()),
        }
    }

    pub(super) fn end(&mut self) {
        if let Err(error) = self.close() {
            let path = self.settings.path.display();
            error!(%path, error = %Chain(&error), "the database was moved, and its last rows are only in the log at the old path: move the log next to the moved file, and name it like that file with -wal at the end");
        }
    }

    fn connect(&self) -> Result<OpenDatabase, SinkError> {
        let path = &*self.settings.path;
        files::check_log(path)?;
        if let Ok(metadata) = fs::metadata(path) {
            files::require_regular(path, &metadata)?;
        }
        // SQLite would create the file with other permissions.
        let (connected, main) = ConnectedFile::create(path).map_err(|error| error::opening(&error, path))?;
        let connection = open(&self.settings, &self.statements).map_err(|failure| failure.at(path))?;
        let mut files = Files::of(path, &connected, main)?;
        files.note();
        Ok(OpenDatabase { connection, files, _connected: connected })
    }
}

/// Opens a database whose file exists, and completes its tables.
fn open(settings: &SqliteSettings, statements: &Statements) -> Result<Connection, SqliteError> {
    let mut connection = connect(&settings.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.execute_batch(schema::BEFORE_THE_LOG)?;
    let journal = connection.query_row("pragma journal_mode = wal", [], |row| row.get::<_, String>(0))?;
    if journal != "wal" {
        return Err(SqliteError::Other(SinkError::unusable(format!(
            "the file system of {} does not support a write-ahead log, as is common on a network: put the database on a local disk",
            settings.path.display()
        ))));
    }
    connection.execute_batch(schema::AFTER_THE_LOG)?;
    let transaction = Transaction::new(&mut connection, TransactionBehavior::Immediate)?;
    schema::complete(&transaction, settings, true)?;
    transaction.commit()?;
    let (rows, is_complete) = number_existing(&mut connection, &statements.positions, Instant::now() + NUMBERING)?;
    if rows > 0 {
        info!(table = settings.table, rows, is_complete, "rows of an older version got their positions");
    }
    if is_complete {
        return Ok(connection);
    }
    Err(SqliteError::Other(SinkError::away(format!(
        "the existing rows of {} get their positions, once: retrying until all rows have one",
        settings.path.display()
    ))))
}

/// Like [`checkpoint`], but does not wait for readers. Events that arrive meanwhile must not wait until another program has
/// finished reading.
pub(super) fn checkpoint_now(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let is_whole = checkpoint(connection);
    connection.busy_timeout(BUSY)?;
    is_whole
}

/// Writes the log into the main file and empties the log. Returns whether the whole log was written. Another program that
/// reads the database may prevent this.
fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("pragma wal_checkpoint(truncate)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
}
