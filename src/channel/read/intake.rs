//! Reads and verifies one batch after another, either for every lane that keeps up or for one lane that has fallen behind.
//!
//! # Invariants
//!
//! * **Contiguous.** Each batch begins where the one before it ended.
//! * **Nothing overtakes in strict ordering.** An event whose proof is missing ends a batch, and the next batch begins with
//!   the outcome of this event. The ledger records when the wait for the proof began, so a restart does not begin the wait
//!   again.
//! * **An unconfirmed offset does not move the position.** An event that the service does not confirm is quarantined. Reading
//!   continues above this event only if a confirmed event follows, in the same range or in a later range. In the second case,
//!   the range of the unconfirmed event is read again first, because other events may have appeared in it.
//! * **No event goes far ahead alone.** If a confirmed event is more than [`FAR`] above every other event, it is passed on
//!   only after another event follows it. Otherwise the position would skip all events that may still appear below it.
//! * **No rejected event is dropped for lack of room.** While the quarantine is full, no range with a rejected event is
//!   passed on. The range is read again later. Rejected events of the ranges that were already passed on are still
//!   quarantined, so the quarantine may exceed its limit by a few pages.
//! * **A long wait uses little memory:** only one range, and the batches in the queues of the lanes, are kept.
//! * **Safe to cancel** before a batch is returned. After that, the intake must be dropped, and another intake reads the
//!   batch again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::field::display;
use tracing::{debug, error, info, warn};

use crate::channel::settings::{Ordering, Settings};
use crate::deliver::batch::{Batch, Disposition};
use crate::error::{ChannelError, ReadError};
use crate::late::queue::PROOF_RETRY;
use crate::read::ahead::{Ahead, ReadRange};
use crate::read::compare;
use crate::read::gaps::FAR;
use crate::read::source::Source;
use crate::run::context::{ReadPlan, RunContext};
use crate::status::reporter::{ErrorReporter, LoopPart, StatusReporter};
use crate::status::{Activity, NONE_VERIFIED};
use crate::verify::Stage;
use crate::verify::checked::Checked;
use crate::verify::reason::RejectionReason;
use api::ApiError;
use ledger::{Blocker, Change, KnownEvent, Ledger, Pending, QUARANTINE, QuarantinedEvent};
use net::tasks::{joined, lock};
use proof::event::{EventKey, Offset};
use telemetry::trace::Trace;

/// If the lanes do not accept a batch for this time, the pages that were read ahead are dropped, because other channels may
/// need the memory. They are read again later.
const KEPT_AHEAD: Duration = Duration::from_secs(5);

/// The interval at which the service is asked for its newest event, because the pages that are read may not contain this
/// event. The answer also shows whether the newest event is below the events that were already read.
pub(crate) const LOOK_AHEAD: Duration = Duration::from_secs(10);

/// How long reading waits for the answer with the newest event. After that, reading continues.
pub(crate) const LOOK_AHEAD_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Intake {
    shared: Arc<RunContext>,
    read_plan: Arc<ReadPlan>,
    ahead: Ahead,
    /// The last offset of the previous batch.
    position: Option<Offset>,
    /// The highest offset, at or below `position`, at which the service confirmed an event. The next gap begins there.
    confirmed: Option<Offset>,
    /// The offset above which the next read begins. This is `position` or, if unconfirmed events follow `position`, the last
    /// of them.
    above: Option<Offset>,
    /// The outcomes that were not passed on yet.
    waiting: Vec<Disposition>,
    /// The trace of the range that `waiting` and `held` come from. `None` if both are empty.
    trace: Option<Trace>,
    /// In strict ordering, the event whose proof must arrive before `waiting` is passed on.
    held: Option<Pending>,
    /// The offset above which a confirmed event was seen, after unconfirmed events up to this offset.
    shown_above: Option<Offset>,
    /// Whether the last page reached the end of the channel. If so, the next poll comes after a wait.
    caught_up: bool,
    /// Whether the service's history was compared since the last start, error, or different newest event. Nothing is passed on
    /// before the comparison.
    pub(crate) is_compared: bool,
    /// Whether the last range came from a poll for the latest events. If so, no other poll for the newest event is needed.
    pub(crate) has_seen_newest: bool,
    trouble: ErrorReporter,
    pub(crate) reporter: StatusReporter,
}

