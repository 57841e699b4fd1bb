//! A simulated channel: its events, its watchers, and the records that have been made.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::available_parallelism;

use axum::body::Body;
use futures_util::future::join_all;
use tokio::task::{JoinError, spawn_blocking};
use uuid::Uuid;

use crate::event::entry::{Cell, Entry, Rendered};
use crate::event::facts::Facts;
use crate::event::kind::Honesty;
use crate::event::network::Network;
use crate::event::padding::{Padding, Parts};
use crate::event::record::render;
use crate::event::roster::{Roster, WatcherStatus};
use crate::misbehaviour::Misbehaviour;
use crate::options::Options;
use log::Log;
use memory::{KEPT_RECORDS, Memory};
use page::{Asked, Condition, Rules, Selection, newest};

pub(crate) mod log;
mod memory;
pub(crate) mod page;

/// How many records one thread makes at a time. Two threads share a page of the usual size.
const RECORDS_A_THREAD: usize = 100;

/// One channel.
pub(crate) struct Channel {
    pub(crate) roster: Roster,
    seed: u64,
    pub(crate) number: u64,
    network: Arc<Network>,
    rules: Rules,
    state: RwLock<State>,
    memory: Mutex<Memory>,
}

/// The state that changes while the service runs.
pub(crate) struct State {
    pub(crate) log: Log,
    /// The statuses in the order of the roster.
    pub(crate) watcher_statuses: Vec<WatcherStatus>,
}

/// An event, and the cell for its record.
struct Placed {
    entry: Entry,
    cell: Cell,
}

impl Channel {
    pub(crate) fn new(options: &Options, number: u64, network: &Arc<Network>, now_ms: i64) -> Self {
        let roster = Roster::new(options.seed, number);
        let watcher_statuses = vec![options.watcher_status; roster.watchers.len()];
        let log = Log::new(options, number, now_ms);
        Self {
            roster,
            seed: options.seed,
            number,
            network: Arc::clone(network),
            rules: Rules::new(options),
            state: RwLock::new(State { log, watcher_statuses }),
            memory: Mutex::new(Memory::new(kept_records(options))),
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

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn facts(&self, entry: &Entry) -> Facts<'_> {
        Facts::of(self.seed, self.number, &self.roster, entry)
    }

    pub(crate) fn select(&self, asked: Asked, condition: &impl Condition) -> Selection {
        let log = &self.state().log;
        let limit = log.misbehaviour.and_then(Misbehaviour::padding).map_or(asked.limit, Padding::limit);
        let asked = Asked { limit: asked.limit.min(limit), ..asked };
        let offset = asked.offset.filter(|offset| *offset > 0);
        match log.misbehaviour {
            Some(Misbehaviour::SamePage) => newest(log, None, asked.limit, condition, now_ms()),
            Some(Misbehaviour::Backwards) => newest(log, offset, asked.limit, condition, now_ms()),
            _ => self.rules.select(log, asked, condition, now_ms()),
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
        let placed = self.made(selection.entries).await?;
        let records: Vec<_> = placed.iter().filter_map(Placed::record).collect();
        let size: usize = records.iter().map(|(record, _)| record.len() + 1).sum();
        let mut json = Parts::with_capacity(size + 64);
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
        let placed = self.made(entry.into_iter().collect()).await?;
        Ok(placed.iter().find_map(Placed::record).map(|(record, withheld)| {
            let mut json = Parts::with_capacity(record.len());
            record.write(withheld, &mut json);
            json.into()
        }))
    }

    /// Makes the missing records on blocking threads.
    async fn made(self: &Arc<Self>, entries: Vec<Entry>) -> Result<Vec<Placed>, JoinError> {
        let mut placed = self.placed(entries);
        let (mut made, mut missing) = (Vec::with_capacity(placed.len()), Vec::new());
        while !placed.is_empty() {
            let group = placed.split_off(placed.len().saturating_sub(RECORDS_A_THREAD));
            if group.iter().all(|place| place.cell.get().is_some()) {
                made.extend(group);
            } else {
                let channel = Arc::clone(self);
                missing.push(spawn_blocking(move || channel.make(group)));
            }
        }
        for group in join_all(missing).await {
            made.extend(group?);
        }
        made.sort_unstable_by_key(|place| std::cmp::Reverse(place.entry.index));
        Ok(made)
    }

    fn placed(&self, entries: Vec<Entry>) -> Vec<Placed> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = |entry: Entry| {
            let cell = entry.own_cell.clone().unwrap_or_else(|| memory.cell((entry.drawn, entry.misbehaviour)));
            Placed { entry, cell }
        };
        entries.into_iter().map(&mut place).collect()
    }

    fn make(&self, group: Vec<Placed>) -> Vec<Placed> {
        for Placed { entry, cell } in &group {
            cell.get_or_init(|| render(self.seed, self.number, &self.network, &self.roster, entry));
        }
        group
    }
}

impl Placed {
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
