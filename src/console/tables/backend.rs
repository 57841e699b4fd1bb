//! The queries that each database implements for a table.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::filter::{EventFilter, PagePosition};
use super::rows::Row;
use super::sql::Dialect;

/// The highest number of new rows that is counted.
pub(crate) const MOST_NEW: usize = 1_000;

/// The highest number of hits of a word search that is counted.
pub(super) const MOST_HITS: usize = 1_000;

/// Why a table could not be read, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableError {
    #[error("The table did not respond in time.")]
    TimedOut,
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug, Default)]
pub(crate) struct RowPage {
    pub(crate) rows: Vec<Row>,
    /// Whether older rows exist.
    pub(crate) has_more: bool,
    /// Whether the time limit was reached before the page was full. The page then still contains every matching row
    /// above its last row.
    pub(crate) is_stopped: bool,
    /// Set if the last word was searched only as a whole, and not as the beginning of longer words.
    pub(crate) only_whole: Option<OnlyWhole>,
    /// How many rows of the table match the search, if that is known.
    pub(crate) count: Option<HitCount>,
    pub(crate) took: Duration,
}

/// Why longer words that begin with the last word were not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnlyWhole {
    /// Many events contain the word itself.
    Many,
    /// The search for longer words took too long.
    Slow,
}

/// How many rows contain the words of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitCount {
    Exactly(usize),
    AtLeast(usize),
}

impl HitCount {
    /// Interprets the result of a query that stops counting at one row more than [`MOST_HITS`].
    pub(super) fn of(counted: i64) -> Self {
        match usize::try_from(counted) {
            Ok(count) if count <= MOST_HITS => Self::Exactly(count),
            _ => Self::AtLeast(MOST_HITS),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct PageQuery<'a> {
    pub(super) filter: &'a EventFilter,
    pub(super) below: Option<&'a PagePosition>,
    pub(super) limit: usize,
    pub(super) deadline: Instant,
}

/// The rows of a query, with each value as text.
#[derive(Debug, Default)]
pub(crate) struct QueryResult {
    pub(super) rows: Vec<Vec<Option<String>>>,
    /// Whether the time limit was reached before the last row.
    pub(super) is_stopped: bool,
}

/// A database that contains a table.
#[async_trait]
pub(crate) trait TableBackend: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// The name of the table in a statement.
    fn table(&self) -> String;

    /// Runs a query until the deadline.
    async fn query(&self, deadline: Instant, sql: String, values: Vec<String>) -> Result<QueryResult, TableError>;

    /// Returns the rows of a page. If the filter consists only of words, also counts the rows of the table that contain
    /// the words.
    async fn page(&self, page_query: PageQuery<'_>) -> Result<RowPage, TableError>;

    /// A query for the approximate number of rows.
    fn total(&self) -> String;

    /// A query for the number that marks the newest row, for [`arrived`](Self::arrived).
    fn mark(&self) -> String;

    /// Counts the rows that arrived after the mark, up to [`MOST_NEW`].
    async fn arrived(&self, filter: &EventFilter, mark: i64, deadline: Instant) -> Result<usize, TableError>;

    /// Returns the number that a query returns; 0 if it returns none.
    async fn number(&self, deadline: Instant, sql: String, values: Vec<String>) -> Result<i64, TableError> {
        let answer = self.query(deadline, sql, values).await?;
        if answer.is_stopped {
            return Err(TableError::TimedOut);
        }
        Ok(answer.rows.into_iter().flatten().flatten().next().and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}
