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

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::Failure;
use crate::cli::exit::Exit;
use crate::config::{Config, SinkSettings};
use net::tasks::lock;
use proof::event::ChannelId;

mod filter;
mod piece;
mod postgres;
mod sql;
mod sqlite;
#[cfg(test)]
mod tests;
mod windows;

pub(super) use filter::{Facet, Filter, Place};
pub(super) use piece::Piece;

use postgres::Postgres;
use sqlite::Sqlite;
use windows::{Window, Windows};

/// The largest number of rows on a page.
pub(super) const MOST_ROWS: usize = 200;

/// How many of the newest rows provide the values of the filter menus.
const SAMPLED: usize = 2_000;

/// How long a sample stays in the cache.
const SAMPLED_FOR: Duration = Duration::from_secs(15);

/// How long a page searches for its rows. The longer budget applies if the user asked to search further.
const BUDGET: Duration = Duration::from_millis(120);
const PATIENT_BUDGET: Duration = Duration::from_secs(10);

/// How many of the events after an event, by offset, are checked for an earlier delivery.
const FOLLOWING: usize = 100;

/// The highest number of new rows that is counted.
pub(super) const MOST_NEW: usize = 1_000;

/// The source of the events.
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
    backend: Backend,
    sample: Mutex<Option<(Instant, Arc<Sample>)>>,
}

enum Backend {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

/// How the texts of the table are searched.
pub(super) use sink::Search;

/// The columns of a row that a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) channel: String,
    pub(super) channel_id: String,
    pub(super) offset: i64,
    pub(super) event_id: Option<String>,
    pub(super) kind: String,
    pub(super) name: Option<String>,
    pub(super) source: Option<String>,
    pub(super) service: Option<String>,
    pub(super) network: Option<String>,
    pub(super) time: Option<Timestamp>,
    pub(super) received: Option<Timestamp>,
    pub(super) delivered: Option<Timestamp>,
    pub(super) status: Option<String>,
    pub(super) verification: String,
    /// Why the row matches a word search, unless the row already shows it.
    pub(super) piece: Option<Piece>,
}

/// A row together with its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) row: Row,
    pub(super) digest: Option<String>,
    /// The body that the sink wrote.
    pub(super) record: String,
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

/// How many rows contain the words of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(usize),
    AtLeast(usize),
}

/// Why longer words that begin with the last word were not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnlyWhole {
    /// Many events contain the word itself.
    Many,
    /// The search for longer words took too long.
    Slow,
}

/// The answer of a word index to a search, before rows are read.
#[derive(Debug, Default)]
struct Hits {
    /// The query that was sent to the index.
    query: String,
    /// Ids of the rows that were written last and contain the words, in descending order. Always empty for PostgreSQL.
    ids: Vec<i64>,
    /// How many rows were counted.
    counted: usize,
    /// Whether no further rows contain the words.
    is_all: bool,
    only_whole: Option<OnlyWhole>,
}

/// The search in one window.
#[derive(Clone, Copy)]
struct Look<'a> {
    filter: &'a Filter,
    window: Window,
    /// Only rows below this place.
    below: Option<&'a Place>,
    /// The largest number of rows to return.
    limit: usize,
    deadline: Instant,
    hits: &'a Hits,
}

/// How far a page has searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// All rows that are newer than this time were searched; `None` if nothing was searched.
    pub(super) at: Option<Timestamp>,
}

/// The newest rows.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) rows: Vec<Row>,
    /// The approximate number of rows in the table.
    pub(super) total: u64,
}

/// Why a table could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The time was over.
    Slow,
    /// The reason in words, for the operator.
    Failed(String),
}

impl Source {
    /// Returns the table of the named sink or, without a name, the table of the first such sink that a channel uses.
    pub(super) fn of(config: &Config, from: Option<&str>) -> Result<Self, Failure> {
        let wrong = |why: String| Err(Failure(Exit::Usage, why));
        if let Some(name) = from {
            let Some(sink) = config.sinks.get(name) else {
                let names: Vec<_> = config.sinks.keys().map(String::as_str).collect();
                return wrong(format!("--from {name}: there is no such sink; there are: {}", names.join(", ")));
            };
            return match Table::of(name, &sink.settings)? {
                Some(table) => Ok(Self::Table(table)),
                None => wrong(format!("--from {name}: this sink is no table: name one of type sqlite or postgres")),
            };
        }
        for name in config.channels.iter().flat_map(|channel| &channel.sinks) {
            if let Some(table) =
                config.sinks.get(name).map(|sink| Table::of(name, &sink.settings)).transpose()?.flatten()
            {
                return Ok(Self::Table(table));
            }
        }
        Ok(Self::Service("no channel has a sink of type sqlite or postgres".to_owned()))
    }
}

impl Table {
    fn of(name: &str, settings: &SinkSettings) -> Result<Option<Self>, Failure> {
        let (search, backend) = match settings {
            SinkSettings::Sqlite(settings) => (settings.search, Backend::Sqlite(Sqlite::new(settings.clone()))),
            SinkSettings::Postgres(settings) => {
                let postgres = Postgres::new(name, (**settings).clone());
                let postgres = postgres.map_err(|why| Failure(Exit::Config, why))?;
                (settings.search, Backend::Postgres(Box::new(postgres)))
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { sink: name.to_owned(), search, backend, sample: Mutex::default() }))
    }

