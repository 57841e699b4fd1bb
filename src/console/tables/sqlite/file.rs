//! Opens the file, and runs queries with a time limit.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use crate::tables::backend::Unread;
use crate::tables::sql::Value;
use net::tasks::{joined, lock};
use sink::SqliteSettings;

/// How long a query waits if another program has locked the file.
const BUSY: Duration = Duration::from_secs(1);

/// The largest number of idle connections.
const IDLE: usize = 4;

/// A table in a SQLite file.
pub(crate) struct Sqlite {
    pub(super) settings: SqliteSettings,
    /// Idle connections, each with the device and inode of its open file.
    idle: Mutex<Vec<((u64, u64), Connection)>>,
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Number(number) => ToSqlOutput::Owned(SqlValue::Integer(*number)),
            // Only PostgreSQL has lists.
            Self::Texts(_) => ToSqlOutput::Owned(SqlValue::Null),
        })
    }
}

impl Sqlite {
    pub(crate) fn new(settings: SqliteSettings) -> Self {
        Self { settings, idle: Mutex::default() }
    }

    /// Runs `work` with a connection, and interrupts it at the deadline.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Unread> {
        let (file, connection) = self.connection().await?;
        let interrupt = connection.get_interrupt_handle();
        let mut working = spawn_blocking(move || (work(&connection), connection));
        let done = if let Ok(done) = timeout_at(deadline.into(), &mut working).await {
            done
        } else {
            interrupt.interrupt();
            working.await
        };
        let (answer, connection) = joined(done).await;
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE {
            idle.push((file, connection));
        }
        drop(idle);
        answer.map_err(|error| self.unread(&error))
    }

    /// Returns a connection to the file that is at the path now.
    async fn connection(&self) -> Result<((u64, u64), Connection), Unread> {
        let path = self.settings.path.clone();
        let found = std::fs::metadata(&path).map_err(|error| {
            let path = path.display();
            Unread::Failed(match error.kind() {
                std::io::ErrorKind::NotFound => {
                    format!("The database {path} is not there yet: it is made when the first event is delivered.")
                }
                _ => format!("The database {path} cannot be read: {error}."),
            })
        })?;
        let file = (found.dev(), found.ino());
        let kept = {
            let mut idle = lock(&self.idle);
            idle.retain(|(its, _)| *its == file);
            idle.pop()
        };
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let opened = spawn_blocking(move || open(path));
        let connection = joined(opened.await).await.map_err(|error| self.unread(&error))?;
        Ok((file, connection))
    }

    fn unread(&self, error: &rusqlite::Error) -> Unread {
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            return Unread::Slow;
        }
        let (path, table) = (self.settings.path.display(), &self.settings.table);
        let message = error.to_string();
        if message.contains("no such table") {
            return Unread::Failed(format!(
                "Table {table} does not exist in {path} yet: no event was delivered to it."
            ));
        }
        Unread::Failed(format!("{path} cannot be read: {message}."))
    }

    /// The name of the table in a statement.
    pub(super) fn table(&self) -> String {
        format!("\"{}\"", self.settings.table)
    }

    /// The name of the word index in a statement.
    pub(super) fn search_table(&self) -> String {
        format!("\"{}_search\"", self.settings.table)
    }
}

fn open(path: PathBuf) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.execute_batch("pragma query_only = on; pragma cache_size = -16384; pragma temp_store = memory;")?;
    Ok(connection)
}
