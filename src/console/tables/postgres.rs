//! Reads a table in a PostgreSQL database.
//!
//! # Cancellation
//!
//! If a query exceeds its time limit, the server is asked to cancel it, and its connection is closed.

use std::iter::successors;
use std::sync::Mutex;
use std::time::Instant;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout_at;
use tokio_postgres::types::{ToSql, Type};

use super::backend::{HitCount, MOST_HITS, MOST_NEW, PageQuery, QueryResult, RowPage, TableBackend, TableError};
use super::excerpt::is_hexadecimal;
use super::filter::EventFilter;
use super::rows::Row;
use super::sql::{Dialect, NEWEST_FIRST, Statement, TableRange, columns, pattern, texts};
use net::postgres::{Connector, DatabaseError, OpenConnection, advised};
use net::tasks::lock;
use sink::{ENDS_TEXT, PostgresSettings, Search, ends_query, ends_vector};

/// The largest number of idle connections.
const IDLE: usize = 2;

/// How many of the newest rows of each channel are read to estimate how many rows the table has per unit of time.
const NEWEST: usize = 20;

/// A page searches for its rows in time ranges. The first range is as long as the time that the [`NEWEST`] newest rows
/// of the densest channel span, but at least [`NARROWEST`]. Each further range is longer than the previous one by the
/// factor [`WIDER`].
const NARROWEST: SignedDuration = SignedDuration::from_secs(10);
const WIDER: i32 = 16;

/// The largest number of time ranges before the whole table is searched. With a word index, the number is smaller,
/// because a search of the whole table is then not expensive.
const RANGES: usize = 7;
const RANGES_WITH_INDEX: usize = 3;

/// How many channels are searched for their newest rows.
const MOST_CHANNELS: usize = 200;

/// How many of the newest rows of each channel are searched for new rows.
const LOOKED_AT: usize = 200;

pub(super) struct Postgres {
    at: String,
    settings: PostgresSettings,
    connector: Connector,
    idle: Mutex<Vec<OpenConnection>>,
}

impl Postgres {
    pub(super) fn new(sink: &str, settings: PostgresSettings) -> Result<Self, String> {
        let at = format!("sinks.{sink}");
        let connector = Connector::new(&settings.server);
        let connector = connector.map_err(|error| format!("{at}.url: certificates cannot be verified: {error}"))?;
        Ok(Self { at, settings, connector, idle: Mutex::default() })
    }

