//! A simulated channel: its events, its watchers, and the records that have been made.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::available_parallelism;

use axum::body::Body;
use futures_util::future::join_all;
use tokio::task::{JoinError, spawn_blocking};
use uuid::Uuid;

use crate::event::facts::ContentFacts;
use crate::event::kind::Honesty;
use crate::event::log_entry::{LogEntry, RecordCell, Rendered};
use crate::event::network::Network;
use crate::event::padding::{Padding, SharedBody};
use crate::event::record::render;
use crate::event::roster::{Roster, WatcherStatus};
use crate::misbehaviour::Misbehaviour;
use crate::options::Options;
use log::ChannelLog;
use page::{Condition, PageRequest, Rules, Selection, newest};
use record_cache::{KEPT_RECORDS, RecordCache};

pub(crate) mod log;
pub(crate) mod page;
mod record_cache;

/// How many records one thread makes at a time. Two threads share a page of the usual size.
const RECORDS_A_THREAD: usize = 100;

/// One channel.
pub(crate) struct Channel {
    pub(crate) roster: Roster,
    seed: u64,
    pub(crate) number: u64,
    network: Arc<Network>,
    rules: Rules,
    state: RwLock<ChannelState>,
    record_cache: Mutex<RecordCache>,
}

/// The state that changes while the service runs.
pub(crate) struct ChannelState {
    pub(crate) log: ChannelLog,
    /// The statuses in the order of the roster.
    pub(crate) watcher_statuses: Vec<WatcherStatus>,
    /// Whether the list of channels contains the channel.
    pub(crate) is_listed: bool,
}

/// An event, and the cell for its record.
struct CachedEntry {
    entry: LogEntry,
    cell: RecordCell,
}

impl Channel {
    pub(crate) fn new(options: &Options, number: u64, network: &Arc<Network>, now_ms: i64) -> Self {
        let roster = Roster::new(options.seed, number);
        let watcher_statuses = vec![options.watcher_status; roster.watchers.len()];
        let log = ChannelLog::new(options, number, now_ms);
        Self {
            roster,
            seed: options.seed,
            number,
            network: Arc::clone(network),
            rules: Rules::new(options),
            state: RwLock::new(ChannelState { log, watcher_statuses, is_listed: true }),
            record_cache: Mutex::new(RecordCache::new(kept_records(options))),
        }
    }

    /// Makes the record of every event.
    pub(crate) async fn prepare(self: &Arc<Self>) -> Result<(), JoinError> {
        let (len, now_ms) = (self.state().log.len(), now_ms());
        let at_a_time = available_parallelism().map_or(1, NonZero::get) * RECORDS_A_THREAD;
        for first in (0..len).step_by(at_a_time) {
            let indices = first..len.min(first + at_a_time as u64);
            let entries = indices.map(|index| self.state().log.entry(index, now_ms)).collect();
            self.made(entries).await?;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, ChannelState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, ChannelState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn facts(&self, entry: &LogEntry) -> ContentFacts<'_> {
        ContentFacts::of(self.seed, self.number, &self.roster, entry)
    }

    pub(crate) fn select(&self, request: PageRequest, condition: &impl Condition) -> Selection {
        let log = &self.state().log;
        let limit = log.misbehaviour.and_then(Misbehaviour::padding).map_or(request.limit, Padding::limit);
        let request = PageRequest { limit: request.limit.min(limit), ..request };
        let offset = request.offset.filter(|offset| *offset > 0);
        match log.misbehaviour {
            Some(Misbehaviour::SamePage) => newest(log, None, request.limit, condition, now_ms()),
            Some(Misbehaviour::Backwards) => newest(log, offset, request.limit, condition, now_ms()),
            _ => self.rules.select(log, request, condition, now_ms()),
        }
    }

    /// Returns every event's offset, and the verdict that a correct verifier must reach at this moment.
    pub(crate) fn offsets(&self) -> Vec<(i64, Honesty)> {
        let (state, now_ms) = (self.state(), now_ms());
        let entries = (0..state.log.len()).map(|index| state.log.entry(index, now_ms));
        entries.map(|entry| (entry.offset, entry.spec.honesty(entry.withheld))).collect()
    }

    /// Returns the page as the service answers it.
    pub(crate) async fn page(self: &Arc<Self>, selection: Selection) -> Result<Body, JoinError> {
        let cached = self.made(selection.entries).await?;
        let records: Vec<_> = cached.iter().filter_map(CachedEntry::record).collect();
        let size: usize = records.iter().map(|(record, _)| record.len() + 1).sum();
        let mut json = SharedBody::with_capacity(size + 64);
        json.copy(br#"{"events":["#);
        for (at, (record, withheld)) in records.into_iter().enumerate() {
            if at > 0 {
                json.copy(b",");
            }
            record.write(withheld, &mut json);
        }
        json.copy(format!(r#"],"has_more":{}}}"#, selection.has_more).as_bytes());
        Ok(json.into())
    }

    /// Returns one event's record. `None` if no event has this id.
    pub(crate) async fn record(self: &Arc<Self>, id: Uuid) -> Result<Option<Body>, JoinError> {
        let entry = {
            let log = &self.state().log;
            log.index_of(id).map(|index| log.entry(index, now_ms()))
        };
        let cached = self.made(entry.into_iter().collect()).await?;
        Ok(cached.iter().find_map(CachedEntry::record).map(|(record, withheld)| {
            let mut json = SharedBody::with_capacity(record.len());
            record.write(withheld, &mut json);
            json.into()
        }))
    }

    /// Makes the missing records on blocking threads.
    async fn made(self: &Arc<Self>, entries: Vec<LogEntry>) -> Result<Vec<CachedEntry>, JoinError> {
        let mut cached = self.cached(entries);
        let (mut made, mut missing) = (Vec::with_capacity(cached.len()), Vec::new());
        while !cached.is_empty() {
            let group = cached.split_off(cached.len().saturating_sub(RECORDS_A_THREAD));
            if group.iter().all(|entry| entry.cell.get().is_some()) {
                made.extend(group);
            } else {
                let channel = Arc::clone(self);
                missing.push(spawn_blocking(move || channel.make(group)));
            }
        }
        for group in join_all(missing).await {
            made.extend(group?);
        }
        made.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.entry.index));
        Ok(made)
    }

    fn cached(&self, entries: Vec<LogEntry>) -> Vec<CachedEntry> {
        let mut record_cache = self.record_cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut with_cell = |entry: LogEntry| {
            let cell = entry.own_cell.clone().unwrap_or_else(|| record_cache.cell((entry.drawn, entry.misbehaviour)));
            CachedEntry { entry, cell }
        };
        entries.into_iter().map(&mut with_cell).collect()
    }

    fn make(&self, group: Vec<CachedEntry>) -> Vec<CachedEntry> {
        for CachedEntry { entry, cell } in &group {
            cell.get_or_init(|| render(self.seed, self.number, &self.network, &self.roster, entry));
        }
        group
    }
}

impl CachedEntry {
    /// Returns the record if it has been made, and whether its proofs are withheld.
    fn record(&self) -> Option<(&Rendered, bool)> {
        self.cell.get().map(|record| (record, self.entry.withheld))
    }
}

/// Returns how many records one channel keeps.
fn kept_records(options: &Options) -> usize {
    let share = KEPT_RECORDS / options.channels.max(1);
    if options.prepared { share.max(usize::try_from(options.events).unwrap_or(usize::MAX)) } else { share }
}

/// Returns the time of day in Unix milliseconds.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
