//! The queries that a database answers about a table.

use std::time::Instant;

use async_trait::async_trait;
use jiff::Timestamp;

use super::filter::{Filter, Place};
use super::rows::{Row, Whole};
use super::sample::Sample;
use super::windows::Window;
use proof::event::ChannelId;

/// How many of the events after an event, by offset, are checked for an earlier delivery.
pub(super) const FOLLOWING: usize = 100;

/// The highest number of new rows that is counted.
pub(crate) const MOST_NEW: usize = 1_000;

/// How many rows contain the words of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Exactly(usize),
    AtLeast(usize),
}

/// Why longer words that begin with the last word were not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnlyWhole {
    /// Many events contain the word itself.
    Many,
    /// The search for longer words took too long.
    Slow,
}

/// Why a table could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The time was over.
    Slow,
    /// The reason in words, for the operator.
    Failed(String),
}

/// The answer of a word index to a search, before rows are read.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// The query that was sent to the index.
    pub(super) query: String,
    /// Ids of the rows that were written last and contain the words, in descending order. Always empty for PostgreSQL.
    pub(super) ids: Vec<i64>,
    /// How many rows were counted.
    pub(super) counted: usize,
    /// Whether no further rows contain the words.
    pub(super) is_all: bool,
    pub(super) only_whole: Option<OnlyWhole>,
}

/// The search in one window.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) filter: &'a Filter,
    pub(super) window: Window,
    /// Only rows below this place.
    pub(super) below: Option<&'a Place>,
    /// The largest number of rows to return.
    pub(super) limit: usize,
    pub(super) deadline: Instant,
    pub(super) hits: &'a Hits,
}

impl Hits {
    /// How many rows contain the words; `None` if that is not known.
    pub(super) fn count(&self) -> Option<Count> {
        match self.counted {
            count if self.is_all && self.only_whole.is_none() => Some(Count::Exactly(count)),
            0 => None,
            count => Some(Count::AtLeast(count)),
        }
    }
}

/// A database that holds a table.
#[async_trait]
pub(super) trait Backend: Send + Sync {
    /// The name of the database.
    fn name(&self) -> &'static str;

    /// Returns rows of a window.
    async fn look(&self, look: Look<'_>) -> Result<Vec<Row>, Unread>;

    /// Asks the word index for the words of a filter. A patient search may take longer.
    async fn hits(&self, filter: &Filter, deadline: Instant, is_patient: bool) -> Result<Hits, Unread>;

    /// Returns at most this many of the newest rows.
    async fn sample(&self, most: usize) -> Result<Sample, Unread>;

    /// The mark from which [`arrived`](Self::arrived) counts the rows that arrive from now on.
    async fn mark(&self) -> Result<String, Unread>;

    /// Counts the rows that arrived after the mark, up to [`MOST_NEW`].
    async fn arrived(&self, filter: &Filter, mark: &str) -> Result<usize, Unread>;

    /// Returns the earliest delivery among the events that follow this one.
    async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, Unread>;

    /// Returns one row with its record; `None` if the row does not exist.
    async fn whole(&self, channel: ChannelId, offset: i64) -> Result<Option<Whole>, Unread>;
}