    async fn open(&self) -> Result<OpenConnection, TableError> {
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|open| !open.client.is_closed());
            idle.pop()
        };
        if let Some(open) = idle {
            return Ok(open);
        }
        self.connector.connect().await.map_err(|error| self.table_error(&error))
    }

    fn table_error(&self, error: &DatabaseError) -> TableError {
        if let DatabaseError::Server(source) = error
            && let Some(said) = source.as_db_error()
            && said.code() == &tokio_postgres::error::SqlState::UNDEFINED_TABLE
        {
            let table = self.table();
            return TableError::Failed(format!("Table {table} does not exist yet: no event was delivered to it."));
        }
        TableError::Failed(format!("{}.", advised(error, &self.settings.server, &self.at)))
    }

    /// Adds the condition on the words. In a time range, the word index is not used, because it would return the hits
    /// of the whole table.
    fn with_words(statement: &mut Statement, words: &[String], range: TableRange, index: Search) {
        let is_range = matches!(range, TableRange::Since(_));
        let search = if is_range { "(search || '')" } else { "search" };
        match index {
            Search::None => statement.looked_through(words),
            Search::Words if words.is_empty() => {}
            Search::Words => {
                let text = statement.text(&words.join(" "));
                let query = format!("plainto_tsquery('simple', {text})::text");
                // The last word can be the beginning of a longer word.
                let query = format!("(case when {query} = '' then '' else {query} || ':*' end)::tsquery");
                let condition = match words {
                    // Hexadecimal digits also match with `0x` before them, and at the end of an address, a hash or an id.
                    [word] if is_hexadecimal(word) => {
                        let prefixed = statement.text(&format!("0x{}:*", word.to_ascii_lowercase()));
                        let ends = if is_range {
                            let pattern = statement.text(&format!("%{}\"%", word.to_ascii_lowercase()));
                            format!("{ENDS_TEXT} like {pattern}")
                        } else {
                            let query = statement.text(&ends_query(word));
                            format!("{} @@ {query}::tsquery", ends_vector())
                        };
                        format!("({search} @@ ({query} || {prefixed}::tsquery) or {ends})")
                    }
                    _ => format!("{search} @@ {query}"),
                };
                statement.conditions.push(condition);
            }
            Search::Trigrams => {
                for word in words {
                    let pattern = statement.text(&pattern(word));
                    statement.conditions.push(format!("{search} ilike {pattern} escape '\\'"));
                }
            }
        }
    }

    /// The `with` clause of a query. Its table `newest` contains the newest rows of every channel, at most `each` of
    /// them. The index on the key finds these rows at once.
    fn newest(&self, each: usize) -> String {
        let table = self.table();
        format!(
            "with recursive ids as (\
               (select channel_id from {table} order by channel_id limit 1) union all \
               select (select channel_id from {table} where channel_id > ids.channel_id order by channel_id limit 1) \
               from ids where ids.channel_id is not null), \
             newest as (select e.* from (select channel_id from ids where channel_id is not null limit {MOST_CHANNELS}) as c \
               cross join lateral (select * from {table} where channel_id = c.channel_id \
                 order by event_offset desc limit {each}) as e) "
        )
    }

    /// Returns the time of the newest row, and the width of the first time range in which a page searches for its rows.
    async fn density(&self, deadline: Instant) -> Result<(Timestamp, SignedDuration), TableError> {
        let spans = "select max(\"time\") as newest, min(\"time\") as oldest from newest group by channel_id";
        let milliseconds = |interval: &str| format!("(extract(epoch from {interval}) * 1000)::bigint");
        let (newest, span) = (milliseconds("max(newest)"), milliseconds("min(newest - oldest)"));
        let sql = format!("{} select {newest}, {span} from ({spans}) as spans", self.newest(NEWEST));
        let rows = self.query(deadline, sql, Vec::new()).await?.rows;
        let mut numbers =
            rows.iter().flatten().map(|text| text.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0));
        let newest = Timestamp::from_millisecond(numbers.next().unwrap_or(0)).unwrap_or_default();
        Ok((newest, SignedDuration::from_millis(numbers.next().unwrap_or(0)).max(NARROWEST)))
    }

    /// Returns the first rows of a range of the table.
    async fn rows_within(
        &self,
        range: TableRange,
        page_query: PageQuery<'_>,
        index: Search,
    ) -> Result<Vec<Row>, TableError> {
        let PageQuery { filter: EventFilter { words, .. }, below, limit, deadline } = page_query;
        let mut statement = Statement::new(Dialect::Postgres);
        statement.filtered(page_query.filter);
        statement.within(range, below);
        Self::with_words(&mut statement, words, range, index);
        let (table, columns, conditions) = (self.table(), columns(Dialect::Postgres), statement.conditions());
        let rows = format!("from {table} where {conditions} order by {NEWEST_FIRST} limit {limit}");
        let sql = if words.is_empty() {
            format!("select {columns} {rows}")
        } else {
            // Read the texts only for the rows that are shown.
            let texts = texts(Dialect::Postgres);
            format!("select {columns}, {texts} from (select * {rows}) as found order by {NEWEST_FIRST}")
        };
        let answer = self.query(deadline, sql, statement.values).await?;
        Ok(answer.rows.into_iter().map(|row| Row::listed(row, words, index)).collect())
    }

    /// Returns the rows of a page by this index.
    async fn page_by(&self, index: Search, page_query: PageQuery<'_>) -> Result<RowPage, TableError> {
        let PageQuery { filter, below, limit, deadline } = page_query;
        let (newest, width) = self.density(deadline).await?;
        let top = below.and_then(|below| below.time).or(filter.to).map_or(newest, |top| top.min(newest));
        let has_index = index != Search::None && !filter.words.is_empty();
        let ranges = if has_index { RANGES_WITH_INDEX } else { RANGES };
        let mut page = RowPage::default();
        for range in table_ranges(top, filter.from, width, ranges) {
            match self.rows_within(range, page_query, index).await {
                Ok(rows) if range == TableRange::Timeless => page.rows.extend(rows),
                // This range contains the earlier, shorter ranges and their rows.
                Ok(rows) => page.rows = rows,
                Err(TableError::TimedOut) => page.is_stopped = true,
                Err(failed) => return Err(failed),
            }
            if page.is_stopped || page.rows.len() >= limit {
                break;
            }
        }
        if filter.has_only_words() && !page.is_stopped {
            let mut statement = Statement::new(Dialect::Postgres);
            Self::with_words(&mut statement, &filter.words, TableRange::Timed, index);
            let (table, conditions, limit) = (self.table(), statement.conditions(), MOST_HITS + 1);
            let sql = format!("select count(*) from (select 1 from {table} where {conditions} limit {limit}) as found");
            // If the time limit is reached before the hits are counted, their number stays unknown.
            page.count = self.number(deadline, sql, statement.values).await.ok().map(HitCount::of);
        }
        Ok(page)
    }
}

