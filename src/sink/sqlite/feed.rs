//! The feed of an SQLite table.
//!
//! A connection of its own reads events and cursors, so that reading and writing do not wait for each other. Leases and commits are
//! work for the thread that writes, because SQLite has only one writer at a time.

use std::fs;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use tokio::sync::watch;
use uuid::Uuid;

use super::database::BUSY;
use super::error::SqliteError;
use super::schema::columns;
use super::{SqliteSettings, Writing, files};
use crate::feed::lease::{ConsumerRef, Cursor, LeaseStore, NewLease, is_within, lease, page};
use crate::feed::{Committed, ConsumerState, FeedError, FeedEvent, FeedPage, FeedPosition, FeedTable, Leased};
use crate::system::{Identity, identity_at};
use crate::table::positions::{POSITION, consumers};
use crate::table::{progress, quoted};
use crate::{SinkError, blocking};
use net::tasks::lock;

/// The time of the database, in the form in which the table of consumers stores times. They sort as texts.
const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

pub(super) struct SqliteFeed {
    settings: Arc<SqliteSettings>,
    statements: Arc<FeedStatements>,
    reader: Arc<FeedReader>,
    /// The feed does not keep the database open after its sink has ended.
    writing: Weak<Writing>,
    changes: watch::Receiver<u64>,
    /// One thread at a time reads. The others would only wait for the connection.
    turn: tokio::sync::Mutex<()>,
}

/// The connection that reads. It is opened when it is needed.
#[derive(Default)]
pub(super) struct FeedReader(Mutex<Option<OpenReader>>);

struct OpenReader {
    connection: Connection,
    /// The file that was opened.
    identity: Option<Identity>,
}

/// `?1` is the consumer and `?2` the channel, except in the statements that read events: there `?1` is the channel.
struct FeedStatements {
    newest: String,
    oldest: String,
    events: String,
    cursor: String,
    take: String,
    /// The cursor and the last leased position of the valid lease `?3`.
    held: String,
    /// Sets the cursor to `?3`, and ends the lease.
    set: String,
    consumers: String,
}

impl FeedStatements {
    fn of(settings: &SqliteSettings) -> Self {
        let (table, progress) = (quoted(&settings.table), quoted(&progress(&settings.table)));
        let consumers = quoted(&consumers(&settings.table));
        let of = "consumer = ?1 and channel_id = ?2";
        Self {
            newest: format!("select ifnull(max({POSITION}), 0) from {progress} where channel_id = ?1"),
            oldest: format!("select min({POSITION}) from {table} where channel_id = ?1 and {POSITION} > 0"),
            events: format!(
                "select {POSITION}, record from {table} \
                 where channel_id = ?1 and {POSITION} > ?2 and {POSITION} <= ?3 order by {POSITION} limit ?4"
            ),
            cursor: format!("select through, ifnull(leased_until > {NOW}, 0) from {consumers} where {of}"),
            take: format!(
                "insert into {consumers} as c (consumer, channel_id, through, lease, leased_until, leased_through) \
                 values (?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?5), ?6) \
                 on conflict (consumer, channel_id) do update set lease = excluded.lease, \
                 leased_until = excluded.leased_until, leased_through = excluded.leased_through \
                 where c.through = excluded.through and ifnull(c.leased_until <= {NOW}, 1)"
            ),
            held: format!(
                "select through, leased_through from {consumers} where {of} and lease = ?3 and leased_until > {NOW}"
            ),
            set: format!(
                "insert into {consumers} (consumer, channel_id, through) values (?1, ?2, ?3) \
                 on conflict (consumer, channel_id) do update set through = excluded.through, lease = null, \
                 leased_until = null, leased_through = null"
            ),
            consumers: format!(
                "select consumer, channel_id, through, case when leased_until > {NOW} then leased_until end \
                 from {consumers} order by consumer, channel_id"
            ),
        }
    }

    fn position(&self, connection: &Connection, channel: &str) -> rusqlite::Result<FeedPosition> {
        let newest = connection.prepare(&self.newest)?.query_row([channel], |row| row.get(0))?;
        let oldest = connection.prepare(&self.oldest)?.query_row([channel], |row| row.get(0))?;
        Ok(FeedPosition::of(oldest, newest))
    }

    fn page(
        &self,
        connection: &Connection,
        channel: &str,
        after: i64,
        limit: usize,
        max_bytes: usize,
    ) -> rusqlite::Result<FeedPage> {
        let position = self.position(connection, channel)?;
        let mut select = connection.prepare(&self.events)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = select.query(params![channel, after, position.newest, limit])?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let record = row.get_ref(1)?.as_str()?;
            if !is_within(&events, &mut bytes, record, max_bytes) {
                break;
            }
            events.push(FeedEvent { position: row.get(0)?, record: record.into() });
        }
        Ok(page(events, position))
    }
}

impl FeedReader {
    /// Closes the connection. Waits until nothing reads.
    pub(super) fn close(&self) {
        lock(&self.0).take();
    }