impl Intake {
    /// Creates an intake that begins above `position`, and reads under one plan.
    pub(crate) fn new(
        shared: Arc<RunContext>,
        read_plan: Arc<ReadPlan>,
        position: Option<Offset>,
        part: LoopPart,
    ) -> Self {
        let reporter = StatusReporter { handle: shared.channel.handle.clone(), part };
        // Events above `position` were read but not passed on, so they are read again.
        let is_behind = |confirmed: &Offset| Some(*confirmed) <= position;
        let confirmed = shared.gaps.confirmed().filter(|confirmed| reporter.reads_first() && is_behind(confirmed));
        let confirmed = confirmed.or(position);
        Self {
            ahead: Ahead::new(read_plan.clone()),
            position,
            confirmed,
            above: position,
            waiting: Vec::new(),
            trace: None,
            held: None,
            shown_above: None,
            caught_up: false,
            is_compared: false,
            has_seen_newest: false,
            trouble: ErrorReporter::new(&read_plan, &reporter, None),
            reporter,
            shared,
            read_plan,
        }
    }

    /// Returns the next batch, or `None` if the service has no more events for now. Retries after errors of the service.
    pub(crate) async fn next(&mut self) -> Result<Option<Batch>, ChannelError> {
        self.reporter.report(Activity::Reading);
        loop {
            if let Some(pending) = self.held.take() {
                self.ahead.forget();
                let settled = Box::pin(self.hold(pending)).await?;
                self.waiting.insert(0, settled);
            }
            if self.waiting.is_empty() {
                if std::mem::take(&mut self.caught_up) || !self.read().await? {
                    // If no confirmed event follows the unconfirmed events, the next poll requests the unconfirmed events
                    // again.
                    self.above = self.position;
                    if self.reporter.reads_first() {
                        self.reporter.handle.board().newest.nothing_above();
                    }
                    self.reporter.report(Activity::Idle);
                    return Ok(None);
                }
                continue;
            }
            if self.waiting.iter().any(Disposition::is_rejected)
                && self.shared.look(Ledger::quarantine_room).is_full(QUARANTINE)
            {
                self.forget();
                self.room().await;
                continue;
            }
            if let Some(batch) = Box::pin(self.sort()).await? {
                self.reporter.report(Activity::Delivering);
                return Ok(Some(batch));
            }
        }
    }

    /// In strict ordering, waits for the proof of an event. No later event is passed on until the wait ends.
    async fn hold(&self, pending: Pending) -> Result<Disposition, ChannelError> {
        let key = pending.event_key();
        let Pending { offset, first_seen, received, json, .. } = pending;
        let (quarantined, blocker) =
            self.shared.look(|ledger| (ledger.quarantined().get(&key).cloned(), ledger.blocker()));
        if let Some(facts) = quarantined.filter(|facts| facts.reason == RejectionReason::ProofTimeout.name()) {
            // Another intake has already waited for the proof, until the event timed out.
            return Ok(Disposition::Rejected(QuarantinedEvent { facts, json }));
        }
        let known = blocker.filter(|known| known.offset == offset);
        if known.is_none() {
            let blocker = Blocker { offset, first_seen, asked_at: None };
            self.shared.commit(vec![Change::Asked(self.shared.asked()), Change::Block(blocker)]).await?;
        }
        let asked_at = known.map_or_else(|| Some(self.shared.asked()), |known| known.asked_at);
        let stage = self.stage(received, self.trace.as_ref());
        let trace_id = stage.trace.map(display);
        warn!(channel = %self.shared.channel.identity.name, trace_id, offset = offset.get(), "proof is pending: later events wait for it");
        let mut retry = self.shared.channel.parts.machine.retry(PROOF_RETRY);
        loop {
            self.reporter.report(Activity::AwaitingProof { offset });
            // The event may have timed out while it waited behind another event. The proof may exist by now, so it is
            // requested once more before the event is rejected.
            let is_timed_out = || self.shared.is_timed_out(&self.read_plan, asked_at);
            if !is_timed_out() {
                sleep(retry.next_wait(None)).await;
                // Record the running time, so that a restart does not begin the wait again.
                self.shared.commit(vec![Change::Asked(self.shared.asked())]).await?;
            }
            let is_last = is_timed_out();
            match stage.ask_for_proof(key, is_last).await {
                None | Some(Disposition::Pending(_)) if is_last => {
                    return Ok(Disposition::Rejected(stage.proof_timeout(key, json)));
                }
                None | Some(Disposition::Pending(_)) => {}
                Some(outcome) => return Ok(outcome),
            }
        }
    }

