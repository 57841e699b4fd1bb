//! The feed of an SQLite table.
//!
//! A connection of its own reads events and cursors, so that reading and writing do not wait for each other. Leases and commits are
//! work for the thread that writes, because SQLite has only one writer at a time.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use uuid::Uuid;

use super::read::OpenReader;
use super::schema::columns;
use super::{SqliteSettings, Writing, error};
use crate::feed::lease::{ConsumerRef, Cursor, LeaseStore, NewLease, checked_cursor, lease};
use crate::feed::{
    ChannelPosition, Committed, ConsumerState, FeedError, FeedPage, FeedPosition, FeedTable, Leased, PageSize,
};
use crate::system::identity_at;
use crate::table::{POSITION, consumers, progress};
use crate::{SinkError, blocking};
use net::Chain;
use net::tasks::lock;

mod statements;

use statements::{FeedStatements, channel_position, state};

/// How often the feed checks whether another connection has written to the database: the connection of another process, or of this sink
/// before a reload. Only the connection of this sink tells the feed.
const POLL: Duration = Duration::from_secs(5);

pub(super) struct SqliteFeed {
    statements: Arc<FeedStatements>,
    reader: Arc<FeedReader>,
    changes: watch::Sender<u64>,
    /// Started at the first request for changes.
    listener: OnceLock<AbortOnDropHandle<()>>,
    /// One thread at a time reads. The others would only wait for the connection. The turn belongs to the thread, which continues
    /// when its request was canceled.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The connection that reads. It is opened when it is needed.
pub(super) struct FeedReader {
    settings: Arc<SqliteSettings>,
    /// The feed does not keep the database open after its sink has ended.
    writing: Weak<Writing>,
    open: Mutex<Option<OpenReader>>,
    /// Whether this process has read the database. If it has disappeared since, its channels are not empty.
    has_read: AtomicBool,
}

impl FeedReader {
    pub(super) fn new(settings: Arc<SqliteSettings>, writing: Weak<Writing>) -> Self {
        Self { settings, writing, open: Mutex::default(), has_read: AtomicBool::default() }
    }

    fn writing(&self) -> Result<Arc<Writing>, SinkError> {
        self.writing.upgrade().ok_or_else(|| SinkError::away("the sink of this feed has ended: retry".to_owned()))
    }

    /// Closes the connection. Waits until nothing reads. No connection is opened until the result is dropped.
    pub(super) fn close(&self) -> MutexGuard<'_, Option<OpenReader>> {
        let mut reader = lock(&self.open);
        *reader = None;
        reader
    }

    /// Reads in one transaction. `None` if the database or the table does not exist yet. Must be called on a thread that can block.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<Option<T>, SinkError> {
        let path = &*self.settings.path;
        let mut reader = lock(&self.open);
        if reader.as_ref().is_none_or(|open| identity_at(path) != Some(open.connected.identity())) {
            *reader = None;
            // The writer waits for this lock when it closes the database.
            drop(reader);
            Handle::current().block_on(self.writing()?.close_changed())?;
            reader = lock(&self.open);
        }
        if reader.is_none() {
            *reader = self.open()?;
        }
        let Some(open) = &mut *reader else { return Ok(None) };
        self.has_read.store(true, Ordering::Relaxed);
        let done = open.connection.transaction().and_then(|transaction| work(&transaction));
        done.map(Some).map_err(|error| {
            // The next use opens the database again.
            *reader = None;
            error::of(&error, path)
        })
    }

    /// Opens the database. `None` if it may be a new one, and the database or the table does not exist yet.
    fn open(&self) -> Result<Option<OpenReader>, SinkError> {
        let (path, table) = (&*self.settings.path, &self.settings.table);
        let may_be_new = !self.has_read.load(Ordering::Relaxed);
        let metadata = match fs::metadata(path) {
            Err(error) if may_be_new && error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|error| error::opening(&error, path))?,
        };
        let open = OpenReader::open(path, &metadata)?;
        let columns = |name: &str| columns(&open.connection, name).map_err(|error| error::of(&error, path));
        let (rows, lanes) = (columns(table)?, columns(&progress(table))?);
        // Another version may have created the tables without these columns.
        let has_positions = [&rows, &lanes].iter().all(|found| found.iter().any(|name| name == POSITION));
        if has_positions && !columns(&consumers(table))?.is_empty() {
            return Ok(Some(open));
        }
        if rows.is_empty() && may_be_new {
            return Ok(None);
        }
        Err(SinkError::away(format!(
            "the tables of {} have no positions or no consumers yet: the sink completes them when it writes next",
            path.display()
        )))
    }
}

impl SqliteFeed {
    pub(super) fn new(writing: &Arc<Writing>) -> Self {
        Self {
            statements: Arc::new(FeedStatements::of(&writing.settings)),
            reader: writing.reader.clone(),
            changes: writing.changes.clone(),
            listener: OnceLock::new(),
            turn: Arc::default(),
        }
    }