    /// Reads in one transaction. `None` if the database or the table does not exist.
    fn read<T>(
        &self,
        settings: &SqliteSettings,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, SinkError> {
        let mut reader = lock(&self.0);
        if reader.as_ref().is_some_and(|open| open.identity != identity_at(&settings.path)) {
            *reader = None;
        }
        if reader.is_none() {
            *reader = OpenReader::open(settings)?;
        }
        let Some(open) = &mut *reader else { return Ok(None) };
        let done = open.connection.transaction().and_then(|transaction| work(&transaction));
        done.map(Some).map_err(|error| {
            // The next use opens the database again.
            *reader = None;
            SqliteError::from(error).at(&settings.path)
        })
    }
}

impl OpenReader {
    /// `None` if the database or the table does not exist.
    fn open(settings: &SqliteSettings) -> Result<Option<Self>, SinkError> {
        let path = &*settings.path;
        let identity = identity_at(path);
        let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
        files::require_regular(path, &metadata)?;
        files::check_log(path)?;
        let open = || -> rusqlite::Result<Option<Self>> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(BUSY)?;
            // Another version may have created the tables without these columns.
            for table in [&settings.table, &progress(&settings.table)] {
                if !columns(&connection, table)?.iter().any(|name| name == POSITION) {
                    return Ok(None);
                }
            }
            let is_ready = !columns(&connection, &consumers(&settings.table))?.is_empty();
            Ok(is_ready.then_some(Self { connection, identity }))
        };
        open().map_err(|error| SqliteError::from(error).at(path))
    }
}

impl SqliteFeed {
    pub(super) fn new(writing: &Arc<Writing>) -> Self {
        Self {
            settings: writing.settings.clone(),
            statements: Arc::new(FeedStatements::of(&writing.settings)),
            reader: writing.reader.clone(),
            writing: Arc::downgrade(writing),
            changes: writing.changes.subscribe(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Reads off the async threads. If the table does not exist yet, the result is the default.
    async fn read<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&FeedStatements, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        self.writing()?;
        let (settings, statements, reader) = (self.settings.clone(), self.statements.clone(), self.reader.clone());
        let _turn = self.turn.lock().await;
        let read = move || reader.read(&settings, |connection| work(&statements, connection));
        Ok(blocking(read).await?.unwrap_or_default())
    }

    fn writing(&self) -> Result<Arc<Writing>, SinkError> {
        self.writing.upgrade().ok_or_else(|| SinkError::away("the sink of this feed has ended: retry".to_owned()))
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FeedStatements, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let statements = self.statements.clone();
        self.writing()?.writer()?.transact(move |connection| work(&statements, connection)).await
    }
}

#[async_trait]
impl LeaseStore for SqliteFeed {
    async fn events(&self, channel: Uuid, after: i64, limit: usize, max_bytes: usize) -> Result<FeedPage, SinkError> {
        let channel = channel.to_string();
        self.read(move |statements, connection| statements.page(connection, &channel, after, limit, max_bytes)).await
    }

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

    async fn set(&self, ConsumerRef { consumer, channel }: ConsumerRef<'_>, through: i64) -> Result<(), SinkError> {
        let (consumer, channel) = (consumer.to_owned(), channel.to_string());
        self.write(move |statements, connection| {
            connection.execute(&statements.set, params![consumer, channel, through]).map(drop)
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

    async fn page(&self, channel: Uuid, after: i64, limit: usize, max_bytes: usize) -> Result<FeedPage, FeedError> {
        Ok(self.events(channel, after, limit, max_bytes).await?)
    }

    async fn lease(
        &self,
        consumer: &str,
        channel: Uuid,
        limit: usize,
        max_bytes: usize,
        valid: Duration,
    ) -> Result<Leased, FeedError> {
        Ok(lease(self, ConsumerRef { consumer, channel }, limit, max_bytes, valid).await?)
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
            let mut select = connection.prepare(&statements.consumers)?;
            let rows = select.query_map([], state)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        Ok(states.await?.into_iter().flatten().collect())
    }

    async fn set_cursor(&self, consumer: &str, channel: Uuid, through: i64) -> Result<(), FeedError> {
        let newest = FeedTable::newest(self, channel).await?.newest;
        if through > newest {
            return Err(FeedError::TooHigh { through, newest });
        }
        Ok(self.set(ConsumerRef { consumer, channel }, through.max(0)).await?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

/// A row of the table of consumers. `None` if its channel is not an id.
fn state(row: &Row<'_>) -> rusqlite::Result<Option<ConsumerState>> {
    let Ok(channel) = Uuid::try_parse(row.get_ref(1)?.as_str()?) else { return Ok(None) };
    let leased_until = row.get_ref(3)?.as_str_or_null()?.and_then(|time| time.parse::<Timestamp>().ok());
    let consumer = row.get(0)?;
    Ok(Some(ConsumerState { consumer, channel, through: row.get(2)?, leased_until }))
}