    /// Runs `taking`, in which the lanes accept a batch. If `taking` takes longer than [`KEPT_AHEAD`], drops the pages that
    /// were read ahead.
    pub(crate) async fn during<T>(&mut self, taking: impl Future<Output = T>) -> T {
        let mut taking = Box::pin(taking);
        if let Ok(taken) = timeout(KEPT_AHEAD, &mut taking).await {
            return taken;
        }
        self.forget();
        taking.await
    }

    /// Frees the memory of the events that were not passed on. These events are read again later.
    pub(crate) fn forget(&mut self) {
        self.ahead.forget();
        (self.waiting, self.trace, self.held) = (Vec::new(), None, None);
        (self.above, self.caught_up) = (self.position, false);
    }

    async fn room(&self) {
        let taken = self.shared.look(Ledger::quarantine_room);
        self.reporter.report(Activity::QuarantineFull);
        let (channel, events, bytes) = (&self.shared.channel.identity.name, taken.events, taken.bytes);
        error!(%channel, events, bytes, "the channel's quarantine is full: reading stops, because rejected events would be lost; examine them with `channeld quarantine list`, then retry or drop them");
        self.shared.owned.leased.until(|ledger| !ledger.quarantine_room().is_full(QUARANTINE)).await;
        info!(%channel, "quarantine has room again: reading continues");
    }

    /// Sorts the waiting outcomes into a batch, up to the first outcome that may not be passed on yet. Returns `None` if no
    /// outcome may be passed on.
    async fn sort(&mut self) -> Result<Option<Batch>, ChannelError> {
        let trace = self.trace.take().expect("the trace is kept while outcomes wait");
        let Settings { settle, verification, .. } = &*self.read_plan.settings;
        let (mut batch, mut unconfirmed, mut read) = (None, Vec::new(), Vec::new());
        let (mut previous, mut waiting) = (self.confirmed, std::mem::take(&mut self.waiting).into_iter());
        for outcome in waiting.by_ref() {
            match outcome {
                Disposition::Pending(pending) if verification.ordering == Ordering::Strict => {
                    self.held = Some(pending);
                    break;
                }
                Disposition::Unconfirmed(event) => {
                    self.shared.gaps.note_unconfirmed(event.facts.event_key());
                    unconfirmed.push(event);
                }
                placed => {
                    let offset = placed.offset();
                    read.push((offset, if let Disposition::Deliver(record) = &placed { record.time } else { None }));
                    let batch = batch.get_or_insert_with(|| Batch::through(offset, trace.clone()));
                    batch.rejected.append(&mut unconfirmed);
                    batch.push(placed, previous);
                    previous = Some(offset);
                }
            }
        }
        self.waiting = waiting.collect();
        let top = unconfirmed.last().map(|event| event.facts.offset);
        if let Some(top) = top.filter(|top| batch.is_none() && Some(*top) <= self.shown_above) {
            let rejected = std::mem::take(&mut unconfirmed);
            // The cursors move above the gap before the next confirmed event is recorded. After a restart, only the history has the
            // gap.
            let known = vec![KnownEvent { key: EventKey::first_at(top), previous: self.confirmed, digest: None }];
            batch = Some(Batch { rejected, known, ..Batch::through(top, trace.clone()) });
        }
        // The trace ends when the last outcome of its range was sorted.
        self.trace = Some(trace).filter(|_| self.held.is_some() || !self.waiting.is_empty());
        if !unconfirmed.is_empty() {
            self.shared.commit(unconfirmed.into_iter().map(Change::Quarantine).collect()).await?;
        }
        if let Some(batch) = &batch {
            if self.reporter.reads_first() {
                self.shared.gaps.note(self.confirmed, read.into_iter(), *settle);
                lock(&self.shared.read).add(batch.known_through(batch.through).iter().copied());
            }
            self.confirmed = previous;
            (self.position, self.above) = (Some(batch.through), Some(batch.through));
        } else if self.held.is_none() {
            // The next read looks for a confirmed event above the unconfirmed events.
            self.above = top;
        }
        Ok(batch)
    }

