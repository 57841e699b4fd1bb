//! Reads a table in a SQLite file while the daemon writes to it.
//!
//! The list is read in the order of the index on the time. A word search is read in the order of the word index, which is
//! the order in which the rows were written: the index returns the newest hits at once, no matter how many there are.
//!
//! A search for a prefix is more expensive, because the index first merges the rows of all words with this prefix. The
//! search therefore first counts the rows that contain the whole word. If many rows contain the whole word, longer
//! words are searched only if a `*` after the word requests this. If the prefix search exceeds the time limit, the page
//! shows the rows that contain the whole word.
//!
//! # Cancellation
//!
//! A query that exceeds its time limit is interrupted.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use super::backend::{
    HitCount, MOST_HITS, MOST_NEW, OnlyWhole, PageQuery, QueryResult, RowPage, TableBackend, TableError,
};
use super::excerpt::is_hexadecimal;
use super::filter::EventFilter;
use super::rows::Row;
use super::sql::{Dialect, KEY, NEWEST_FIRST, Statement, TableRange, columns, texts};
use net::tasks::joined;
use sink::{Search, SqliteSettings};

/// How long a query waits if another program has locked the file.
const BUSY: Duration = Duration::from_secs(1);

pub(super) struct Sqlite {
    pub(super) settings: SqliteSettings,
}

#[async_trait]
impl TableBackend for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn table(&self) -> String {
        format!("\"{}\"", self.settings.table)
    }

    async fn query(&self, deadline: Instant, sql: String, values: Vec<String>) -> Result<QueryResult, TableError> {
        let path = self.settings.path.clone();
        let opened = spawn_blocking(move || open(path)).await;
        let connection = joined(opened).await.map_err(|error| self.table_error(&error))?;
        let interrupt = connection.get_interrupt_handle();
        let mut working = spawn_blocking(move || read(&connection, deadline, &sql, &values));
        let done = if let Ok(done) = timeout_at(deadline.into(), &mut working).await {
            done
        } else {
            interrupt.interrupt();
            working.await
        };
        joined(done).await.map_err(|error| self.table_error(&error))
    }

    async fn page(&self, page_query: PageQuery<'_>) -> Result<RowPage, TableError> {
        if !self.has_index_for(page_query.filter) {
            return self.scanned(page_query).await;
        }
        let page = self.search(page_query).await?;
        // A part in the middle of a word is in no index.
        let found_none = page.rows.is_empty() && !page.is_stopped;
        if found_none && self.settings.search == Search::Words && page_query.filter.is_part_of_word() {
            return self.scanned(page_query).await;
        }
        Ok(page)
    }

    fn total(&self) -> String {
        // Ids are assigned in ascending order, and only the oldest rows are deleted, so the ids have almost no gaps.
        let table = self.table();
        format!("select (select max(id) from {table}) - (select min(id) from {table}) + 1")
    }

    fn mark(&self) -> String {
        format!("select max(id) from {}", self.table())
    }

    async fn arrived(&self, filter: &EventFilter, mark: i64, deadline: Instant) -> Result<usize, TableError> {
        let mut statement = Statement::new(Dialect::Sqlite);
        let after = statement.number(mark);
        statement.conditions.push(format!("id > {after}"));
        statement.filtered(filter);
        if self.has_index_for(filter) {
            let query = self.index_query(&filter.words, deadline).await?;
            let matches = query.matches(&self.settings.table, &mut statement);
            let hits = |(index, matches): &(String, String)| {
                format!("id in (select rowid from {index} where {matches} and rowid > {after})")
            };
            let hits = matches.iter().map(hits).collect::<Vec<_>>().join(" or ");
            statement.conditions.push(format!("({hits})"));
        } else {
            statement.looked_through(&filter.words);
        }
        let (table, conditions) = (self.table(), statement.conditions());
        let sql = format!("select count(*) from (select 1 from {table} where {conditions} limit {MOST_NEW})");
        let count = self.number(deadline, sql, statement.values).await?;
        Ok(usize::try_from(count).unwrap_or(MOST_NEW))
    }
}

impl Sqlite {
    /// Looks through the rows, the newest first.
    async fn scanned(&self, page_query: PageQuery<'_>) -> Result<RowPage, TableError> {
        let PageQuery { filter, below, limit, deadline } = page_query;
        let (table, columns) = (self.table(), with_texts(filter));
        let mut page = RowPage::default();
        for range in [TableRange::Timed, TableRange::Timeless] {
            let mut statement = Statement::new(Dialect::Sqlite);
            statement.filtered(filter);
            statement.within(range, below);
            statement.looked_through(&filter.words);
            let conditions = statement.conditions();
            let sql = format!("select {columns} from {table} where {conditions} order by {NEWEST_FIRST} limit {limit}");
            let answer = self.query(deadline, sql, statement.values).await?;
            // Parts of words match too.
            page.rows.extend(answer.rows.into_iter().map(|row| Row::listed(row, &filter.words, Search::None)));
            page.is_stopped = answer.is_stopped;
            if page.is_stopped || page.rows.len() >= limit {
                break;
            }
        }
        Ok(page)
    }

