//! Reads rows of events from the table that a sink writes.
//!
//! Rows come newest first: by the event's time, then its offset and its channel. The table has indexes on the time and on
//! the key, and none on the columns that a filter uses. A page therefore searches one time window after another, from
//! newer to older, and each window is wider than the previous one. The page stops when it has enough rows or when its
//! budget is used up. It reports how far it has searched.
//!
//! # Invariants
//!
//! * **Nothing is written.** SQLite is opened read-only, and the PostgreSQL session is set to read-only transactions.
//! * **Bounded.** A page has at most `MOST_ROWS` rows and a window ends with the page's budget. The values of the filter
//!   menus come from the newest `SAMPLED` rows.
//! * **Keyset.** A further page begins at a row's place, not at a row count, so new rows do not shift the pages.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use net::tasks::lock;
use proof::event::ChannelId;
use sink::{PostgresSettings, SqliteSettings};

mod backend;
mod filter;
mod piece;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sample;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;
mod windows;

pub(super) use backend::{Count, MOST_NEW, OnlyWhole, Unread};
pub(super) use filter::{Facet, Filter, Place};
pub(super) use piece::Piece;
pub(super) use rows::{Row, Whole};
pub(super) use sample::Sample;
/// How the texts of the table are searched.
pub(super) use sink::Search;
pub(super) use windows::MOST_ROWS;

use backend::{Backend, Hits, Look};
use sample::SAMPLED;
use windows::Windows;

/// How long a sample stays in the cache.
const SAMPLED_FOR: Duration = Duration::from_secs(15);

/// How long a page searches for its rows. The longer budget applies if the user asked to search further.
const BUDGET: Duration = Duration::from_millis(120);
const PATIENT_BUDGET: Duration = Duration::from_secs(10);

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
pub(super) enum Source {
    Table(Table),
    /// The service's own search, and the reason for using it.
    Service(String),
}

/// A table of a sink.
pub(super) struct Table {
    /// The name of the sink.
    pub(super) sink: String,
    pub(super) search: Search,
    backend: Box<dyn Backend>,
    sample: Mutex<Option<(Instant, Arc<Sample>)>>,
}

/// A page of rows.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) rows: Vec<Row>,
    /// Whether older rows exist.
    pub(super) has_more: bool,
    /// How far the search got, if its time was over before it had enough rows.
    pub(super) stopped: Option<Stopped>,
    /// Set if the search was incomplete: it looked only for the last word as a whole, and not for longer words that begin
    /// with it.
    pub(super) only_whole: Option<OnlyWhole>,
    /// How many rows of the table match the search, if that is known.
    pub(super) count: Option<Count>,
    /// How long it took.
    pub(super) took: Duration,
}

/// How far a page has searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// All rows that are newer than this time were searched; `None` if nothing was searched.
    pub(super) at: Option<Timestamp>,
}

#[cfg(feature = "sqlite")]
#[expect(clippy::unnecessary_wraps, reason = "as without the feature")]
fn sqlite(settings: SqliteSettings) -> Result<Box<dyn Backend>, String> {
    Ok(Box::new(sqlite::Sqlite::new(settings)))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_settings: SqliteSettings) -> Result<Box<dyn Backend>, String> {
    Err("this channeld was built without the feature sqlite".to_owned())
}

