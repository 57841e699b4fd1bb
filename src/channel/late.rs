//! Late proofs: events set aside are read again by id, with growing waits, until their proof comes or their time is up.
//!
//! Events that an operator releases from the quarantine are settled here too. The bytes that are kept of them are verified
//! first, because the service may no longer have them.
//!
//! # Invariants
//!
//! * **Durable.** An event that waits here is in the state, or in a batch whose record puts it there. A restart reads it
//!   back.
//! * **In the lane's order.** A late event goes through the lane's queue, and so comes after the batch that set it aside.
//!
//! # Cancellation
//!
//! At any point: what was not settled is still in the state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channel::ChannelError;
use crate::channel::context::RunContext;
use crate::channel::deliver::batch::Outcome;
use crate::channel::machine::Machine;
use crate::channel::reporter::{Part, StatusReporter};
use crate::channel::status::Activity;
use crate::channel::verify::{Answer, Awaited, PROOF_RETRY, StageContext, VerifyStage};
use crate::event::Offset;
use crate::ledger::{Change, Commit, Key, LATE, QUARANTINE, QuarantinedEvent};
use crate::retry::Retry;

/// The events of a channel that wait for their proof.
#[derive(Debug)]
pub(super) struct LateQueue {
    machine: Arc<dyn Machine>,
    waiting: Mutex<BTreeMap<Offset, Waiting>>,
    /// Fires when events were added.
    added: Notify,
    /// Fires when an event was removed.
    removed: Notify,
}

#[derive(Debug)]
struct Waiting {
    awaited: Awaited,
    retry: Retry,
    due: Instant,
}

impl Waiting {
    fn new(awaited: Awaited, machine: &dyn Machine) -> Self {
        let mut retry = machine.retry(PROOF_RETRY);
        let due = Instant::now() + retry.next_wait(None);
        Self { awaited, retry, due }
    }
}

impl LateQueue {
    /// A queue that begins with the late events of an earlier run.
    pub(super) fn new(machine: Arc<dyn Machine>, earlier: impl IntoIterator<Item = Awaited>) -> Self {
        let queue = Self { machine, waiting: Mutex::default(), added: Notify::new(), removed: Notify::new() };
        queue.insert(earlier);
        queue
    }

    /// Adds events, and waits until there is room for more; `false` where `stop` fired first.
    pub(super) async fn add(&self, awaited: Vec<Awaited>, reporter: &StatusReporter, stop: &CancellationToken) -> bool {
        if awaited.is_empty() {
            return true;
        }
        self.insert(awaited);
        loop {
            let removed = self.removed.notified();
            if self.has_room() {
                return true;
            }
            reporter.says(Activity::TooManyLate);
            tokio::select! { biased; () = stop.cancelled() => return false, () = removed => {} }
        }
    }

    fn has_room(&self) -> bool {
        let waiting = self.lock();
        let bytes: u64 = waiting.values().map(|waiting| waiting.awaited.bytes).sum();
        (waiting.len() as u64) < LATE.events && bytes < LATE.bytes
    }

    /// The event that is due first, and when.
    fn first_due(&self) -> Option<(Instant, Awaited)> {
        let waiting = self.lock();
        waiting.values().min_by_key(|waiting| waiting.due).map(|waiting| (waiting.due, waiting.awaited))
    }

    pub(super) fn insert(&self, awaited: impl IntoIterator<Item = Awaited>) {
        let mut waiting = self.lock();
        let before = waiting.len();
        for awaited in awaited {
            // An event that waits already, and is read again for another lane, keeps its times.
            waiting.entry(awaited.offset).or_insert_with(|| Waiting::new(awaited, &*self.machine));
        }
        if waiting.len() > before {
            self.added.notify_one();
        }
    }

    /// Adds events that an operator has released: they are due at once.
    fn insert_due(&self, released: impl IntoIterator<Item = Awaited>) {
        let mut waiting = self.lock();
        for awaited in released {
            let due = || Waiting { due: Instant::now(), ..Waiting::new(awaited, &*self.machine) };
            waiting.entry(awaited.offset).or_insert_with(due);
        }
    }

    fn ask_later(&self, offset: Offset) {
        if let Some(waiting) = self.lock().get_mut(&offset) {
            waiting.due = Instant::now() + waiting.retry.next_wait(None);
        }
    }

