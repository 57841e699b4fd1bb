//! Reads rows of events from the table that a sink writes.
//!
//! Rows are sorted by the event's time, then by its offset and its channel, the newest first. The table has indexes on the
//! time, on the key and on the words. The columns that a filter uses have no index: they are checked in each row until the
//! page is full or its time budget is used up. The page reports how far it has searched.
//!
//! # Invariants
//!
//! * **Nothing is written.** SQLite is opened read-only, and the PostgreSQL session is set to read-only transactions.
//! * **Bounded.** A page has at most `MOST_ROWS` rows, and its search ends when its time budget is used up. The values of
//!   the filter menus come from the newest `SAMPLED` rows.
//! * **Keyset.** A further page begins at a row's position, not at a row count, so new rows do not shift the pages.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use net::tasks::lock;
use proof::event::ChannelId;
use sink::{PostgresSettings, SqliteSettings};

mod backend;
mod excerpt;
mod filter;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
#[cfg(feature = "sqlite")]
pub(super) mod tests;

pub(super) use backend::{HitCount, MOST_NEW, OnlyWhole, RowPage};
pub(super) use excerpt::Excerpt;
pub(super) use filter::{EventFilter, Facet, PagePosition, Sample};
pub(super) use rows::{FullRow, Row};
pub(super) use sink::Search;

use backend::{PageQuery, TableBackend, TableError};
use filter::SAMPLED;
use sql::{Dialect, KEY, Statement};

/// The largest number of rows on a page.
pub(super) const MOST_ROWS: usize = 200;

/// How long a page searches for its rows. The longer budget applies if the user asked to search further.
const BUDGET: Duration = Duration::from_millis(120);
const PATIENT_BUDGET: Duration = Duration::from_secs(10);

/// How long a sample stays in the cache. Reading and counting its rows takes longer than reading a page.
const SAMPLED_FOR: Duration = Duration::from_secs(15);

/// The time limit of all queries that do not read a page.
const SMALL: Duration = Duration::from_secs(10);

/// How many events with the next higher offsets are read to find out whether an event was delivered after them.
const FOLLOWING: usize = 100;

/// The source from which the console reads events. A table is named by its sink.
pub enum EventSource {
    /// The table of a sink in a SQLite file.
    Sqlite(String, SqliteSettings),
    /// The table of a sink in a PostgreSQL database.
    Postgres(String, Box<PostgresSettings>),
    /// The service's own search, and the reason for using it.
    Service(String),
}

/// The source of the events, ready to be read.
pub(super) enum OpenSource {
    Table(Arc<Table>),
    /// The service's own search, and the reason for using it.
    Service(String),
}

pub(super) struct Table {
    pub(super) sink: String,
    pub(super) search: Search,
    backend: Box<dyn TableBackend>,
    sample: Mutex<Option<(Instant, Arc<Sample>)>>,
}

impl OpenSource {
    /// Prepares to read from this source. The error says why the source cannot be used.
    pub(super) fn of(source: EventSource) -> Result<Self, String> {
        let (sink, search, backend): (_, _, Box<dyn TableBackend>) = match source {
            #[cfg(feature = "sqlite")]
            EventSource::Sqlite(sink, settings) => (sink, settings.search, Box::new(sqlite::Sqlite { settings })),
            #[cfg(not(feature = "sqlite"))]
            EventSource::Sqlite(..) => return Err("this channeld was built without the feature sqlite".to_owned()),
            #[cfg(feature = "postgres")]
            EventSource::Postgres(sink, settings) => {
                let (search, backend) = (settings.search, postgres::Postgres::new(&sink, *settings)?);
                (sink, search, Box::new(backend))
            }
            #[cfg(not(feature = "postgres"))]
            EventSource::Postgres(..) => return Err("this channeld was built without the feature postgres".to_owned()),
            EventSource::Service(why) => return Ok(Self::Service(why)),
        };
        Ok(Self::Table(Arc::new(Table { sink, search, backend, sample: Mutex::default() })))
    }
}

impl Table {
    /// Whether a search with the word index begins with the row that was written last. Other lists are in the order of time.
    pub(super) fn finds_last_written_first(&self) -> bool {
        self.backend.dialect() == Dialect::Sqlite
    }

    /// The sink and the database, in words.
    pub(super) fn described(&self) -> String {
        format!("sink {} ({})", self.sink, <&str>::from(self.backend.dialect()))
    }

    /// Returns at most `limit` rows below a position.
    pub(super) async fn page(
        &self,
        filter: &EventFilter,
        below: Option<&PagePosition>,
        limit: usize,
        is_patient: bool,
    ) -> Result<RowPage, TableError> {
        self.page_within(filter, below, limit, if is_patient { PATIENT_BUDGET } else { BUDGET }).await
    }

    /// Like [`page`](Self::page), with another time budget.
    pub(super) async fn page_within(
        &self,
        filter: &EventFilter,
        below: Option<&PagePosition>,
        limit: usize,
        budget: Duration,
    ) -> Result<RowPage, TableError> {
        let began = Instant::now();
        let deadline = began + budget;
        let mut page = match self.backend.page(PageQuery { filter, below, limit: limit + 1, deadline }).await {
            Err(TableError::TimedOut) => RowPage { is_stopped: true, ..RowPage::default() },
            page => page?,
        };
        page.has_more = page.rows.len() > limit;
        page.rows.truncate(limit);
        page.took = began.elapsed();
        Ok(page)
    }