    async fn search(&self, page_query: PageQuery<'_>) -> Result<RowPage, TableError> {
        let query = self.index_query(&page_query.filter.words, page_query.deadline).await?;
        let whole = IndexQuery { words: fts(&page_query.filter.words, Last::Whole), ..query.clone() };
        let exact = self.found(page_query, &whole).await?;
        if query == whole {
            let is_many = self.settings.search == Search::Words;
            return Ok(RowPage { only_whole: is_many.then_some(OnlyWhole::Many), ..exact });
        }
        let begun = self.found(page_query, &query).await?;
        if begun.is_stopped && begun.rows.is_empty() && !exact.rows.is_empty() {
            let count = exact.count.map(|_| HitCount::AtLeast(exact.rows.len()));
            return Ok(RowPage { only_whole: Some(OnlyWhole::Slow), count, ..exact });
        }
        Ok(begun)
    }

    /// Returns the rows that match a query of the indexes.
    async fn found(&self, page_query: PageQuery<'_>, query: &IndexQuery) -> Result<RowPage, TableError> {
        let PageQuery { filter, below, limit, deadline } = page_query;
        let table = self.table();
        let mut statement = Statement::new(Dialect::Sqlite);
        let matches = query.matches(&self.settings.table, &mut statement);
        statement.filtered(filter);
        let below_position = below.map(|below| {
            // If the row at the position was deleted, all older rows were deleted as well.
            let key = statement.key(below);
            format!("rowid < (select id from {table} where ({KEY}) = ({key}))")
        });
        let (columns, conditions) = (with_texts(filter), statement.conditions());
        let hits = |selected: &str, (index, matches): &(String, String)| {
            let below = below_position.as_ref().map_or_else(String::new, |below| format!(" and {index}.{below}"));
            format!(
                "select {selected} from {index} cross join {table} on id = {index}.rowid \
                 where {matches} and {conditions}{below} order by {index}.rowid desc limit {limit}"
            )
        };
        let sql = match &matches[..] {
            [words] => hits(&columns, words),
            // The newest hits of both indexes.
            all => {
                let ids: Vec<_> = all.iter().map(|each| format!("select id from ({})", hits("id", each))).collect();
                let ids = ids.join(" union ");
                format!("select {columns} from ({ids}) cross join {table} using (id) order by id desc limit {limit}")
            }
        };
        let QueryResult { rows, is_stopped } = self.query(deadline, sql, statement.values).await?;
        let rows: Vec<_> = rows.into_iter().map(|row| Row::listed(row, &filter.words, self.settings.search)).collect();
        let count = if is_stopped || !filter.has_only_words() {
            None
        } else if rows.len() < limit && below.is_none() {
            Some(HitCount::Exactly(rows.len()))
        } else {
            // If the time limit is reached before the hits are counted, their number stays unknown.
            self.counted(query, deadline).await.ok()
        };
        Ok(RowPage { rows, is_stopped, count, ..RowPage::default() })
    }

    /// Returns the query of the indexes for these words. If few rows contain the words, or if the last word ends with
    /// `*`, the query also finds longer words that begin with the last word.
    async fn index_query(&self, words: &[String], deadline: Instant) -> Result<IndexQuery, TableError> {
        let whole = IndexQuery { words: fts(words, Last::Whole), ends: None };
        if self.settings.search == Search::Trigrams {
            return Ok(whole);
        }
        if let Some(beginning) = beginning(words) {
            return Ok(IndexQuery { words: fts(&beginning, Last::Beginning), ends: None });
        }
        let ends = match words {
            [word] if is_hexadecimal(word) && self.has_ends(deadline).await? => Some(backwards(word)),
            _ => None,
        };
        let is_many = matches!(self.counted(&whole, deadline).await?, HitCount::AtLeast(_));
        Ok(IndexQuery { words: if is_many { whole.words } else { fts(words, Last::Beginning) }, ends })
    }

    /// Whether the index over the ends of words exists. The daemon of an older version did not create it.
    async fn has_ends(&self, deadline: Instant) -> Result<bool, TableError> {
        let sql = "select count(*) from sqlite_master where name = ?1".to_owned();
        Ok(self.number(deadline, sql, vec![format!("{}_ends", self.settings.table)]).await? > 0)
    }

    async fn counted(&self, query: &IndexQuery, deadline: Instant) -> Result<HitCount, TableError> {
        let (mut statement, limit) = (Statement::new(Dialect::Sqlite), MOST_HITS + 1);
        let matches = query.matches(&self.settings.table, &mut statement);
        let hits = |(index, matches): &(String, String)| {
            format!("select rowid from (select rowid from {index} where {matches} limit {limit})")
        };
        let hits = matches.iter().map(hits).collect::<Vec<_>>().join(" union ");
        let sql = format!("select count(*) from (select 1 from ({hits}) limit {limit})");
        self.number(deadline, sql, statement.values).await.map(HitCount::of)
    }

