//! Requests late proofs: reads pending events again by id, with growing waits, until their proof arrives or they time out.
//!
//! Events that an operator releases from the quarantine are settled here too. Their stored bytes are verified first, because
//! the service may no longer have the events.
//!
//! # Invariants
//!
//! * **Durable.** Every event of this queue is in the ledger. The queue itself only stores when to request each event.
//! * **In lane order.** A late event goes through the lane's queue. It is therefore delivered after the batch that set it
//!   aside.
//!
//! # Cancellation
//!
//! Safe at any point: events that were not settled are still in the ledger.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::ChannelError;
use crate::context::{ReadPlan, RunContext};
use crate::deliver::batch::{Cause, LateRecord, Outcome};
use crate::machine::Machine;
use crate::reporter::{Part, StatusReporter};
use crate::status::Activity;
use crate::verify::{PROOF_RETRY, StageContext};
use ledger::{Change, Key, LATE, QUARANTINE, Room};
use net::retry::Retry;
use net::tasks::lock;
use proof::event::{EventKey, RawEvent};

pub(super) mod deliveries;

/// The wait between two offers of an event with stored bytes, while the queue of a lane is full.
const LANE_RETRY: Duration = Duration::from_millis(50);

/// How often the waiting times of events are recorded. A crash loses at most this much of them.
const RECORD_ASKED: Duration = Duration::from_secs(60);

/// When to request each late event of a channel. Events on their way to the lanes are not in it.
#[derive(Debug)]
pub(super) struct LateQueue {
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
pub(super) struct AddAfter<'a> {
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
    pub(super) fn new(machine: Arc<dyn Machine>) -> Self {
        Self { machine, waiting: Mutex::default(), added: Notify::new(), removed: Notify::new() }
    }

    /// Adds late events. If an event is already present, because it is read again for another lane, it keeps its times.
    pub(super) fn insert(&self, events: impl IntoIterator<Item = EventKey>) {
        self.add(events, |retry| retry.next_wait(None));
    }

    /// Adds late events whose bytes are stored. They are due immediately, because no request to the service is needed.
    pub(super) fn insert_now(&self, events: impl IntoIterator<Item = EventKey>) {
        self.add(events, |_| Duration::ZERO);
    }

    /// Adds the events that `changes` make late when the returned guard is dropped. Some may turn out not to be late, for
    /// example if the changes were not made: those are removed when they are due.
    pub(super) fn add_after(&self, changes: &[Change]) -> AddAfter<'_> {
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

    fn ask_later(&self, key: EventKey) {
        if let Some(waiting) = lock(&self.waiting).get_mut(&key) {
            waiting.due = Instant::now() + waiting.retry.next_wait(None);
        }
    }

    /// Tries an event again when the lanes may have room. The events above it are not tried earlier, which preserves order.
    fn wait_for_room(&self, key: EventKey) {
        let mut waiting = lock(&self.waiting);
        let due = Instant::now() + LANE_RETRY;
        waiting.entry(key).or_insert_with(|| Waiting { retry: self.machine.retry(PROOF_RETRY), due });
        waiting.range_mut(key..).for_each(|(_, waiting)| waiting.due = waiting.due.max(due));
        self.added.notify_one();
    }

    fn remove(&self, key: EventKey) {
        lock(&self.waiting).remove(&key);
        self.removed.notify_waiters();
    }
}

/// Returns whether the limit of pending events is reached. Events on their way to the lanes do not count: a lane that is
/// behind settles them when it has caught up, and reads until then.
pub(super) fn is_full(shared: &RunContext) -> bool {
    shared.look(|ledger| {
        let waiting = lock(&shared.late.waiting);
        let sizes = waiting.keys().filter_map(|key| ledger.late().get(key)).map(|late| late.bytes);
        ledger.late_room().is_full(LATE) && Room { events: waiting.len() as u64, bytes: sizes.sum() }.is_full(LATE)
    })
}

/// Waits while the limit of pending events is reached.
pub(super) async fn room(shared: &RunContext, reporter: &StatusReporter) {
    loop {
        let removed = shared.late.removed.notified();
        if !is_full(shared) {
            return;
        }
        reporter.says(Activity::TooManyLate);
        removed.await;
    }
}

/// Requests the proofs of a channel's late events, beginning with the events of an earlier run.
pub(super) async fn settle(shared: &RunContext) -> Result<(), ChannelError> {
    let reporter = StatusReporter::new(&shared.channel.handle, Part::Late);
    shared.late.insert(all(shared));
    let mut record_at = Instant::now() + RECORD_ASKED;
    loop {
        let key = tokio::select! {
            biased;
            () = sleep_until(record_at) => {
                record_at = Instant::now() + RECORD_ASKED;
                record_asked(shared).await?;
                continue;
            }
            key = next_due(shared) => key,
        };
        let reporter = &reporter;
        let asking = async |read_plan: Arc<ReadPlan>| (ask(shared, &read_plan, key, reporter).await, read_plan);
        let (answer, read_plan) = shared.by_plan(asking).await;
        take(shared, &read_plan, key, answer?).await?;
    }
}

/// Records how long events have waited, so that their waits continue after a restart.
async fn record_asked(shared: &RunContext) -> Result<(), ChannelError> {
    if shared.look(|ledger| ledger.late().is_empty()) {
        return Ok(());
    }
    shared.commit(vec![Change::Asked(shared.asked())]).await
}