    /// The newest rows, at most [`SAMPLED_FOR`] old.
    pub(super) async fn sample(&self) -> Result<Arc<Sample>, TableError> {
        let last = lock(&self.sample).clone();
        if let Some((_, sample)) = last.filter(|(at, sample)| at.elapsed() < SAMPLED_FOR && !sample.rows.is_empty()) {
            return Ok(sample);
        }
        let sample = Arc::new(self.read_sample().await?);
        *lock(&self.sample) = Some((Instant::now(), sample.clone()));
        Ok(sample)
    }

    async fn read_sample(&self) -> Result<Sample, TableError> {
        let deadline = Instant::now() + SMALL;
        let page_query = PageQuery { filter: &EventFilter::default(), below: None, limit: SAMPLED, deadline };
        let RowPage { rows, is_stopped, .. } = self.backend.page(page_query).await?;
        if rows.len() < SAMPLED && !is_stopped {
            return Ok(Sample::of(rows));
        }
        let total = self.backend.number(deadline, self.backend.total(), Vec::new()).await?;
        Ok(Sample { rows, total: u64::try_from(total).unwrap_or(0) })
    }

    /// Returns a mark for the newest row. [`arrived`](Self::arrived) counts the rows that arrive after the mark.
    pub(super) async fn mark(&self) -> Result<String, TableError> {
        let mark = self.backend.number(Instant::now() + SMALL, self.backend.mark(), Vec::new()).await?;
        Ok(mark.to_string())
    }

    /// Counts the rows that arrived after the mark, up to [`MOST_NEW`].
    pub(super) async fn arrived(&self, filter: &EventFilter, mark: &str) -> Result<usize, TableError> {
        let mark =
            mark.parse().map_err(|_| TableError::Failed("The mark does not belong to this table.".to_owned()))?;
        self.backend.arrived(filter, mark, Instant::now() + SMALL).await
    }

    /// Returns the time of the earliest delivery among the events that follow this event. If that time is before the
    /// delivery of this event, this event was delivered late.
    pub(super) async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, TableError> {
        let (table, dialect) = (self.backend.table(), self.backend.dialect());
        let mut statement = Statement::new(dialect);
        let (channel, offset) = (statement.channel(channel), statement.number(offset));
        let sql = format!(
            "select {} from (select delivered from {table} where channel_id = {channel} and event_offset > {offset} \
             order by event_offset limit {FOLLOWING}) as following",
            sql::time(dialect, "min(delivered)")
        );
        let answer = self.backend.query(Instant::now() + SMALL, sql, statement.values).await?;
        Ok(answer.rows.into_iter().flatten().flatten().next().and_then(|first| first.parse().ok()))
    }

    /// Returns the next lower and the next higher offset of a channel that have rows.
    pub(super) async fn neighbors(&self, channel: ChannelId, offset: i64) -> Result<[Option<i64>; 2], TableError> {
        let table = self.backend.table();
        let mut statement = Statement::new(self.backend.dialect());
        let (channel, offset) = (statement.channel(channel), statement.number(offset));
        let rows = format!("from {table} where channel_id = {channel} and event_offset");
        let sql = format!(
            "select (select max(event_offset) {rows} < {offset}), (select min(event_offset) {rows} > {offset})"
        );
        let answer = self.backend.query(Instant::now() + SMALL, sql, statement.values).await?;
        let mut found = answer.rows.into_iter().flatten().map(|text| text?.parse().ok());
        Ok([found.next().flatten(), found.next().flatten()])
    }

    /// Returns one row with its record; `None` if the row does not exist. If several events have this offset, returns
    /// the row that was written last.
    pub(super) async fn full_row(&self, channel: ChannelId, offset: i64) -> Result<Option<FullRow>, TableError> {
        let mut statement = Statement::new(self.backend.dialect());
        statement.at(channel, offset);
        self.last_written(statement).await
    }

    /// Returns the row at exactly this position with its record; `None` if the row does not exist.
    pub(super) async fn row_at(&self, position: &PagePosition) -> Result<Option<FullRow>, TableError> {
        let mut statement = Statement::new(self.backend.dialect());
        // Only these two conditions can use the index on the key in every database.
        statement.at(position.channel, position.offset);
        let key = statement.key(position);
        statement.conditions.push(format!("({KEY}) = ({key})"));
        self.last_written(statement).await
    }

    async fn last_written(&self, statement: Statement) -> Result<Option<FullRow>, TableError> {
        let (table, dialect) = (self.backend.table(), self.backend.dialect());
        let written = if dialect == Dialect::Sqlite { "id" } else { "delivered" };
        let (columns, digest) = (sql::columns(dialect), sql::text(dialect, "digest"));
        let conditions = statement.conditions();
        let sql = format!(
            "select {columns}, {digest}, record from {table} where {conditions} order by {written} desc limit 1"
        );
        let answer = self.backend.query(Instant::now() + SMALL, sql, statement.values).await?;
        if answer.is_stopped {
            return Err(TableError::TimedOut);
        }
        Ok(answer.rows.into_iter().next().map(FullRow::of))
    }
}
