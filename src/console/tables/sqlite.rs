//! Reads a table in a SQLite file while the daemon writes to it.
//!
//! # Cancellation
//!
//! A query whose time is over is interrupted. Its connection is used again.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::backend::{Backend, FOLLOWING, Hits, Look, MOST_NEW, Unread};
use super::filter::Filter;
use super::piece::{LOOKED_THROUGH, piece};
use super::rows::{Row, Whole};
use super::sample::Sample;
use super::sql::{Dialect, LISTED, NEWEST_FIRST, Statement, Value, texts};
use proof::event::ChannelId;
use sink::Search;

mod file;
mod words;

pub(super) use file::Sqlite;

use words::by_ids;

/// The time limit of queries that do not use the budget of a page.
const SMALL: Duration = Duration::from_secs(10);

#[async_trait]
impl Backend for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    async fn hits(&self, filter: &Filter, deadline: Instant, is_patient: bool) -> Result<Hits, Unread> {
        self.hits_of(filter.words.as_deref().unwrap_or_default(), deadline, is_patient).await
    }

    async fn look(&self, look: Look<'_>) -> Result<Vec<Row>, Unread> {
        let Look { filter, window, below, limit, deadline, hits } = look;
        let (table, columns) = (self.table(), columns());
        let mut statement = Statement::new(Dialect::Sqlite);
        statement.filtered(filter);
        statement.within(window, below);
        let Some(words) = filter.words.clone() else {
            let conditions = statement.conditions();
            let sql = format!("select {columns} from {table} where {conditions} order by {NEWEST_FIRST} limit {limit}");
            return self.with(deadline, move |connection| rows(connection, &sql, &statement.values)).await;
        };
        let (search, texts) = (self.settings.search, texts(Dialect::Sqlite));
        if search == Search::None {
            statement.looked_through(&words);
        }
        // Read the texts only for the rows that are shown.
        let find = move |connection: &Connection, statement: &Statement| {
            let conditions = statement.conditions();
            let ids = format!("select id from {table} where {conditions} order by {NEWEST_FIRST} limit {limit}");
            let sql = format!("select {columns}, {texts} from {table} where id in ({ids}) order by {NEWEST_FIRST}");
            found(connection, &sql, &statement.values, &words, search)
        };
        if search == Search::None {
            return self.with(deadline, move |connection| find(connection, &statement)).await;
        }
        let (by_ids, by_index) = (by_ids(statement.clone(), hits), self.by_index(statement, hits, window));
        let beyond = self.beyond(hits, window);
        self.with(deadline, move |connection| {
            let statement = if beyond.holds(connection)? { by_index } else { by_ids };
            find(connection, &statement)
        })
        .await
    }

    async fn sample(&self, most: usize) -> Result<Sample, Unread> {
        let (table, columns) = (self.table(), columns());
        let newest = format!("select {columns} from {table} order by id desc limit {most}");
        let ids = format!("select ifnull((select max(id) from {table}), 0), ifnull((select min(id) from {table}), 1)");
        self.with(Instant::now() + SMALL, move |connection| {
            let (highest, lowest): (i64, i64) = connection.query_row(&ids, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let rows = rows(connection, &newest, &[])?;
            // Ids are assigned in ascending order, and only the oldest rows are ever deleted.
            let total = u64::try_from(highest - lowest + 1).unwrap_or(0);
            Ok(Sample { rows, total })
        })
        .await
    }

    async fn mark(&self) -> Result<String, Unread> {
        let sql = format!("select ifnull(max(id), 0) from {}", self.table());
        let read = move |connection: &Connection| connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
        self.with(Instant::now() + SMALL, read).await.map(|id| id.to_string())
    }

    async fn arrived(&self, filter: &Filter, mark: &str) -> Result<usize, Unread> {
        let mark = mark.parse().map_err(|_| Unread::Failed("The mark is none of this table.".to_owned()))?;
        let mut statement = Statement::new(Dialect::Sqlite);
        let after = statement.parameter(Value::Number(mark));
        statement.conditions.push(format!("id > {after}"));
        statement.filtered(filter);
        if let Some(words) = &filter.words {
            if self.settings.search == Search::None {
                statement.looked_through(words);
            } else {
                let hits = self.hits_of(words, Instant::now() + SMALL, true).await?;
                let (search, query) = (self.search_table(), statement.parameter(Value::Text(hits.query)));
                let found = format!("select rowid from {search} where {search} match {query} and rowid > {after}");
                statement.conditions.push(format!("id in ({found})"));
            }
        }
        let (table, conditions) = (self.table(), statement.conditions());
        let sql = format!("select count(*) from (select 1 from {table} where {conditions} limit {MOST_NEW})");
        let read = move |connection: &Connection| {
            connection.query_row(&sql, params_from_iter(&statement.values), |row| row.get::<_, i64>(0))
        };
        let count = self.with(Instant::now() + SMALL, read).await?;
        Ok(usize::try_from(count).unwrap_or(MOST_NEW))
    }

    async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, Unread> {
        let table = self.table();
        let sql = format!(
            "select min(delivered) from (select delivered from {table} where channel_id = ?1 and event_offset > ?2 \
             order by event_offset limit {FOLLOWING})"
        );
        let read = move |connection: &Connection| {
            connection.query_row(&sql, (channel.to_string(), offset), |row| lossy(row, 0))
        };
        let first = self.with(Instant::now() + SMALL, read).await?;
        Ok(first.and_then(|first| first.parse().ok()))
    }

    async fn whole(&self, channel: ChannelId, offset: i64) -> Result<Option<Whole>, Unread> {
        let columns = columns();
        let table = self.table();
        let sql = format!(
            "select {columns}, digest, record from {table} where channel_id = ?1 and event_offset = ?2 \
             order by id desc limit 1"
        );
        self.with(Instant::now() + SMALL, move |connection| {
            let whole = |row: &rusqlite::Row<'_>| {
                let (digest, record) = (row.get(LISTED.len())?, lossy(row, LISTED.len() + 1)?.unwrap_or_default());
                Ok(Whole { row: read(row)?, digest, record })
            };
            connection.query_row(&sql, (channel.to_string(), offset), whole).optional()
        })
        .await
    }
}