#[cfg(feature = "postgres")]
fn postgres(sink: &str, settings: PostgresSettings) -> Result<Box<dyn Backend>, String> {
    Ok(Box::new(postgres::Postgres::new(sink, settings)?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_sink: &str, _settings: PostgresSettings) -> Result<Box<dyn Backend>, String> {
    Err("this channeld was built without the feature postgres".to_owned())
}

impl Source {
    /// Prepares to read from this source. The error says why that is impossible.
    pub(super) fn of(source: EventSource) -> Result<Self, String> {
        let (sink, search, backend) = match source {
            EventSource::Sqlite(sink, settings) => (sink, settings.search, sqlite(settings)?),
            EventSource::Postgres(sink, settings) => {
                let (search, backend) = (settings.search, postgres(&sink, *settings)?);
                (sink, search, backend)
            }
            EventSource::Service(why) => return Ok(Self::Service(why)),
        };
        Ok(Self::Table(Table { sink, search, backend, sample: Mutex::default() }))
    }
}

impl Table {
    /// A description for people.
    pub(super) fn described(&self) -> String {
        format!("sink {} ({})", self.sink, self.backend.name())
    }

    /// Returns at most `limit` rows below a place.
    pub(super) async fn page(
        &self,
        filter: &Filter,
        below: Option<&Place>,
        limit: usize,
        is_patient: bool,
    ) -> Result<Page, Unread> {
        let began = Instant::now();
        let deadline = began + if is_patient { PATIENT_BUDGET } else { BUDGET };
        let mut page = Page::default();
        let sample = self.sample().await?;
        let hits = match self.hits(filter, deadline, is_patient).await {
            Err(Unread::Slow) => {
                page.stopped = Some(Stopped { at: None });
                return Ok(page);
            }
            hits => hits?,
        };
        page.only_whole = hits.only_whole;
        page.count = hits.count().filter(|_| filter.has_only_words());
        // If few rows contain the words, one window looks them all up.
        let mut windows = Windows::over(&sample, filter, below, hits.is_all);
        while let Some(window) = windows.next() {
            let missing = limit + 1 - page.rows.len();
            match self.backend.look(Look { filter, window, below, limit: missing, deadline, hits: &hits }).await {
                Ok(rows) => page.rows.extend(rows),
                Err(Unread::Slow) => {
                    page.stopped = Some(Stopped { at: Windows::looked_to(window) });
                    break;
                }
                Err(failed) => return Err(failed),
            }
            if page.rows.len() > limit {
                break;
            }
        }
        page.has_more = page.rows.len() > limit;
        page.rows.truncate(limit);
        page.took = began.elapsed();
        Ok(page)
    }

    /// Asks the word index for the words. The result is empty if the filter has no words or the table has no index.
    async fn hits(&self, filter: &Filter, deadline: Instant, is_patient: bool) -> Result<Hits, Unread> {
        if filter.words.is_none() || self.search == Search::None {
            return Ok(Hits::default());
        }
        self.backend.hits(filter, deadline, is_patient).await
    }

    /// The newest rows, at most [`SAMPLED_FOR`] old.
    pub(super) async fn sample(&self) -> Result<Arc<Sample>, Unread> {
        let last = lock(&self.sample).clone();
        if let Some((at, sample)) = last.filter(|(at, sample)| at.elapsed() < SAMPLED_FOR && !sample.rows.is_empty()) {
            let _ = at;
            return Ok(sample);
        }
        let sample = Arc::new(self.backend.sample(SAMPLED).await?);
        *lock(&self.sample) = Some((Instant::now(), sample.clone()));
        Ok(sample)
    }

    /// The mark from which [`arrived`](Self::arrived) counts the rows that arrive from now on.
    pub(super) async fn mark(&self) -> Result<String, Unread> {
        self.backend.mark().await
    }

    /// Counts the rows that arrived after the mark, up to [`MOST_NEW`].
    pub(super) async fn arrived(&self, filter: &Filter, mark: &str) -> Result<usize, Unread> {
        self.backend.arrived(filter, mark).await
    }

    /// Returns the earliest delivery among the events that follow this one. If it is before this event's own delivery,
    /// this event was delivered late.
    pub(super) async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, Unread> {
        self.backend.followed(channel, offset).await
    }

    /// Returns one row with its record; `None` if the row does not exist.
    pub(super) async fn whole(&self, channel: ChannelId, offset: i64) -> Result<Option<Whole>, Unread> {
        self.backend.whole(channel, offset).await
    }
}