    /// Reads the next range. Returns `false` if the service has no more events for now.
    async fn read(&mut self) -> Result<bool, ChannelError> {
        self.has_seen_newest = false;
        let read = match self.ahead.next(self.above).await {
            Ok(read) => read,
            Err(ReadError::Api(ApiError::ChannelGone(_))) => return Err(ChannelError::Gone),
            Err(error) => {
                self.is_compared = false;
                self.trouble.wait_out("reading events", error).await;
                return Ok(true);
            }
        };
        let ReadRange { range, last, .. } = &read;
        // Whether the page should overlap the known events but does not. A range from a walk never overlaps: the history was
        // compared when the walk began.
        let is_apart = range.overlap.is_empty() && !range.is_walked && (last.is_some() || range.more);
        let (stage, thorough) = (self.stage(None, None), !self.is_compared || is_apart);
        match compare::compare(&self.shared, &stage, &range.overlap, self.position, thorough).await {
            Ok(difference) => {
                compare::record(&self.shared, difference).await?;
                self.is_compared = true;
            }
            Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
            Err(error) => {
                self.ahead.forget();
                self.trouble.wait_out("comparing the service's history", error).await;
                return Ok(true);
            }
        }
        let more = range.more || read.early;
        self.has_seen_newest = range.is_latest;
        if read.checking.is_none() {
            self.trouble.over();
            return Ok(more);
        }
        // Boxed, because most answers have no event.
        Box::pin(self.accept(read, more)).await
    }

    /// Turns the events of a range into outcomes, once they are verified. `more` is whether to read again immediately.
    async fn accept(&mut self, read: ReadRange, more: bool) -> Result<bool, ChannelError> {
        let Some(checking) = read.checking else { return Ok(more) };
        let checked = joined(checking.await).await;
        if let Some(error) = self.none_verified(&checked) {
            drop(checked);
            self.ahead.forget();
            self.trouble.wait_out("reading events", error).await;
            return Ok(true);
        }
        let trace = self.shared.channel.parts.traces.begin("batch", &self.shared.channel.identity, read.took.start);
        trace.past("poll", read.took.clone());
        let verifying = trace.part("verify");
        let stage = self.stage(Some(read.received), Some(&trace));
        let mut outcomes = stage.page(checked).await;
        drop(verifying);
        if let Some(contradiction) = self.shared.look(Ledger::contradiction) {
            outcomes = compare::quarantined(&stage, contradiction, outcomes);
        }
        if let Some(far) = leave_out_far(&mut outcomes, self.position) {
            self.ahead.forget();
            if outcomes.is_empty() {
                self.trouble.wait_out("reading events", far).await;
                return Ok(true);
            }
        }
        self.trouble.over();
        let confirmed = outcomes.iter().any(|outcome| !matches!(outcome, Disposition::Unconfirmed(_)));
        if self.above != self.position && confirmed {
            // A confirmed event follows the unconfirmed events. The range of the unconfirmed events is read again before it
            // is passed on, because other events may have appeared in it.
            (self.shown_above, self.above) = (self.above, self.position);
            self.ahead.forget();
            return Ok(true);
        }
        self.caught_up = !more;
        self.log_verified(&trace, &outcomes);
        (self.waiting, self.trace) = (outcomes, Some(trace));
        Ok(true)
    }

