//! Late proofs: events set aside are read again by id, with growing waits, until their proof comes or time is up.
//!
//! What an operator took out of the quarantine comes the same way: the bytes that are kept of it are judged before the
//! service is asked, which may not have it any more.
//!
//! # Invariants
//!
//! * **Durable first.** What waits here is in the state, or in a batch whose recording puts it there: a restart reads it
//!   back and forgets none.
//! * **In the lane's order.** A late event goes through the same queues as the batch that set it aside, and so behind it.
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

use crate::event::Offset;
use crate::retry::Retry;
use crate::state::{Commit, Evidence, LaneKey};

use super::batch::Outcome;
use super::judge::{Answer, Awaited, Hearing, Judge, PROOF_RETRY};
use super::machine::Machine;
use super::shared::Shared;
use super::status::Activity;
use super::teller::Teller;
use super::{ChannelError, MAX_LATE};

/// The events of a channel that wait for their proof.
#[derive(Debug)]
pub(super) struct LateBook {
    machine: Arc<dyn Machine>,
    waiting: Mutex<BTreeMap<Offset, Waiting>>,
    came: Notify,
    left: Notify,
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

impl LateBook {
    /// Begins with what an earlier run left.
    pub(super) fn new(machine: Arc<dyn Machine>, earlier: impl IntoIterator<Item = Awaited>) -> Self {
        let book = Self { machine, waiting: Mutex::default(), came: Notify::new(), left: Notify::new() };
        book.insert(earlier);
        book
    }

    /// Adds events, and waits until there is room for more; `false` where `stop` fired first.
    pub(super) async fn add(&self, awaited: Vec<Awaited>, teller: &Teller, stop: &CancellationToken) -> bool {
        if awaited.is_empty() {
            return true;
        }
        self.insert(awaited);
        loop {
            let left = self.left.notified();
            if self.lock().len() < MAX_LATE {
                return true;
            }
            teller.says(Activity::TooManyLate);
            tokio::select! { biased; () = stop.cancelled() => return false, () = left => {} }
        }
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
            // One that waits already, and is read again for another lane, has waited since it was first seen.
            waiting.entry(awaited.offset).or_insert_with(|| Waiting::new(awaited, &*self.machine));
        }
        if waiting.len() > before {
            self.came.notify_one();
        }
    }

    /// Adds events that have left the quarantine: what is to be known about them may well be known already.
    fn insert_due(&self, acquitted: impl IntoIterator<Item = Awaited>) {
        let mut waiting = self.lock();
        for awaited in acquitted {
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
        self.left.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Offset, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the proofs of a channel's late events until `stop` fires.
pub(super) async fn settle(shared: &Shared, stop: &CancellationToken) -> Result<(), ChannelError> {
    Late { shared, teller: Teller::late(&shared.handle) }.run(stop).await
}

struct Late<'a> {
    shared: &'a Shared,
    teller: Teller,
}

impl Late<'_> {
    async fn run(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        while let Some(awaited) = self.next_due(stop).await? {
            let way = self.shared.way();
            let answer = tokio::select! {
                biased;
                answer = self.ask(&way.judge, &awaited, stop) => answer?,
                // It is still due.
                () = way.over() => continue,
            };
            match answer {
                Answer::Stopped => return Ok(()),
                Answer::NotYet(json) if way.judge.timed_out(&awaited) => {
                    self.time_out(&way.judge, &awaited, json).await?;
                }
                Answer::NotYet(_) => self.shared.book.ask_later(awaited.offset),
                Answer::Settled(outcome) => self.settle(&awaited, outcome).await?,
            }
        }
        Ok(())
    }

    async fn ask(&self, judge: &Judge, awaited: &Awaited, stop: &CancellationToken) -> Result<Answer, ChannelError> {
        let Shared { state, channel, .. } = self.shared;
        if let Some(kept) = state.json(channel.id, awaited.offset)?
            && let Some(outcome) = judge.by_kept_bytes(awaited, kept).await?
        {
            return Ok(Answer::Settled(outcome));
        }
        judge.ask_for_proof(awaited, Hearing { teller: &self.teller, stop, trace: None }).await
    }

    /// The next event to ask for, when it is due; `None` when `stop` fires.
    async fn next_due(&self, stop: &CancellationToken) -> Result<Option<Awaited>, ChannelError> {
        loop {
            let came = self.shared.book.came.notified();
            let due = async {
                match self.shared.book.first_due() {
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
                () = came => {}
                () = self.shared.handle.acquitted.notified() => {
                    let late = self.shared.state.late(self.shared.channel.id)?;
                    self.shared.book.insert_due(late.into_iter().map(Awaited::from));
                }
            }
        }
    }

    /// Quarantines an event that has waited too long, as it was set aside or, failing that, as it was last read.
    async fn time_out(&self, judge: &Judge, awaited: &Awaited, last_read: Option<Bytes>) -> Result<(), ChannelError> {
        if self.is_quarantine_full() {
            self.shared.book.ask_later(awaited.offset);
            return Ok(());
        }
        let (state, channel) = (&self.shared.state, self.shared.channel.id);
        self.shared.book.remove(awaited.offset);
        if state.late_at(channel, awaited.offset)?.is_none() {
            // Nobody has passed it yet: the batch that sets it aside is still in a queue. Who passes it has it asked for
            // anew.
            return Ok(());
        }
        let Some(json) = state.json(channel, awaited.offset)?.or(last_read) else {
            // Known from the mirror alone, and not read since.
            self.shared.book.insert([*awaited]);
            return Ok(());
        };
        self.quarantine(judge.proof_timeout(awaited, json, None)).await
    }

    async fn settle(&self, awaited: &Awaited, outcome: Outcome) -> Result<(), ChannelError> {
        let Shared { book, hub, .. } = self.shared;
        // First, so that a lane that passes it meanwhile, without its proof, has it asked for anew.
        book.remove(awaited.offset);
        match outcome {
            Outcome::Deliver(record) => {
                if !hub.offer_late(&Arc::new(record)) {
                    book.insert([*awaited]);
                }
                Ok(())
            }
            Outcome::Condemned(_) | Outcome::Unplaced(_) if self.is_quarantine_full() => {
                // It goes on waiting in the state, where its bytes are safe.
                book.insert([*awaited]);
                Ok(())
            }
            Outcome::Condemned(evidence) | Outcome::Unplaced(evidence) => self.quarantine(evidence).await,
            Outcome::Dropped(_) | Outcome::Pending(_) => self.forget(awaited.offset).await,
        }
    }

    fn is_quarantine_full(&self) -> bool {
        self.shared.state.held().borrow().is_full()
    }

    async fn quarantine(&self, evidence: Evidence) -> Result<(), ChannelError> {
        let quarantined = vec![(self.shared.channel.id, evidence)];
        Ok(self.shared.state.commit(Commit { quarantined, ..Commit::default() }).await?)
    }

    /// Nobody is owed it any more: what was due a proof has become a notice that the configuration leaves out.
    async fn forget(&self, offset: Offset) -> Result<(), ChannelError> {
        let Some(late) = self.shared.state.late_at(self.shared.channel.id, offset)? else {
            return Ok(());
        };
        let lane = |sink: String| LaneKey { channel: self.shared.channel.id, sink: sink.into() };
        let settled = late.owed.into_iter().map(|sink| (lane(sink), offset)).collect();
        Ok(self.shared.state.commit(Commit { settled, ..Commit::default() }).await?)
    }
}