    fn has_index_for(&self, filter: &EventFilter) -> bool {
        self.settings.search != Search::None && !filter.words.is_empty()
    }

    fn table_error(&self, error: &rusqlite::Error) -> TableError {
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            return TableError::TimedOut;
        }
        let (path, table) = (self.settings.path.display(), &self.settings.table);
        let message = error.to_string();
        TableError::Failed(if self.settings.path.try_exists().is_ok_and(|exists| !exists) {
            format!("The database {path} does not exist yet: it is created when the first event is delivered.")
        } else if message.contains("no such table") {
            format!("Table {table} does not exist in {path} yet: no event was delivered to it.")
        } else {
            format!("{path} cannot be read: {message}.")
        })
    }
}

/// A query of the full-text indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexQuery {
    /// The query of the index over words.
    words: String,
    /// The query of the index over the ends of addresses, hashes and ids, if the search is for such an end.
    ends: Option<String>,
}

impl IndexQuery {
    /// The quoted name of each index, and the condition on it. A row matches if it satisfies one of the conditions.
    fn matches(&self, table: &str, statement: &mut Statement) -> Vec<(String, String)> {
        let queries = [("search", Some(&self.words)), ("ends", self.ends.as_ref())];
        let each = queries.into_iter().filter_map(|(kind, query)| {
            let (index, query) = (format!("\"{table}_{kind}\""), statement.text(query?));
            let condition = format!("{index} match {query}");
            Some((index, condition))
        });
        each.collect()
    }
}

/// A query of the index over ends, which contains words backwards.
fn backwards(digits: &str) -> String {
    format!("\"{}\"*", digits.to_ascii_lowercase().chars().rev().collect::<String>())
}

/// The columns of a list. A word search also reads the columns that it searches.
fn with_texts(filter: &EventFilter) -> String {
    let columns = columns(Dialect::Sqlite);
    if filter.words.is_empty() { columns } else { format!("{columns}, {}", texts(Dialect::Sqlite)) }
}

/// How the last word of a search matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Whole,
    Beginning,
}

/// A query of the word index for rows that contain all the words. Hexadecimal digits also match with `0x` before them.
fn fts(words: &[String], last: Last) -> String {
    let term = |(at, word): (usize, &String)| {
        let quoted = word.replace('"', "\"\"");
        let star = if at + 1 == words.len() && last == Last::Beginning { "*" } else { "" };
        let term = format!("\"{quoted}\"{star}");
        if is_hexadecimal(word) { format!("({term} OR \"0x{quoted}\"*)") } else { term }
    };
    if !words.iter().any(|word| is_hexadecimal(word)) {
        return words.iter().enumerate().map(term).collect::<Vec<_>>().join(" ");
    }
    // Terms in parentheses need an operator. Unlike a space, the operator does not skip a word without letters and digits.
    let searched = words.iter().enumerate().filter(|(_, word)| word.chars().any(char::is_alphanumeric));
    searched.map(term).collect::<Vec<_>>().join(" AND ")
}

/// If the last word ends with `*`, returns the words without the `*`. The `*` requests a search for longer words that
/// begin with the last word. Returns `None` without a `*`.
fn beginning(words: &[String]) -> Option<Vec<String>> {
    let (last, others) = words.split_last()?;
    let last = last.strip_suffix('*').filter(|last| last.chars().any(char::is_alphanumeric))?;
    Some(others.iter().cloned().chain([last.to_owned()]).collect())
}

/// Opens the file that currently has this path.
fn open(path: PathBuf) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.execute_batch("pragma query_only = on; pragma cache_size = -16384; pragma temp_store = memory;")?;
    Ok(connection)
}

/// Runs a query. If the query is interrupted, the answer contains the rows that were read until then.
fn read(connection: &Connection, deadline: Instant, sql: &str, values: &[String]) -> rusqlite::Result<QueryResult> {
    let mut answer = QueryResult::default();
    // An interrupt has an effect only on a query that has begun.
    if Instant::now() >= deadline {
        answer.is_stopped = true;
        return Ok(answer);
    }
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    for row in
        statement.query_map(params_from_iter(values), |row| Ok((0..columns).map(|at| text(row, at)).collect()))?
    {
        match row {
            Ok(row) => answer.rows.push(row),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                answer.is_stopped = true;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

/// A value as text, even if it is not UTF-8.
fn text(row: &rusqlite::Row<'_>, at: usize) -> Option<String> {
    match row.get_ref_unwrap(at) {
        ValueRef::Null => None,
        ValueRef::Text(text) | ValueRef::Blob(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
    }
}