    /// Returns an error if no event of the channel was ever delivered, none of these events is verified, and many of them are
    /// rejected. The configuration may be wrong, and would put the whole channel into the quarantine.
    fn none_verified(&self, checked: &[Checked]) -> Option<ReadError> {
        let is_verified = |checked: &Checked| matches!(checked, Checked::Verified(..));
        let reasons = checked.iter().filter_map(Checked::rejected_for);
        let (rejected, reason) = (reasons.clone().count(), reasons.last()?);
        let is_new = || !self.shared.look(Ledger::has_delivered);
        let none = rejected >= NONE_VERIFIED as usize && !checked.iter().any(is_verified) && is_new();
        none.then_some(ReadError::NoneVerified { rejected, events: checked.len(), reason })
    }

    fn stage(&self, received: Option<Timestamp>, trace: Option<&Trace>) -> Stage<'_> {
        let received = received.unwrap_or_else(|| self.shared.channel.parts.machine.time());
        let (read_plan, trace) = (self.read_plan.clone(), trace.map(Trace::id));
        Stage { read_plan, reporter: &self.reporter, received, trace, replayed: false }
    }

    fn log_verified(&self, trace: &Trace, outcomes: &[Disposition]) {
        let (Some(first), Some(last)) = (outcomes.first(), outcomes.last()) else { return };
        let (first, last) = (first.offset(), last.offset());
        let (channel, trace_id, events) = (&self.shared.channel.identity.name, trace.id(), outcomes.len());
        debug!(%channel, %trace_id, first = first.get(), last = last.get(), events, "batch verified");
        trace.note(|| {
            let count = |counts: fn(&Disposition) -> bool| {
                i64::try_from(outcomes.iter().filter(|outcome| counts(outcome)).count()).unwrap_or(i64::MAX)
            };
            vec![
                ("events", count(|_| true)),
                ("pending", count(|outcome| matches!(outcome, Disposition::Pending(_)))),
                ("rejected", count(Disposition::is_rejected)),
                ("first_offset", first.get()),
                ("last_offset", last.get()),
            ]
        });
    }
}

/// Removes the highest confirmed event, and all other outcomes from its offset on, if this event is far above the previous
/// confirmed event. Without a previous confirmed event, `position` is compared. Events at one offset do not confirm each
/// other, because a service can show any number of unsigned events there.
fn leave_out_far(outcomes: &mut Vec<Disposition>, position: Option<Offset>) -> Option<ReadError> {
    let is_confirmed = |outcome: &Disposition| !matches!(outcome, Disposition::Unconfirmed(_));
    let highest = outcomes.iter().rposition(is_confirmed)?;
    let at = outcomes[highest].offset();
    let before = outcomes[..highest].iter().rfind(|outcome| is_confirmed(outcome) && outcome.offset() < at);
    let above = before.map(Disposition::offset).or(position)?;
    (at.get() - above.get() > FAR).then(|| {
        outcomes.retain(|outcome| outcome.offset() < at);
        ReadError::FarAbove { above, at }
    })
}

/// Waits until `next`, requests the newest event, and sets `next` to the time of the next request. The source reports the
/// event's offset to the board. Returns whether the event differs from the remembered event at its offset.
pub(crate) async fn look_ahead(shared: &RunContext, source: &dyn Source, next: &mut Instant) -> bool {
    sleep_until(*next).await;
    *next = Instant::now() + LOOK_AHEAD;
    // Take the position before the request, because newer events may appear and be read before the answer arrives.
    let position = shared.hub.position();
    match source.poll(None, 1).await {
        Ok(page) => {
            // If the channel has no events, its newest event has not gone back: the `start` setting may be above the first
            // event.
            let is_below = |position: &Offset| page.events.first().is_some_and(|newest| newest.offset < *position);
            shared.channel.handle.board().went_back(position.filter(is_below));
            page.events.first().is_some_and(|newest| compare::differs(&lock(&shared.read), newest))
        }
        Err(error) => {
            *next += error.retry_after().unwrap_or_default();
            false
        }
    }
}