    /// A description for people.
    pub(super) fn described(&self) -> String {
        let kind = match &self.backend {
            Backend::Sqlite(_) => "SQLite",
            Backend::Postgres(_) => "PostgreSQL",
        };
        format!("sink {} ({kind})", self.sink)
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
            match self.look(Look { filter, window, below, limit: missing, deadline, hits: &hits }).await {
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

    async fn look(&self, look: Look<'_>) -> Result<Vec<Row>, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.look(look).await,
            Backend::Postgres(postgres) => postgres.look(look).await,
        }
    }

    /// Asks the word index for the words. The result is empty if the filter has no words or the table has no index.
    async fn hits(&self, filter: &Filter, deadline: Instant, is_patient: bool) -> Result<Hits, Unread> {
        let Some(words) = filter.words.as_ref().filter(|_| self.search != Search::None) else {
            return Ok(Hits::default());
        };
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.hits(words, deadline, is_patient).await,
            Backend::Postgres(postgres) => {
                // If the count takes too long, many rows match.
                Ok(postgres.hits(filter, deadline).await.unwrap_or_default())
            }
        }
    }

    /// The newest rows, at most [`SAMPLED_FOR`] old.
    pub(super) async fn sample(&self) -> Result<Arc<Sample>, Unread> {
        let last = lock(&self.sample).clone();
        if let Some((at, sample)) = last.filter(|(at, sample)| at.elapsed() < SAMPLED_FOR && !sample.rows.is_empty()) {
            let _ = at;
            return Ok(sample);
        }
        let sample = Arc::new(match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.sample(SAMPLED).await?,
            Backend::Postgres(postgres) => postgres.sample(SAMPLED).await?,
        });
        *lock(&self.sample) = Some((Instant::now(), sample.clone()));
        Ok(sample)
    }

    /// The mark from which [`arrived`](Self::arrived) counts the rows that arrive from now on.
    pub(super) async fn mark(&self) -> Result<String, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.mark().await,
            Backend::Postgres(postgres) => postgres.mark().await,
        }
    }

    /// Counts the rows that arrived after the mark, up to [`MOST_NEW`].
    pub(super) async fn arrived(&self, filter: &Filter, mark: &str) -> Result<usize, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.arrived(filter, mark).await,
            Backend::Postgres(postgres) => postgres.arrived(filter, mark).await,
        }
    }

    /// Returns the earliest delivery among the events that follow this one. If it is before this event's own delivery,
    /// this event was delivered late.
    pub(super) async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.followed(channel, offset).await,
            Backend::Postgres(postgres) => postgres.followed(channel, offset).await,
        }
    }

    /// Returns one row with its record; `None` if the row does not exist.
    pub(super) async fn whole(&self, channel: ChannelId, offset: i64) -> Result<Option<Whole>, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.whole(channel, offset).await,
            Backend::Postgres(postgres) => postgres.whole(channel, offset).await,
        }
    }
}

impl Hits {
    /// How many rows contain the words; `None` if that is not known.
    fn count(&self) -> Option<Count> {
        match self.counted {
            count if self.is_all && self.only_whole.is_none() => Some(Count::Exactly(count)),
            0 => None,
            count => Some(Count::AtLeast(count)),
        }
    }
}

impl Sample {
    /// Creates a sample from rows that are not in a table.
    pub(super) fn of(rows: Vec<Row>) -> Self {
        Self { total: rows.len() as u64, rows }
    }

    /// The values of a column, the most frequent first, and how many of the newest rows have each value.
    pub(super) fn values(&self, facet: Facet) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.rows {
            if let Some(value) = facet.of(row).filter(|value| !value.is_empty()) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(value, count)| (value.to_owned(), count)).collect();
        counts.sort_by(|(one, first), (other, second)| second.cmp(first).then_with(|| one.cmp(other)));
        counts
    }

    /// Estimates how many rows of the table match a filter without words: the share in the sample applied to the whole
    /// table.
    pub(super) fn estimate(&self, filter: &Filter) -> Option<u64> {
        if filter.words.is_some() || self.rows.is_empty() {
            return None;
        }
        let matching = self.rows.iter().filter(|row| filter.lets_through(row)).count();
        let (matching, sampled) = (matching as u128, self.rows.len() as u128);
        u64::try_from(u128::from(self.total.max(self.rows.len() as u64)) * matching / sampled).ok()
    }

    /// Whether the sample contains all rows of the table.
    pub(super) fn is_all(&self) -> bool {
        self.rows.len() < SAMPLED
    }
}

impl Whole {
    /// The service's JSON inside the record, if the record contains it.
    pub(super) fn event(&self) -> Option<&str> {
        #[derive(serde::Deserialize)]
        struct Record<'a> {
            #[serde(borrow)]
            event: Option<&'a RawValue>,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
            #[serde(borrow)]
            headers: Option<&'a RawValue>,
        }
        let mut json = self.record.as_str();
        // A record, or a CloudEvents event around a record or around the service's event, or only the service's event.
        for _ in 0..3 {
            let record: Record<'_> = serde_json::from_str(json).ok()?;
            json = match record {
                Record { event: Some(event), .. } => return Some(event.get()),
                Record { data: Some(data), headers: None, .. } => data.get(),
                Record { headers: Some(_), .. } => return Some(json),
                _ => return None,
            };
        }
        None
    }
}