/// Waits until the next event is due, and returns it.
async fn next_due(shared: &RunContext) -> EventKey {
    let RunContext { late, owned, .. } = shared;
    loop {
        let added = late.added.notified();
        let first = lock(&late.waiting).iter().map(|(key, waiting)| (waiting.due, *key)).min();
        let due = async {
            let Some((due, key)) = first else { return std::future::pending().await };
            sleep_until(due).await;
            key
        };
        tokio::select! {
            biased;
            key = due => return key,
            () = added => {}
            () = owned.released.notified() => late.insert_now(all(shared)),
        }
    }
}

fn all(shared: &RunContext) -> Vec<EventKey> {
    shared.look(|ledger| ledger.late().keys().copied().collect())
}

/// The result of a request for a proof.
struct Asked<'a> {
    since: SystemTime,
    context: StageContext<'a>,
    /// `None` if the service did not answer.
    outcome: Option<Outcome>,
    /// Why the event is delivered late.
    cause: Cause,
    /// Whether the event had already timed out: without a proof it is rejected.
    is_last: bool,
}

async fn ask<'a>(
    shared: &RunContext,
    read_plan: &ReadPlan,
    key: EventKey,
    reporter: &'a StatusReporter,
) -> Result<Asked<'a>, ChannelError> {
    let since = SystemTime::now();
    let known = shared.look(|ledger| {
        let timed_out = |asked_at| read_plan.is_timed_out(shared.asked_since(asked_at));
        ledger.late().get(&key).map(|late| (late.appeared, late.received, timed_out(late.asked_at)))
    });
    let received = known.and_then(|(_, received, _)| received).unwrap_or_else(|| shared.channel.parts.machine.time());
    let is_last = known.is_some_and(|(.., is_last)| is_last);
    let context = StageContext { reporter, received, trace: None };
    let asked = |outcome| Asked { since, context, outcome, cause: Cause::Proof, is_last };
    // No lane has yet to deliver it.
    let Some((appeared, ..)) = known else { return Ok(asked(None)) };
    let EventKey { offset, id } = key;
    // Stored bytes exist if the event appeared late, or if an operator released it or ordered a replay.
    if let Some(json) = shared.owned.claim.body(Key::Body(key)).await?
        && let Some(outcome) = read_plan.by_kept_bytes(RawEvent { offset, id, json }, context).await?
    {
        let cause = if appeared { Cause::Appeared } else { Cause::Operator };
        return Ok(Asked { cause, ..asked(Some(outcome)) });
    }
    read_plan.ask_for_proof(key, is_last, context).await.map(asked)
}

/// Processes the answer about an event.
async fn take(
    shared: &RunContext,
    read_plan: &ReadPlan,
    key: EventKey,
    Asked { since, context, outcome, cause, is_last }: Asked<'_>,
) -> Result<(), ChannelError> {
    let RunContext { late, hub, .. } = shared;
    let (settled, last_read) = match outcome {
        Some(Outcome::Pending(pending)) => (None, Some(pending.json)),
        settled => (settled, None),
    };
    let is_rejected = settled.as_ref().is_none_or(Outcome::is_rejected);
    let asks_later = shared.look(|ledger| {
        let waits_on = settled.is_none() && !is_last;
        // While the quarantine is full, the event stays late in the ledger.
        let is_kept = is_rejected && ledger.quarantine_room().is_full(QUARANTINE);
        ledger.late().contains_key(&key) && (waits_on || is_kept)
    });
    if asks_later {
        late.ask_later(key);
        return Ok(());
    }
    // Remove the event first, so that a lane that passes it meanwhile without its proof can insert it again.
    late.remove(key);
    let Some(facts) = shared.look(|ledger| ledger.late().get(&key).cloned()) else { return Ok(()) };
    let changes = match settled {
        Some(Outcome::Deliver(record)) => {
            let trace = shared.channel.parts.traces.begin_late(&shared.channel.identity, since);
            trace.note(|| vec![("offset", key.offset.get())]);
            if !hub.offer_late(&LateRecord { record: Arc::new(record), cause, trace }) {
                if cause == Cause::Proof { late.insert([key]) } else { late.wait_for_room(key) }
            }
            return Ok(());
        }
        Some(Outcome::Rejected(event) | Outcome::Unconfirmed(event)) => vec![Change::Quarantine(event)],
        // The event is now a notice, and the configuration drops notices. No lane has yet to deliver it.
        Some(Outcome::Dropped(_) | Outcome::Pending(_)) => {
            facts.owed.iter().map(|sink| Change::Settle { sink: sink.clone(), key }).collect()
        }
        // The event timed out. Quarantine the bytes that were set aside or, if they are missing, the bytes read last.
        None => {
            let Some(json) = shared.owned.claim.body(Key::Body(key)).await?.or(last_read) else {
                // A damaged state has lost the bytes, and the event has not been read since.
                late.insert([key]);
                return Ok(());
            };
            let raw = RawEvent { offset: key.offset, id: key.id, json };
            vec![Change::Quarantine(read_plan.proof_timeout(raw, context))]
        }
    };
    shared.commit(changes).await
}
