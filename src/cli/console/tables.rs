//! Rows of events in the table that a sink writes, read only.
//!
//! Rows come newest first, by the event's time, then its offset and channel. There are indexes on the time and on the key, and
//! none on what is filtered by. So a page looks at windows of time, one below the other and each wider than the one before, and
//! stops when it has enough rows or has looked for as long as its budget lasts. It says how far it has looked.
//!
//! # Invariants
//!
//! * **Nothing is written.** SQLite is opened for reading, PostgreSQL is told that the session only reads.
//! * **Bounded.** A page has `MOST_ROWS` rows, a window ends with its budget, the values to choose from are those of the newest
//!   `SAMPLED` rows.
//! * **Keyset.** A further page begins at a row's place, not at a number of rows: what arrives meanwhile moves nothing.

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

/// Rows of a page, at the most.
pub(super) const MOST_ROWS: usize = 200;

/// The values to choose from are those of so many of the newest rows.
const SAMPLED: usize = 2_000;

/// For so long they are taken for those of now.
const SAMPLED_FOR: Duration = Duration::from_secs(15);

/// For so long a page looks for its rows, and so long where it was asked to look further.
const BUDGET: Duration = Duration::from_millis(120);
const PATIENT_BUDGET: Duration = Duration::from_secs(10);

/// The events that follow one, by their offsets, of which it is looked whether they were delivered before it.
const FOLLOWING: usize = 100;

/// New rows are counted up to here.
pub(super) const MOST_NEW: usize = 1_000;

/// Where events are read from.
pub(super) enum Source {
    Table(Table),
    /// The service's own search, and why.
    Service(String),
}

/// A table of a sink.
pub(super) struct Table {
    /// The sink.
    pub(super) sink: String,
    pub(super) search: Search,
    backend: Backend,
    sample: Mutex<Option<(Instant, Arc<Sample>)>>,
}

enum Backend {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

/// How its texts are searched.
pub(super) use sink::Search;

/// What a row says in a list.
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
    /// Where words were searched: why it is a hit, unless the row shows that.
    pub(super) piece: Option<Piece>,
}

/// A row with what was delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) row: Row,
    pub(super) digest: Option<String>,
    /// The sink's body.
    pub(super) record: String,
}

/// A page of rows.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) rows: Vec<Row>,
    /// Whether there are rows below.
    pub(super) has_more: bool,
    /// Where it has stopped looking before it had enough, because its time was over.
    pub(super) stopped: Option<Stopped>,
    /// Where not all of a search was done: events were looked for that hold the last word as a whole, and none that hold a
    /// longer word that begins so.
    pub(super) only_whole: Option<OnlyWhole>,
    /// How many rows of the table the search finds, where that is known.
    pub(super) count: Option<Count>,
    /// How long it took.
    pub(super) took: Duration,
}

/// How many rows hold the words of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(usize),
    AtLeast(usize),
}

/// Why words that begin like the last one were not looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnlyWhole {
    /// Many events hold the word itself.
    Many,
    /// There are so many that the time was over.
    Slow,
}

/// What an index of words says of a search, before rows are read.
#[derive(Debug, Default)]
struct Hits {
    /// What the index was asked.
    query: String,
    /// The rows that were written last and hold the words, by their ids, descending. PostgreSQL gives none.
    ids: Vec<i64>,
    /// How many rows were counted.
    counted: usize,
    /// Whether there are no further ones.
    is_all: bool,
    only_whole: Option<OnlyWhole>,
}

/// What is looked for in one window.
#[derive(Clone, Copy)]
struct Look<'a> {
    filter: &'a Filter,
    window: Window,
    /// Only rows below this place.
    below: Option<&'a Place>,
    /// So many rows at the most.
    limit: usize,
    deadline: Instant,
    hits: &'a Hits,
}

/// How far a page has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// Everything that is not older was looked at; none where nothing was.
    pub(super) at: Option<Timestamp>,
}

/// The newest rows.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) rows: Vec<Row>,
    /// How many rows the table has, about.
    pub(super) total: u64,
}

/// Why a table does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// Its time was over.
    Slow,
    /// In words, for the operator.
    Failed(String),
}

impl Source {
    /// The table of the sink that was named or, without a name, of the first that a channel uses.
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

    /// What it is, for a person.
    pub(super) fn described(&self) -> String {
        let kind = match &self.backend {
            Backend::Sqlite(_) => "SQLite",
            Backend::Postgres(_) => "PostgreSQL",
        };
        format!("sink {} ({kind})", self.sink)
    }

    /// The rows below a place, at most `limit`.
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
        // Where few rows hold the words, they are looked up at once.
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

    /// What an index says of the words; nothing where there are none, or no index.
    async fn hits(&self, filter: &Filter, deadline: Instant, is_patient: bool) -> Result<Hits, Unread> {
        let Some(words) = filter.words.as_ref().filter(|_| self.search != Search::None) else {
            return Ok(Hits::default());
        };
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.hits(words, deadline, is_patient).await,
            Backend::Postgres(postgres) => {
                // Where that takes too long, there are many.
                Ok(postgres.hits(filter, deadline).await.unwrap_or_default())
            }
        }
    }

    /// The newest rows, as they were a moment ago.
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

    /// What [`arrived`](Self::arrived) counts from, if it is to count what comes from now on.
    pub(super) async fn mark(&self) -> Result<String, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.mark().await,
            Backend::Postgres(postgres) => postgres.mark().await,
        }
    }

    /// How many rows have come since, up to [`MOST_NEW`].
    pub(super) async fn arrived(&self, filter: &Filter, mark: &str) -> Result<usize, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.arrived(filter, mark).await,
            Backend::Postgres(postgres) => postgres.arrived(filter, mark).await,
        }
    }

    /// When the first of the events that follow one was delivered. Where that was before the one itself, it came late.
    pub(super) async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.followed(channel, offset).await,
            Backend::Postgres(postgres) => postgres.followed(channel, offset).await,
        }
    }

    /// One row whole; none where it is not there.
    pub(super) async fn whole(&self, channel: ChannelId, offset: i64) -> Result<Option<Whole>, Unread> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.whole(channel, offset).await,
            Backend::Postgres(postgres) => postgres.whole(channel, offset).await,
        }
    }
}

impl Hits {
    /// How many rows hold the words; none where that is not known.
    fn count(&self) -> Option<Count> {
        match self.counted {
            count if self.is_all && self.only_whole.is_none() => Some(Count::Exactly(count)),
            0 => None,
            count => Some(Count::AtLeast(count)),
        }
    }
}

impl Sample {
    /// Of rows that no table has.
    pub(super) fn of(rows: Vec<Row>) -> Self {
        Self { total: rows.len() as u64, rows }
    }

    /// The values of a column, the most frequent first, with how many of the newest rows have each.
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

    /// How many rows of the table there are by a filter without words, about: as many of all as of the newest.
    pub(super) fn estimate(&self, filter: &Filter) -> Option<u64> {
        if filter.words.is_some() || self.rows.is_empty() {
            return None;
        }
        let matching = self.rows.iter().filter(|row| filter.lets_through(row)).count();
        let (matching, sampled) = (matching as u128, self.rows.len() as u128);
        u64::try_from(u128::from(self.total.max(self.rows.len() as u64)) * matching / sampled).ok()
    }

    /// Whether it is all that the table has.
    pub(super) fn is_all(&self) -> bool {
        self.rows.len() < SAMPLED
    }
}

impl Whole {
    /// The service's JSON in what was delivered, where it is there.
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
        // A record, a CloudEvents event around one or around the service's own, or that alone.
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
