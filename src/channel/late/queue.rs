//! When to request each late event of a channel. Every late event that a lane has to deliver is queued, or is on its way to the
//! lanes: [`RunContext::commit`](crate::run::context::RunContext::commit) queues the events that a commit makes late.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::run::machine::Machine;
use ledger::{Change, Room};
use net::retry::{Retry, RetryPolicy};
use net::tasks::lock;
use proof::event::EventKey;

/// The waits between two requests for a missing proof.
pub(crate) const PROOF_RETRY: RetryPolicy =
    RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// The wait between two offers of an event with stored bytes, while the queue of a lane is full.
const LANE_RETRY: Duration = Duration::from_millis(50);

/// When to request each late event of a channel. Events on their way to the lanes are not in it.
#[derive(Debug)]
pub(crate) struct LateQueue {
    machine: Arc<dyn Machine>,
    waiting: Mutex<BTreeMap<EventKey, Waiting>>,
    pub(super) added: Notify,
    pub(super) removed: Notify,
}

#[derive(Debug)]
struct Waiting {
    retry: Retry,
    due: Instant,
}

/// Adds late events to the queue when it is dropped.
pub(crate) struct AddAfter<'a> {
    queue: &'a LateQueue,
    events: Vec<(EventKey, IsStored)>,
}

/// Whether the bytes of an event are stored. It is then due immediately, because no request to the service is needed.
type IsStored = bool;

impl Drop for AddAfter<'_> {
    fn drop(&mut self) {
        self.queue.add(self.events.drain(..));
    }
}

impl LateQueue {
    pub(crate) fn new(machine: Arc<dyn Machine>) -> Self {
        Self { machine, waiting: Mutex::default(), added: Notify::new(), removed: Notify::new() }
    }

    /// Adds late events. If an event is already present, because it is read again for another lane, it keeps its times.
    pub(crate) fn insert(&self, events: impl IntoIterator<Item = EventKey>) {
        self.add(events.into_iter().map(|key| (key, false)));
    }

    /// Adds the events that `changes` make late when the returned guard is dropped. Some may turn out not to be late, for
    /// example if the changes were not made: those are removed when they are due.
    pub(crate) fn add_after(&self, changes: &[Change]) -> AddAfter<'_> {
        let made_late = |change: &Change| match change {
            Change::Owe { event, .. } => Some((event.event_key(), event.appeared)),
            Change::Release { key, .. } => Some((*key, true)),
            _ => None,
        };
        AddAfter { queue: self, events: changes.iter().filter_map(made_late).collect() }
    }

    pub(super) fn add(&self, events: impl Iterator<Item = (EventKey, IsStored)>) {
        let mut waiting = lock(&self.waiting);
        for (key, is_stored) in events {
            if let Entry::Vacant(entry) = waiting.entry(key) {
                let mut retry = self.machine.retry(PROOF_RETRY);
                let wait = if is_stored { Duration::ZERO } else { retry.next_wait(None) };
                entry.insert(Waiting { retry, due: Instant::now() + wait });
                self.added.notify_one();
            }
        }
    }

    pub(super) fn first_due(&self) -> Option<(Instant, EventKey)> {
        lock(&self.waiting).iter().map(|(key, waiting)| (waiting.due, *key)).min()
    }

    /// Returns the number and the size of the queued events. `bytes` returns the size of an event that is still late.
    pub(super) fn room(&self, bytes: impl Fn(&EventKey) -> Option<u64>) -> Room {
        let waiting = lock(&self.waiting);
        Room { events: waiting.len() as u64, bytes: waiting.keys().filter_map(bytes).sum() }
    }

    pub(super) fn ask_later(&self, key: EventKey) {
        if let Some(waiting) = lock(&self.waiting).get_mut(&key) {
            waiting.due = Instant::now() + waiting.retry.next_wait(None);
        }
    }

    /// Tries an event again when the lanes may have room. The events above it are not tried earlier, which preserves order.
    pub(super) fn wait_for_room(&self, key: EventKey) {
        let mut waiting = lock(&self.waiting);
        let due = Instant::now() + LANE_RETRY;
        waiting.entry(key).or_insert_with(|| Waiting { retry: self.machine.retry(PROOF_RETRY), due });
        waiting.range_mut(key..).for_each(|(_, waiting)| waiting.due = waiting.due.max(due));
        self.added.notify_one();
    }

    pub(super) fn remove(&self, key: EventKey) {
        lock(&self.waiting).remove(&key);
        self.removed.notify_waiters();
    }
}
