//! The open database, and what is written to it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, Transaction, TransactionBehavior, params};

use super::SqliteSettings;
use super::refusal::Failure;
use super::schema::{self, Statements};
use super::writer::{Answer, Work};
use crate::event::Offset;
use crate::metrics::UpkeepFailures;
use crate::sink::table::{Cell, overtaken};
use crate::sink::{SinkError, Undelivered};

/// How long another program may hold the database locked.
const BUSY: Duration = Duration::from_secs(5);

/// After so many rows it is looked for what is not kept.
const LOOK_AFTER: usize = 1_000;

/// Permissions of a new database, less the umask: as those of a file sink.
const MODE: u32 = 0o640;

/// The database, opened when it is needed.
pub(super) struct Database {
    pub(super) settings: Arc<SqliteSettings>,
    pub(super) statements: Statements,
    pub(super) failures: UpkeepFailures,
    open: Option<Open>,
    /// When to look next for what is not kept.
    pub(super) upkeep_at: Option<Instant>,
    /// Rows that were written since that was decided.
    written: usize,
}

struct Open {
    connection: Connection,
    /// Device and number of the file.
    file: (u64, u64),
}

/// Why a group was not written.
struct Failed {
    /// How many rows of that work went before the one that failed.
    after: usize,
    failure: Failure,
}

/// What was done for one work.
type Done = Result<BTreeSet<Offset>, SinkError>;

impl Database {
    pub(super) fn new(settings: Arc<SqliteSettings>, failures: UpkeepFailures) -> Self {
        let statements = Statements::of(&settings);
        Self { settings, statements, failures, open: None, upkeep_at: None, written: 0 }
    }

    /// Writes what several lanes bring, all in one transaction; where an event of one is refused, each in one of its own.
    pub(super) fn write(&mut self, group: Vec<Work>) -> Vec<Answer> {
        let written = self.transaction(&group);
        self.written += group.iter().map(|work| work.rows.len()).sum::<usize>();
        if self.written >= LOOK_AFTER || self.upkeep_at.is_none() {
            (self.written, self.upkeep_at) = (0, Some(Instant::now()));
        }
        match written {
            Ok(done) => done.into_iter().map(|done| done.map_err(|error| Undelivered::after(0, error))).collect(),
            Err(Failed { failure, .. }) if failure.is_of_the_database() => {
                group.iter().map(|_| Err(Undelivered::after(0, failure.clone().error()))).collect()
            }
            Err(_) => group.into_iter().map(|work| self.write_one(work)).collect(),
        }
    }

    /// Writes the rows up to one that is refused.
    fn write_one(&mut self, mut work: Work) -> Answer {
        let (after, failure) = match self.one(&work) {
            Ok(done) => return done.map_err(|error| Undelivered::after(0, error)),
            Err(Failed { after, failure }) => (after, failure),
        };
        if after > 0 {
            work.keep_first(after);
            let written = self.one(&work).unwrap_or_else(|failed| Err(failed.failure.error()));
            written.map_err(|error| Undelivered::after(0, error))?;
        }
        Err(Undelivered::after(after, failure.error()))
    }

    fn one(&mut self, work: &Work) -> Result<Done, Failed> {
        let done = self.transaction(std::slice::from_ref(work))?;
        Ok(done.into_iter().next().unwrap_or(Ok(BTreeSet::new())))
    }

    fn transaction(&mut self, group: &[Work]) -> Result<Vec<Done>, Failed> {
        let (settings, statements) = (self.settings.clone(), self.statements.clone());
        let opened = self.opened().map_err(|failure| Failed { after: 0, failure });
        let failed = |error: rusqlite::Error, after| Failed { after, failure: Failure::of(&error, &settings.path) };
        let written = opened.and_then(|connection| {
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate);
            let transaction = transaction.map_err(|error| failed(error, 0))?;
            let each = group
                .iter()
                .map(|work| statements.write(&transaction, work).map_err(|(error, after)| failed(error, after)));
            let done = each.collect::<Result<Vec<_>, _>>()?;
            transaction.commit().map_err(|error| failed(error, 0))?;
            Ok(done)
        });
        if written.as_ref().is_err_and(|failed| failed.failure.is_of_the_database()) {
            // Opened anew, and its tables looked at again, by what comes next.
            self.open = None;
        }
        written
    }

    /// The connection: opened where it is not, or where its path leads to another file by now.
    pub(super) fn opened(&mut self) -> Result<&mut Connection, Failure> {
        if self.open.as_ref().is_some_and(|open| identity(&self.settings.path) != Some(open.file)) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(self.connect()?);
        }
        self.open.as_mut().map(|open| &mut open.connection).ok_or_else(|| Failure::missing(&self.settings.path))
    }

    pub(super) fn reopen(&mut self) -> Result<(), SinkError> {
        self.open = None;
        self.opened().map(drop).map_err(Failure::error)
    }

    fn connect(&self) -> Result<Open, Failure> {
        let path = &*self.settings.path;
        // SQLite would give it other permissions.
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(path);
        made.map_err(|error| Failure::opening(&error, path))?;
        let file = identity(path).ok_or_else(|| Failure::missing(path))?;
        let failure = |error| Failure::of(&error, path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failure)?;
        connection.busy_timeout(BUSY).map_err(failure)?;
        connection.execute_batch(schema::BEFORE_THE_LOG).map_err(failure)?;
        let journal = connection.query_row("pragma journal_mode = wal", [], |row| row.get::<_, String>(0));
        if journal.map_err(failure)? != "wal" {
            return Err(Failure::without_log(path));
        }
        connection.execute_batch(schema::AFTER_THE_LOG).map_err(failure)?;
        schema::prepare(&mut connection, &self.settings)?;
        Ok(Open { connection, file })
    }
}

/// Device and number of the file that a path leads to.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Statements {
    /// Moves the lane's position, inserts its rows, and looks for what it asks for. An error comes with the number of rows
    /// before it.
    fn write(&self, transaction: &Transaction<'_>, work: &Work) -> Result<Done, (rusqlite::Error, usize)> {
        let at_first = |error| (error, 0);
        let channel = work.lane.channel.id.to_string();
        let epoch = i64::try_from(work.epoch).unwrap_or(i64::MAX);
        let position = params![channel, work.lane.sink, work.through.map(Offset::get), epoch];
        if transaction.execute(&self.progress, position).map_err(at_first)? == 0 {
            return Ok(Err(overtaken(&work.lane, work.epoch, &self.progress_table)));
        }
        let mut insert = transaction.prepare(&self.insert).map_err(at_first)?;
        let index = self.index.as_ref().map(|index| transaction.prepare(index)).transpose();
        let mut index = index.map_err(at_first)?;
        for (after, row) in work.rows.iter().enumerate() {
            let inserted = insert.execute(rusqlite::params_from_iter(&row.0)).map_err(|error| (error, after))?;
            if let Some(index) = index.as_mut().filter(|_| inserted > 0) {
                index.execute([transaction.last_insert_rowid()]).map_err(|error| (error, after))?;
            }
        }
        let mut there = transaction.prepare(&self.look).map_err(at_first)?;
        let mut found = BTreeSet::new();
        for offset in &work.asked {
            if there.exists(params![channel, offset.get()]).map_err(at_first)? {
                found.insert(*offset);
            }
        }
        Ok(Ok(found))
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
