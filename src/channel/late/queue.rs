//! When to request each late event of a channel. Every late event that a lane has to deliver is either in this queue or on
//! its way to the lanes: [`RunContext::commit`](crate::run::context::RunContext::commit) queues the events that a commit
//! makes late.

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

/// The wait before an event with stored bytes is offered again, if the queue of a lane was full.
const LANE_RETRY: Duration = Duration::from_millis(50);

/// The late events of a channel, each with the time of its next request. Events on their way to the lanes are not in the
/// queue.
#[derive(Debug)]
pub(crate) struct LateQueue {
    machine: Arc<dyn Machine>,
    waiting: Mutex<BTreeMap<EventKey, Waiting>>,
    pub(super) added: Notify,
    pub(super) removed: Notify,
}

/// The times of an event's requests.
#[derive(Debug)]
pub(super) struct Waiting {
    retry: Retry,
    due: Instant,
    /// Whether the proof has arrived, but a lane had no room for the event.
    needs_room: bool,
}

/// A guard that adds late events to the queue when the guard is dropped.
pub(crate) struct AddAfter<'a> {
    queue: &'a LateQueue,
    events: Vec<(EventKey, IsStored)>,
}

/// Whether the bytes of an event are stored. An event with stored bytes is due immediately, because it needs no request to
/// the service.
pub(crate) type IsStored = bool;

impl Drop for AddAfter<'_> {
    fn drop(&mut self) {
        self.queue.add(self.events.drain(..));
    }
}

impl LateQueue {
    pub(crate) fn new(machine: Arc<dyn Machine>) -> Self {
        Self { machine, waiting: Mutex::default(), added: Notify::new(), removed: Notify::new() }
    }

    /// Returns a guard. When the guard is dropped, the events that `changes` make late are added. If the changes were not
    /// made, some of these events are not late. Such an event is removed when it is due.
    pub(crate) fn add_after(&self, changes: &[Change]) -> AddAfter<'_> {
        let made_late = |change: &Change| match change {
            Change::Owe { event, .. } => vec![(event.event_key(), event.appeared)],
            Change::ReplayEvent { event, .. } => vec![(event.event_key(), true)],
            Change::Release { key, .. } => vec![(*key, true)],
            Change::ReleaseReplayed { events, .. } => events.iter().map(|event| (event.event_key(), true)).collect(),
            _ => Vec::new(),
        };
        AddAfter { queue: self, events: changes.iter().flat_map(made_late).collect() }
    }

    /// Adds late events. An event can already be in the queue, because another lane reads it again. Such an event keeps its
    /// times.
    pub(crate) fn add(&self, events: impl IntoIterator<Item = (EventKey, IsStored)>) {
        let mut waiting = lock(&self.waiting);
        for (key, is_stored) in events {
            if let Entry::Vacant(entry) = waiting.entry(key) {
                let mut retry = self.machine.retry(PROOF_RETRY);
                let wait = if is_stored { Duration::ZERO } else { retry.next_wait(None) };
                entry.insert(Waiting { retry, due: Instant::now() + wait, needs_room: false });
                self.added.notify_one();
            }
        }
    }

    pub(super) fn first_due(&self) -> Option<(Instant, EventKey)> {
        lock(&self.waiting).iter().map(|(key, waiting)| (waiting.due, *key)).min()
    }

    /// Returns the number and the total size of the queued events. `bytes` returns the size of one event, or `None` if it is
    /// no longer late.
    pub(super) fn room(&self, bytes: impl Fn(&EventKey) -> Option<u64>) -> Room {
        let waiting = lock(&self.waiting);
        Room { events: waiting.len() as u64, bytes: waiting.keys().filter_map(bytes).sum() }
    }

    pub(super) fn ask_later(&self, key: EventKey) {
        if let Some(waiting) = lock(&self.waiting).get_mut(&key) {
            waiting.due = Instant::now() + waiting.retry.next_wait(None);
            waiting.needs_room = false;
        }
    }

    /// Queues an event again that was removed. Its proof has arrived, but a lane had no room for it. The waits begin again, and
    /// grow with each attempt, because each attempt requests the event from the service.
    pub(super) fn ask_when_room(&self, key: EventKey, mut removed: Waiting) {
        if !removed.needs_room {
            removed.retry.reset();
        }
        let due = Instant::now() + removed.retry.next_wait(None);
        lock(&self.waiting).entry(key).or_insert(Waiting { due, needs_room: true, ..removed });
    }

    /// Returns the lowest event for which a lane had no room when its proof arrived.
    pub(super) fn first_without_room(&self) -> Option<EventKey> {
        lock(&self.waiting).iter().find(|(_, waiting)| waiting.needs_room).map(|(key, _)| *key)
    }

    /// Queues an event again after a short wait, because a lane had no room for it. The events above it are not due earlier,
    /// so that the order is kept.
    pub(super) fn wait_for_room(&self, key: EventKey) {
        let mut waiting = lock(&self.waiting);
        let due = Instant::now() + LANE_RETRY;
        let new = || Waiting { retry: self.machine.retry(PROOF_RETRY), due, needs_room: false };
        waiting.entry(key).or_insert_with(new);
        waiting.range_mut(key..).for_each(|(_, waiting)| waiting.due = waiting.due.max(due));
        self.added.notify_one();
    }

    pub(super) fn remove(&self, key: EventKey) -> Option<Waiting> {
        let removed = lock(&self.waiting).remove(&key);
        self.removed.notify_waiters();
        removed
    }
}