#[async_trait]
impl TableBackend for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn table(&self) -> String {
        format!("\"{}\".\"{}\"", self.settings.schema, self.settings.table)
    }

    async fn query(&self, deadline: Instant, sql: String, values: Vec<String>) -> Result<QueryResult, TableError> {
        let open = self.open().await?;
        let values: Vec<_> = values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT)).collect();
        let read = async {
            // A setting of the session would stay on the server's connection, which a pooler gives to the daemon later.
            open.client.batch_execute("begin read only; set local jit = off").await?;
            let rows = open.client.query_typed(&sql, &values).await?;
            open.client.batch_execute("commit").await.map(|()| rows)
        };
        let read = timeout_at(deadline.into(), read).await;
        match read {
            Ok(Ok(rows)) => {
                let mut idle = lock(&self.idle);
                if idle.len() < IDLE {
                    idle.push(open);
                }
                Ok(QueryResult { rows: rows.iter().map(texts_of).collect(), is_stopped: false })
            }
            Ok(Err(error)) => Err(self.table_error(&error.into())),
            Err(_) => {
                self.connector.cancel(&open).await;
                Err(TableError::TimedOut)
            }
        }
    }

    async fn page(&self, page_query: PageQuery<'_>) -> Result<RowPage, TableError> {
        let page = self.page_by(self.settings.search, page_query).await?;
        let found_none = page.rows.is_empty() && !page.is_stopped;
        if found_none && self.settings.search == Search::Words && page_query.filter.is_part_of_word() {
            return self.page_by(Search::None, page_query).await;
        }
        Ok(page)
    }

    fn total(&self) -> String {
        format!("select reltuples::bigint from pg_class where oid = to_regclass('{}')", self.table())
    }

    fn mark(&self) -> String {
        self.newest(NEWEST) + "select (extract(epoch from max(delivered)) * 1000000)::bigint from newest"
    }

    async fn arrived(&self, filter: &EventFilter, mark: i64, deadline: Instant) -> Result<usize, TableError> {
        let mut statement = Statement::new(Dialect::Postgres);
        let after = statement.number(mark);
        statement.conditions.push(format!("delivered > timestamptz 'epoch' + {after} * interval '1 microsecond'"));
        statement.filtered(filter);
        Self::with_words(&mut statement, &filter.words, TableRange::Timed, self.settings.search);
        let sql = format!("{} select count(*) from newest where {}", self.newest(LOOKED_AT), statement.conditions());
        let count = self.number(deadline, sql, statement.values).await?;
        Ok(usize::try_from(count).unwrap_or(MOST_NEW).min(MOST_NEW))
    }
}

/// The ranges of the table in which a page searches for its rows, one after another. The index on the time (BRIN) finds the
/// blocks of a range but returns no sorted rows. A query must sort all rows of its range, so short ranges are searched
/// first.
fn table_ranges(
    top: Timestamp,
    from: Option<Timestamp>,
    width: SignedDuration,
    ranges: usize,
) -> impl Iterator<Item = TableRange> {
    let widths = successors(Some(width), |width| Some(width.saturating_mul(WIDER))).take(ranges);
    let ranges = widths.map_while(move |width| top.checked_sub(width).ok());
    let ranges = ranges.take_while(move |since| from.is_none_or(|from| from < *since));
    ranges.map(TableRange::Since).chain([TableRange::Timed, TableRange::Timeless])
}

/// The values of a row as texts. A value in the row is a text or a number.
fn texts_of(row: &tokio_postgres::Row) -> Vec<Option<String>> {
    let number = |at| row.get::<_, Option<i64>>(at).map(|number| number.to_string());
    let columns = row.columns().iter().enumerate();
    columns.map(|(at, column)| if *column.type_() == Type::INT8 { number(at) } else { row.get(at) }).collect()
}
