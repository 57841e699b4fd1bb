//! Searches for words with the full-text index of a SQLite file.
//!
//! The index finds a whole word quickly, no matter how many rows contain it, because it reads the word's rows from the
//! newest one. A search for the beginning of a word is expensive: each query merges all words with this beginning, and
//! therefore every row that contains one of them. This has two consequences:
//!
//! * The whole word is searched first. If many rows contain it, this is the result. A `*` after the word requests more.
//! * The index is asked once for the newest rows that contain the words. Windows that these hits cover are read by ids.

use std::fmt::Write;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params_from_iter};

use super::file::Sqlite;
use crate::tables::backend::{Hits, OnlyWhole, Unread};
use crate::tables::sql::{Dialect, Statement, Value, fts};
use crate::tables::windows::Window;
use sink::Search;

/// The index is asked for one row more than this. A search with no more hits than this finds its rows by their words alone.
const FEW: usize = 1_000;

/// How long a page searches for beginnings of words if it has hits for the whole word. Does not apply if the user asked to
/// search further.
const BEGINNINGS: Duration = Duration::from_millis(70);

/// Checks whether a window has rows that were written before the known hits. The hits do not cover such a window.
pub(super) struct Beyond(Option<(String, Vec<Value>)>);

impl Beyond {
    pub(super) fn holds(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let Some((sql, values)) = &self.0 else { return Ok(false) };
        connection.query_row(sql, params_from_iter(values), |row| row.get(0))
    }
}

impl Sqlite {
    /// Asks the index for rows that contain all these words. The last word can be the beginning of a word.
    pub(super) async fn hits_of(&self, words: &[String], deadline: Instant, is_patient: bool) -> Result<Hits, Unread> {
        if self.settings.search == Search::Trigrams {
            return self.newest(fts(words, false), deadline).await;
        }
        if let Some(beginning) = beginning(words) {
            return self.newest(fts(&beginning, true), deadline).await;
        }
        let whole = self.newest(fts(words, false), deadline).await?;
        if !whole.is_all {
            return Ok(Hits { only_whole: Some(OnlyWhole::Many), ..whole });
        }
        let has_whole = !whole.ids.is_empty();
        let until = if is_patient || !has_whole { deadline } else { deadline.min(Instant::now() + BEGINNINGS) };
        match self.newest(fts(words, true), until).await {
            Err(Unread::Slow) if has_whole => Ok(Hits { only_whole: Some(OnlyWhole::Slow), ..whole }),
            begun => begun,
        }
    }

    /// Returns the newest rows that match the index query.
    async fn newest(&self, query: String, deadline: Instant) -> Result<Hits, Unread> {
        let (search, asked) = (self.search_table(), query.clone());
        let sql = format!("select rowid from {search} where {search} match ?1 order by rowid desc limit {}", FEW + 1);
        let read = move |connection: &Connection| {
            connection.prepare(&sql)?.query_map([asked], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()
        };
        let ids = self.with(deadline, read).await?;
        Ok(Hits { query, counted: ids.len().min(FEW), is_all: ids.len() <= FEW, ids, only_whole: None })
    }

    /// Prepares the check whether a window has rows below the lowest hit.
    pub(super) fn beyond(&self, hits: &Hits, window: Window) -> Beyond {
        let Some(lowest) = hits.ids.last().filter(|_| !hits.is_all) else { return Beyond(None) };
        let mut statement = Statement::new(Dialect::Sqlite);
        statement.within(window, None);
        let lowest = statement.parameter(Value::Number(*lowest));
        // Use the index on the time: without the sign, SQLite would read all rows in the order of their ids.
        statement.conditions.push(format!("+id < {lowest}"));
        let sql = format!("select exists(select 1 from {} where {})", self.table(), statement.conditions());
        Beyond(Some((sql, statement.values)))
    }

    /// Selects the rows of a window that are among the hits, or that the index finds below the lowest hit. If the window
    /// has a lower bound, only the part of the index between the lowest and the highest id of the window's rows below the
    /// hits is read.
    pub(super) fn by_index(&self, mut statement: Statement, hits: &Hits, window: Window) -> Statement {
        let (table, search) = (self.table(), self.search_table());
        let query = statement.parameter(Value::Text(hits.query.clone()));
        let mut found = format!("select rowid from {search} where {search} match {query}");
        if let (Window::Times { after: Some(after), through }, Some(lowest)) = (window, hits.ids.last()) {
            let after = statement.parameter(Value::Text(format!("{after:.3}")));
            let lowest = statement.parameter(Value::Number(*lowest));
            // The sign has the same reason as above.
            let mut below = format!("+id < {lowest} and \"time\" > {after}");
            if let Some(through) = through {
                let through = statement.parameter(Value::Text(format!("{through:.3}")));
                let _ = write!(below, " and \"time\" <= {through}");
            }
            let ids = statement.parameter(ids(hits));
            let _ = write!(
                found,
                " and rowid >= (select min(+id) from {table} where {below}) \
                 and rowid <= (select max(+id) from {table} where {below}) \
                 union all select value from json_each({ids})"
            );
        }
        statement.conditions.push(format!("id in ({found})"));
        statement
    }
}

/// Selects the rows of a window that are among the hits.
pub(super) fn by_ids(mut statement: Statement, hits: &Hits) -> Statement {
    let ids = statement.parameter(ids(hits));
    statement.conditions.push(format!("id in (select value from json_each({ids}))"));
    statement
}

fn ids(hits: &Hits) -> Value {
    Value::Text(serde_json::to_string(&hits.ids).expect("numbers are JSON"))
}

/// The words without the final `*`, which requests words that begin with the last one; `None` if there is no `*`.
fn beginning(words: &[String]) -> Option<Vec<String>> {
    let (last, others) = words.split_last()?;
    let last = last.strip_suffix('*').filter(|last| last.chars().any(char::is_alphanumeric))?;
    Some(others.iter().cloned().chain([last.to_owned()]).collect())
}
