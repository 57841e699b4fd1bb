//! When to request each late event of a channel.
//!
//! # Invariants
//!
//! * **Every late event that a lane has to deliver is queued,** or is on its way to the lanes. [`RunContext::commit`] queues
//!   the events that a commit makes late.
//!
//! [`RunContext::commit`]: crate::context::RunContext::commit

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::machine::Machine;
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
    /// Notified when events were added.
    added: Notify,
    /// Notified when an event was removed.
    removed: Notify,
}

#[derive(Debug)]
struct Waiting {
    retry: Retry,
    due: Instant,
}

/// Adds late events to the queue when it is dropped.
pub(crate) struct AddAfter<'a> {
    queue: &'a LateQueue,
    asked_for: Vec<EventKey>,
    stored: Vec<EventKey>,
}

impl Drop for AddAfter<'_> {
    fn drop(&mut self) {
        self.queue.insert(self.asked_for.drain(..));
        self.queue.insert_now(self.stored.drain(..));
    }
}

impl LateQueue {
    pub(crate) fn new(machine: Arc<dyn Machine>) -> Self {
        Self { machine, waiting: Mutex::default(), added: Notify::new(), removed: Notify::new() }
    }

    /// Adds late events. If an event is already present, because it is read again for another lane, it keeps its times.
    pub(crate) fn insert(&self, events: impl IntoIterator<Item = EventKey>) {
        self.add(events, |retry| retry.next_wait(None));
    }

    /// Adds late events whose bytes are stored. They are due immediately, because no request to the service is needed.
    pub(crate) fn insert_now(&self, events: impl IntoIterator<Item = EventKey>) {
        self.add(events, |_| Duration::ZERO);
    }

    /// Adds the events that `changes` make late when the returned guard is dropped. Some may turn out not to be late, for
    /// example if the changes were not made: those are removed when they are due.
    pub(crate) fn add_after(&self, changes: &[Change]) -> AddAfter<'_> {
        let (mut asked_for, mut stored) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Owe { event, .. } if event.appeared => stored.push(event.event_key()),
                Change::Owe { event, .. } => asked_for.push(event.event_key()),
                Change::Release { key, .. } => stored.push(*key),
                _ => {}
            }
        }
        AddAfter { queue: self, asked_for, stored }
    }

    fn add(&self, events: impl IntoIterator<Item = EventKey>, wait: impl Fn(&mut Retry) -> Duration) {
        let mut waiting = lock(&self.waiting);
        for key in events {
            if let Entry::Vacant(entry) = waiting.entry(key) {
                let mut retry = self.machine.retry(PROOF_RETRY);
                let due = Instant::now() + wait(&mut retry);
                entry.insert(Waiting { retry, due });
                self.added.notify_one();
            }
        }
    }

    /// Returns when the next event is due, and the event.
    pub(super) fn first_due(&self) -> Option<(Instant, EventKey)> {
        lock(&self.waiting).iter().map(|(key, waiting)| (waiting.due, *key)).min()
    }

    /// Returns the number and the size of the queued events. `bytes` returns the size of an event that is still late.
    pub(super) fn room(&self, bytes: impl Fn(&EventKey) -> Option<u64>) -> Room {
        let waiting = lock(&self.waiting);
        Room { events: waiting.len() as u64, bytes: waiting.keys().filter_map(bytes).sum() }
    }

    /// Waits until events are added.
    pub(super) fn added(&self) -> Notified<'_> {
        self.added.notified()
    }

    /// Waits until an event is removed.
    pub(super) fn removed(&self) -> Notified<'_> {
        self.removed.notified()
    }

    /// Requests an event again after a longer wait.
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