    fn remove(&self, offset: Offset) {
        self.lock().remove(&offset);
        self.removed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Offset, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the proofs of a channel's late events until `stop` fires.
pub(super) async fn settle(shared: &RunContext, stop: &CancellationToken) -> Result<(), ChannelError> {
    Late { shared, reporter: StatusReporter::new(&shared.handle, Part::Late) }.run(stop).await
}

struct Late<'a> {
    shared: &'a RunContext,
    reporter: StatusReporter,
}

impl Late<'_> {
    async fn run(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        while let Some(awaited) = self.next_due(stop).await? {
            let read_plan = self.shared.read_plan();
            let answer = tokio::select! {
                biased;
                answer = self.ask(&read_plan.stage, &awaited, stop) => answer?,
                // The event is still due.
                () = read_plan.over() => continue,
            };
            match answer {
                Answer::Stopped => return Ok(()),
                Answer::NotYet(json) if read_plan.stage.timed_out(&awaited) => {
                    self.time_out(&read_plan.stage, &awaited, json).await?;
                }
                Answer::NotYet(_) => self.shared.late.ask_later(awaited.offset),
                Answer::Settled(outcome) => self.settle(&awaited, outcome).await?,
            }
        }
        Ok(())
    }

    async fn ask(
        &self,
        stage: &VerifyStage,
        awaited: &Awaited,
        stop: &CancellationToken,
    ) -> Result<Answer, ChannelError> {
        if let Some(kept) = self.body(awaited.offset).await?
            && let Some(outcome) = stage.by_kept_bytes(awaited, kept).await?
        {
            return Ok(Answer::Settled(outcome));
        }
        stage.ask_for_proof(awaited, StageContext { reporter: &self.reporter, stop, trace: None }).await
    }

    /// The bytes that are kept of a late event.
    async fn body(&self, offset: Offset) -> Result<Option<Bytes>, ChannelError> {
        Ok(self.shared.claim().body(Key::Body(offset)).await?)
    }

    /// The next event to ask for, when it is due; `None` when `stop` fires.
    async fn next_due(&self, stop: &CancellationToken) -> Result<Option<Awaited>, ChannelError> {
        loop {
            let added = self.shared.late.added.notified();
            let due = async {
                match self.shared.late.first_due() {
                    Some((due, awaited)) => {
                        tokio::time::sleep_until(due).await;
                        awaited
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                awaited = due => return Ok(Some(awaited)),
                () = added => {}
                () = self.shared.owned.released.notified() => {
                    let late = self.shared.look(Awaited::all);
                    self.shared.late.insert_due(late);
                }
            }
        }
    }

    /// Quarantines an event whose time is up, with the bytes as it was set aside or, without those, as it was last read.
    async fn time_out(
        &self,
        stage: &VerifyStage,
        awaited: &Awaited,
        last_read: Option<Bytes>,
    ) -> Result<(), ChannelError> {
        if self.is_quarantine_full() {
            self.shared.late.ask_later(awaited.offset);
            return Ok(());
        }
        self.shared.late.remove(awaited.offset);
        if self.shared.look(|ledger| !ledger.late().contains_key(&awaited.offset)) {
            // No lane has recorded it yet: its batch is still in a queue. The lane that records the batch inserts it again.
            return Ok(());
        }
        let Some(json) = self.body(awaited.offset).await?.or(last_read) else {
            // A damaged state has lost its body, and it has not been read since.
            self.shared.late.insert([*awaited]);
            return Ok(());
        };
        self.quarantine(stage.proof_timeout(awaited, json, None)).await
    }

    async fn settle(&self, awaited: &Awaited, outcome: Outcome) -> Result<(), ChannelError> {
        let RunContext { late, hub, .. } = self.shared;
        // Removed first, so that a lane that passes it meanwhile, without its proof, can insert it again.
        late.remove(awaited.offset);
        match outcome {
            Outcome::Deliver(record) => {
                if !hub.offer_late(&Arc::new(record)) {
                    late.insert([*awaited]);
                }
                Ok(())
            }
            Outcome::Rejected(_) | Outcome::Unconfirmed(_) if self.is_quarantine_full() => {
                // It waits on in the state, where its bytes are safe.
                late.insert([*awaited]);
                Ok(())
            }
            Outcome::Rejected(event) | Outcome::Unconfirmed(event) => self.quarantine(event).await,
            Outcome::Dropped(_) | Outcome::Pending(_) => self.forget(awaited.offset).await,
        }
    }

    fn is_quarantine_full(&self) -> bool {
        self.shared.look(|ledger| ledger.quarantine_room().is_full(QUARANTINE))
    }

    async fn quarantine(&self, event: QuarantinedEvent) -> Result<(), ChannelError> {
        Ok(self.shared.claim().commit(Commit(vec![Change::Quarantine(event)])).await?)
    }

    /// No lane is owed the event any more: it has become a notice, and the configuration leaves out notices.
    async fn forget(&self, offset: Offset) -> Result<(), ChannelError> {
        let settle = |sink: &String| Change::Settle { sink: sink.as_str().into(), offset };
        let settled = self.shared.look(|ledger| {
            let owed = ledger.late().get(&offset).map(|late| &late.owed);
            owed.into_iter().flatten().map(settle).collect()
        });
        Ok(self.shared.claim().commit(Commit(settled)).await?)
    }
}