fn columns() -> String {
    LISTED.map(|column| format!("\"{column}\"")).join(", ")
}

fn rows(connection: &Connection, sql: &str, values: &[Value]) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare(sql)?;
    statement.query_map(params_from_iter(values), read)?.collect()
}

/// Returns the rows of a word search, each with the piece that contains a word.
fn found(
    connection: &Connection,
    sql: &str,
    values: &[Value],
    words: &[String],
    search: Search,
) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare(sql)?;
    let with_piece = |row: &rusqlite::Row<'_>| {
        let texts = (0..LOOKED_THROUGH.len()).map(|at| Ok(lossy(row, LISTED.len() + at)?.unwrap_or_default()));
        let texts = texts.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(Row { piece: piece(words, search, &texts), ..read(row)? })
    };
    statement.query_map(params_from_iter(values), with_piece)?.collect()
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let needed = |at| Ok::<_, rusqlite::Error>(lossy(row, at)?.unwrap_or_default());
    let time = |at| Ok::<_, rusqlite::Error>(lossy(row, at)?.and_then(|text| text.parse().ok()));
    Ok(Row {
        channel: needed(0)?,
        channel_id: needed(1)?,
        offset: row.get(2)?,
        event_id: lossy(row, 3)?,
        kind: needed(4)?,
        name: lossy(row, 5)?,
        source: lossy(row, 6)?,
        service: lossy(row, 7)?,
        network: lossy(row, 8)?,
        time: time(9)?,
        received: time(10)?,
        delivered: time(11)?,
        status: lossy(row, 12)?,
        verification: needed(13)?,
        piece: None,
    })
}

/// Reads a value as text, even if it is not UTF-8.
fn lossy(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => None,
        ValueRef::Text(text) | ValueRef::Blob(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
    })
}