    /// Reads off the async threads. If the table does not exist yet, the result is the default.
    async fn read<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&FeedStatements, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        self.reader.writing()?;
        let (statements, reader) = (self.statements.clone(), self.reader.clone());
        let turn = self.turn.clone().lock_owned().await;
        let read = move || {
            let _turn = turn;
            reader.read(|connection| work(&statements, connection))
        };
        Ok(blocking(read).await?.unwrap_or_default())
    }

    /// Does work in one transaction, and waits until it is synced to disk.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FeedStatements, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let statements = self.statements.clone();
        let work = move |connection: &Connection| work(&statements, connection);
        self.reader.writing()?.writer()?.use_database(|database| database.transact(work)).await
    }
}

#[async_trait]
impl LeaseStore for SqliteFeed {
    async fn cursor(&self, ConsumerRef { consumer, channel }: ConsumerRef<'_>) -> Result<Option<Cursor>, SinkError> {
        let of = [consumer.to_owned(), channel.to_string()];
        let cursor = |row: &Row<'_>| Ok(Cursor { through: row.get(0)?, is_leased: row.get(1)? });
        self.read(move |statements, connection| {
            connection.prepare(&statements.cursor)?.query_row(of, cursor).optional()
        })
        .await
    }

    async fn take(&self, of: ConsumerRef<'_>, new: &NewLease) -> Result<bool, SinkError> {
        let (consumer, channel, new) = (of.consumer.to_owned(), of.channel.to_string(), new.clone());
        self.write(move |statements, connection| {
            let valid = format!("+{:.3} seconds", new.valid.as_secs_f64());
            let values = params![consumer, channel, new.after, new.lease, valid, new.through];
            Ok(connection.execute(&statements.take, values)? > 0)
        })
        .await
    }
}

#[async_trait]
impl FeedTable for SqliteFeed {
    async fn newest(&self, channel: Uuid) -> Result<FeedPosition, FeedError> {
        let channel = channel.to_string();
        Ok(self.read(move |statements, connection| statements.position(connection, &channel)).await?)
    }

    async fn page(&self, channel: Uuid, after: i64, most: PageSize) -> Result<FeedPage, FeedError> {
        let channel = channel.to_string();
        Ok(self.read(move |statements, connection| statements.page(connection, &channel, after, most)).await?)
    }

    async fn lease(&self, consumer: &str, channel: Uuid, most: PageSize, valid: Duration) -> Result<Leased, FeedError> {
        lease(self, ConsumerRef { consumer, channel }, most, valid).await
    }

    async fn commit(&self, consumer: &str, channel: Uuid, lease: &str, through: i64) -> Result<Committed, FeedError> {
        let (consumer, channel, lease) = (consumer.to_owned(), channel.to_string(), lease.to_owned());
        let committed = self.write(move |statements, connection| {
            let leased = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            let held = connection.query_row(&statements.held, params![consumer, channel, lease], leased).optional()?;
            Ok(match held {
                None => Committed::NotHeld,
                Some((after, last)) if !(after + 1..=last).contains(&through) => Committed::Beyond,
                Some(_) => {
                    connection.execute(&statements.set, params![consumer, channel, through])?;
                    Committed::Moved
                }
            })
        });
        Ok(committed.await?)
    }

    async fn consumers(&self) -> Result<Vec<ConsumerState>, FeedError> {
        let states = self.read(|statements, connection| {
            connection.prepare(&statements.consumers)?.query_map([], state)?.filter_map(Result::transpose).collect()
        });
        Ok(states.await?)
    }

    async fn channels(&self) -> Result<Vec<ChannelPosition>, FeedError> {
        let channels = self.read(|statements, connection| {
            let mut channels = connection.prepare(&statements.channels)?;
            channels.query_map([], channel_position)?.filter_map(Result::transpose).collect()
        });
        Ok(channels.await?)
    }

    async fn set_cursor(&self, consumer: &str, channel: Uuid, through: i64) -> Result<(), FeedError> {
        let through = checked_cursor(self, channel, through).await?;
        let (consumer, channel) = (consumer.to_owned(), channel.to_string());
        let set = self.write(move |statements, connection| {
            connection.execute(&statements.set, params![consumer, channel, through]).map(drop)
        });
        Ok(set.await?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.listener
            .get_or_init(|| AbortOnDropHandle::new(tokio::spawn(listen(self.reader.clone(), self.changes.clone()))));
        self.changes.subscribe()
    }
}

/// Tells the feed that another connection has written.
async fn listen(reader: Arc<FeedReader>, changes: watch::Sender<u64>) {
    let mut known = None;
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let reader = reader.clone();
        // SQLite changes this number when another connection has written.
        let version = |connection: &Connection| connection.pragma_query_value(None, "data_version", |row| row.get(0));
        match blocking(move || reader.read::<i64>(version)).await {
            Ok(version) => {
                if std::mem::replace(&mut known, version) != version {
                    changes.send_modify(|changes| *changes += 1);
                }
            }
            // If the database cannot be used, the next request of a reader reports it.
            Err(error) => {
                debug!(error = %Chain(&error), "the feed could not check whether another connection has written");
            }
        }
    }
}
