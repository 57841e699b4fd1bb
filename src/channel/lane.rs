//! One sink of one channel: deliver, then record, with the waits of a sink that refuses.
//!
//! # Invariants
//!
//! * **Delivered before recorded.** The cursor moves after the sink has said `Ok`, and only as far as that.
//! * **Nothing twice without a crash.** What a sink took of a batch before it refused the rest is recorded, and only
//!   the rest is offered again.
//! * **Delivered, left out or kept.** The cursor passes an event that the sink has taken, that its filter leaves out, or
//!   that is a dead letter in the same transaction.
//!
//! # Cancellation
//!
//! `stop` is observed while waiting for work, or for more of it, while the sink is paused, and while waiting for a sink
//! that refuses.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::event::Offset;
use crate::metrics::LaneMetrics;
use crate::newer::newer;
use crate::record::{Message, Record};
use crate::retry::Retry;
use crate::sink::{Recorded, SinkError, Undelivered};
use crate::state::{Commit, Cursor, DeadLetter, LaneKey, LaneState};
use crate::telemetry::Chain;
use crate::trace::{Part, TraceId};

use super::batch::{Batch, Work};
use super::hub::Seat;
use super::intake::{Intake, Taken};
use super::judge::Awaited;
use super::plan::Outlet;
use super::shared::{Shared, Way};
use super::teller::Teller;
use super::{ChannelError, pause};

mod patience;
mod telling;

use patience::Patience;

/// Events held while a lane waits for more of them: a filter may leave few of many to offer.
const MAX_GATHERED: usize = 4_000;

pub(super) struct Lane {
    shared: Arc<Shared>,
    key: LaneKey,
    outlet: Outlet,
    seat: Seat,
    recorded: Recorded,
    retry: Retry,
    patience: Patience,
    /// What the sink held above the cursor when the lane began: it is offered again, and passed over there.
    held: BTreeSet<Offset>,
    /// What brought the events in hand.
    trace: Option<TraceId>,
    /// Their delivery.
    delivery: Part,
    /// What was taken from the queue and is not begun.
    ahead: Option<Work>,
    metrics: LaneMetrics,
}

/// Whether the lane goes on.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    On,
    Stop,
}

/// The next work: what was put back, and then what the queue holds. `None` once nothing more will come.
async fn next(ahead: &mut Option<Work>, queue: &mut mpsc::Receiver<Work>) -> Option<Work> {
    match ahead.take() {
        Some(work) => Some(work),
        None => queue.recv().await,
    }
}

impl Lane {
    pub(super) fn new(shared: Arc<Shared>, outlet: Outlet, position: LaneState) -> Self {
        let channel = shared.channel.clone();
        let key = LaneKey { channel: channel.id, sink: outlet.name.clone() };
        let through = position.cursor.unwrap_or_default().through;
        let seat = shared.hub.add(outlet.name.clone(), through);
        shared.handle.observe(|seen| seen.lane_begins(&outlet.name, through, seat.filled_by.clone()));
        let recorded = Recorded { channel, through, owed: position.owed };
        let (retry, patience) = (shared.machine.retry(outlet.retry), Patience::new(outlet.gives_up_after));
        let metrics = shared.metrics.lane(&outlet.name);
        Self {
            shared,
            key,
            outlet,
            seat,
            recorded,
            retry,
            patience,
            held: BTreeSet::new(),
            trace: None,
            delivery: Part::default(),
            ahead: None,
            metrics,
        }
    }

    /// Delivers what comes until there is no more, or `stop` fires.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<(), ChannelError> {
        if self.resume(&stop).await? == Flow::Stop {
            return Ok(());
        }
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                next = next(&mut self.ahead, &mut self.seat.queue) => Some(next),
                // Only when the queue is empty: what is in it comes before what was not put into it.
                () = self.seat.detached.notified() => None,
            };
            let flow = match next {
                Some(Some(Work::Batch(batch))) => match self.gather(batch, &stop).await {
                    Some(batch) => self.batch(&batch, &stop).await?,
                    None => Flow::Stop,
                },
                Some(Some(Work::Late(record))) => self.late(&record, &stop).await?,
                Some(None) => return Ok(()),
                None => self.catch_up(&stop).await?,
            };
            if flow == Flow::Stop {
                return Ok(());
            }
        }
    }

    /// Reads for itself from its own cursor until it has come as far as the others.
    async fn catch_up(&mut self, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let teller = Teller::lane(&self.shared.handle, &self.outlet.name);
        let mut ways = self.shared.ways();
        let mut intake = self.intake(ways.borrow_and_update().clone(), &teller);
        while !self.shared.hub.rejoin(&self.seat, self.recorded.through) {
            let taken = tokio::select! {
                biased;
                taken = intake.next(stop) => taken?,
                newer = newer(&mut ways) => {
                    intake = self.intake(newer, &teller);
                    continue;
                }
            };
            match taken {
                Taken::Batch(batch) => {
                    if self.batch(&batch, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                    self.shared.book.add(batch.pending.iter().map(Awaited::from).collect(), &teller, stop).await;
                }
                Taken::Nothing => {
                    pause(self.shared.way().settings.idle_wait, stop).await;
                }
                Taken::Stopped => return Ok(Flow::Stop),
            }
        }
        self.shared.handle.observe(|seen| seen.lane_rejoins(&self.outlet.name));
        // What its proof came for meanwhile was offered to attached lanes only.
        self.shared.ask_for_owed(&self.key.sink)?;
        Ok(Flow::On)
    }

    /// Reading of its own, from its own cursor.
    fn intake(&self, way: Arc<Way>, teller: &Teller) -> Intake {
        Intake::new(self.shared.clone(), way, self.recorded.through, teller.clone())
    }

    /// Adds further batches to a batch that offers less than the sink takes at once: those that have come while the sink
    /// was at work, so that they share what recording costs, and more for as long as the sink waits for them. `None` where
    /// `stop` fired: nothing of it is begun.
    async fn gather(&mut self, first: Arc<Batch>, stop: &CancellationToken) -> Option<Arc<Batch>> {
        let linger = self.outlet.sink.linger();
        let patience = Instant::now() + linger;
        let (mut offered, mut held) = (self.fresh(&first).count(), first.len());
        let mut batches = vec![first];
        while offered < self.outlet.sink.at_once() && held < MAX_GATHERED {
            let next = match self.seat.queue.try_recv() {
                Ok(next) => Some(next),
                // Nothing to offer is nothing to wait with.
                Err(TryRecvError::Empty) if offered > 0 && !linger.is_zero() => tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    next = self.seat.queue.recv() => next,
                    () = sleep_until(patience) => break,
                },
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            };
            match next {
                Some(Work::Batch(batch)) => {
                    offered += self.fresh(&batch).count();
                    held += batch.len();
                    batches.push(batch);
                }
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        Some(Batch::join(batches))
    }

    async fn resume(&mut self, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let held = loop {
            match self.outlet.sink.resume(&self.recorded).await {
                Ok(held) => break held,
                Err(error) => {
                    if self.refused(error, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
        };
        self.accepted();
        // Before anything stands behind them: a sink looks back no further than to what is recorded.
        for offset in held.intersection(&self.recorded.owed.clone()) {
            self.settle(*offset, None).await?;
        }
        self.held = held.into_iter().filter(|offset| !self.has_passed(*offset)).collect();
        Ok(Flow::On)
    }

    async fn batch(&mut self, batch: &Batch, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let waiting = self.messages(batch);
        self.delivery = waiting.first().map(|first| self.begin_delivery(batch, first.offset())).unwrap_or_default();
        let ended = self.deliver(batch, waiting, stop).await;
        self.delivery = Part::default();
        ended
    }

    async fn deliver(
        &mut self,
        batch: &Batch,
        mut waiting: Vec<Message>,
        stop: &CancellationToken,
    ) -> Result<Flow, ChannelError> {
        while !waiting.is_empty() {
            if !self.goes_on(stop).await {
                return Ok(Flow::Stop);
            }
            let offered = &waiting[..waiting.len().min(self.outlet.sink.at_once())];
            self.trace = offered.first().map(|message| batch.trace_at(message.offset()).id());
            match self.offer(offered).await {
                Ok(()) if offered.len() == waiting.len() => break,
                Ok(()) => {
                    let (count, last) = (offered.len(), offered[offered.len() - 1].offset());
                    self.accepted();
                    self.record(batch, last).await?;
                    waiting.drain(..count);
                    if stop.is_cancelled() {
                        return Ok(Flow::Stop);
                    }
                }
                Err(Undelivered { delivered, beyond, error }) => {
                    if let Some(last) = waiting.drain(..delivered).next_back() {
                        self.record(batch, last.offset()).await?;
                        self.retry.reset();
                    }
                    waiting.retain(|message| !beyond.contains(&message.offset()));
                    if let Some(letter) = waiting.first().and_then(|first| self.gives_up(first, &error)) {
                        let first = waiting.remove(0);
                        let through = if waiting.is_empty() { batch.through } else { first.offset() };
                        self.record_with(batch, through, Some(letter)).await?;
                        if waiting.is_empty() {
                            return Ok(Flow::On);
                        }
                    }
                    if self.refused(error, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
        }
        self.accepted();
        self.delivery = Part::default();
        self.record(batch, batch.through).await?;
        Ok(Flow::On)
    }

    /// Offers events to the sink, and says and counts what comes of it.
    async fn offer(&self, offered: &[Message]) -> Result<(), Undelivered> {
        let first = offered.first().and_then(|message| message.record().time());
        self.shared.handle.observe(|seen| seen.lane_offers(&self.outlet.name, first));
        let began = std::time::Instant::now();
        let answer = self.delivery.around(self.outlet.sink.deliver(&self.recorded.channel, offered)).await;
        let (taken, error) = match &answer {
            Ok(()) => (offered.len(), None),
            Err(Undelivered { delivered, beyond, error }) => (delivered + beyond.len(), Some(error.kind())),
        };
        self.metrics.offered(began.elapsed(), taken, error);
        let (channel, sink, trace_id) = (&self.recorded.channel.name, &self.outlet.name, self.trace_id());
        debug!(%channel, %sink, trace_id, offered = offered.len(), taken, "events offered");
        let error = answer.as_ref().err().map(|undelivered| Chain(&undelivered.error));
        self.delivery.attempt(offered.len(), taken, error.as_ref().map(|error| error as &dyn Display));
        answer
    }

    /// A part of the trace of the first event that is offered, which takes those of others along.
    fn begin_delivery(&self, batch: &Batch, first: Offset) -> Part {
        let trace = batch.trace_at(first);
        let delivery = trace.part("deliver");
        delivery.note("sink", self.outlet.name.to_string());
        batch.traces().filter(|other| other.id() != trace.id()).for_each(|other| delivery.joins(other));
        delivery
    }

    /// What the sink is given of a batch.
    fn messages(&self, batch: &Batch) -> Vec<Message> {
        self.fresh(batch).map(|record| Message::new(record, self.outlet.shape)).collect()
    }

    fn fresh<'a>(&'a self, batch: &'a Batch) -> impl Iterator<Item = &'a Arc<Record>> {
        batch.records.iter().filter(|record| !self.has_passed(record.offset()) && self.takes(record))
    }

    fn takes(&self, record: &Record) -> bool {
        self.outlet.filter.as_ref().is_none_or(|filter| filter.takes(&record.facts()))
    }

    /// Delivers a late event, if this lane passed it without its proof. A lane that read it with its proof did not.
    async fn late(&mut self, record: &Arc<Record>, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        if !self.is_owed(record.offset())? {
            return Ok(Flow::On);
        }
        if !self.has_passed(record.offset()) || !self.held.is_empty() {
            // An operator has put the cursor back, and it comes with its batch or, where the service has it no more, later.
            // Or the sink holds what is not recorded, and nothing may stand behind that yet.
            let late = self.shared.state.late_at(self.key.channel, record.offset())?;
            self.shared.book.insert(late.map(|late| Awaited::from((record.offset(), late))));
            return Ok(Flow::On);
        }
        let taken = self.takes(record);
        self.trace = None;
        if taken {
            if !self.goes_on(stop).await {
                return Ok(Flow::Stop);
            }
            let message = [Message::new(record, self.outlet.shape)];
            while let Err(Undelivered { error, .. }) = self.offer(&message).await {
                if let Some(letter) = self.gives_up(&message[0], &error) {
                    return self.settle(record.offset(), Some(letter)).await.map(|()| Flow::On);
                }
                if self.refused(error, stop).await? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            self.accepted();
        }
        self.settle(record.offset(), None).await?;
        if taken {
            info!(channel = %self.recorded.channel.name, sink = %self.outlet.name, offset = %record.offset(), "late proof came: delivered");
        }
        Ok(Flow::On)
    }

    /// This lane is owed that event no more: it has it or, where there is a dead letter, has given it up.
    async fn settle(&mut self, offset: Offset, letter: Option<DeadLetter>) -> Result<(), ChannelError> {
        let settled = vec![(self.key.clone(), offset)];
        let given_up = letter.into_iter().map(|letter| (self.key.clone(), letter)).collect();
        self.shared.state.commit(Commit { settled, given_up, ..Commit::default() }).await?;
        self.recorded.owed.remove(&offset);
        self.shared.handle.observe(|seen| seen.lane_offers(&self.outlet.name, None));
        Ok(())
    }

    /// The dead letter that is left of an event which was refused for too long. While there is no room for one, the event
    /// is offered on.
    fn gives_up(&mut self, event: &Message, error: &SinkError) -> Option<DeadLetter> {
        let letter = self.patience.ends_with(event, error, self.shared.machine.now())?;
        if self.shared.state.dead().borrow().is_full() {
            return None;
        }
        let (channel, sink, facts) = (&self.recorded.channel.name, &self.outlet.name, &letter.facts);
        self.metrics.gave_up();
        error!(%channel, %sink, trace_id = self.trace_id(), offset = %facts.offset, attempts = facts.attempts, reason = facts.reason, "given up: it is a dead letter now, see `channeld dead-letters list`");
        Some(letter)
    }

    /// Whether this lane passed that event without delivering it. What left the quarantine meanwhile, the state knows.
    fn is_owed(&self, offset: Offset) -> Result<bool, ChannelError> {
        Ok(self.recorded.owed.contains(&offset) || self.shared.state.owes(&self.key, offset)?)
    }

    /// Moves the cursor through `through`, together with what became of the batch's other events up to there.
    async fn record(&mut self, batch: &Batch, through: Offset) -> Result<(), ChannelError> {
        self.record_with(batch, through, None).await
    }

    /// As [`record`](Self::record), with an event that was given up.
    async fn record_with(
        &mut self,
        batch: &Batch,
        through: Offset,
        letter: Option<DeadLetter>,
    ) -> Result<(), ChannelError> {
        if self.has_passed(through) {
            return Ok(());
        }
        let new = |offset: Offset| !self.has_passed(offset) && offset <= through;
        let pending = batch.pending.iter().filter(|pending| new(pending.offset)).cloned();
        let pending: Vec<_> = pending.map(|pending| (self.key.clone(), pending)).collect();
        let condemned = batch.condemned.iter().filter(|evidence| new(evidence.facts.offset)).cloned();
        let quarantined = condemned.map(|evidence| (self.key.channel, evidence)).collect();
        let owed: Vec<_> = pending.iter().map(|(_, pending)| Awaited::from(pending)).collect();
        // Owed above the cursor is only what was passed before an operator put the cursor back.
        let delivered = batch.records.iter().map(|record| record.offset());
        let repaid: Vec<_> = delivered.filter(|at| new(*at) && self.recorded.owed.contains(at)).collect();
        let settled = repaid.iter().map(|offset| (self.key.clone(), *offset)).collect();

        let cursor = Some((self.key.clone(), Cursor { through: Some(through) }));
        let given_up = letter.into_iter().map(|letter| (self.key.clone(), letter)).collect();
        let commit = Commit { cursor, pending, settled, quarantined, given_up, ..Commit::default() };
        let recording = batch.trace_at(through).part("record");
        recording.note("sink", self.outlet.name.to_string());
        recording.note("offset", through.get());
        self.shared.state.commit(commit).await?;
        drop(recording);
        self.recorded.through = Some(through);
        self.shared.handle.observe(|seen| seen.lane_recorded(&self.outlet.name, Some(through)));
        self.held.retain(|offset| *offset > through);
        self.recorded.owed.retain(|offset| !repaid.contains(offset));
        self.recorded.owed.extend(owed.iter().map(|awaited| awaited.offset));
        // It may have been asked for, and given up, while this batch was in the queue.
        self.shared.book.insert(owed);
        let (channel, sink, trace_id) = (&self.recorded.channel.name, &self.outlet.name, batch.trace_at(through).id());
        debug!(%channel, %sink, %trace_id, offset = %through, "batch recorded");
        Ok(())
    }

    fn has_passed(&self, offset: Offset) -> bool {
        self.recorded.through.is_some_and(|through| offset <= through)
    }

    /// Waits after a refusal. Says so once, not on every turn.
    async fn refused(&mut self, error: SinkError, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let asked = match &error {
            SinkError::Closed => return Err(ChannelError::SinkClosed { sink: self.outlet.name.clone() }),
            SinkError::Refused { retry_after, .. } => *retry_after,
            SinkError::Gone { .. } | SinkError::Io { .. } => None,
        };
        let wait = self.retry.next_wait(asked);
        let problem = self.tell(&error);
        self.complain(&error, wait);
        let (handle, sink) = (&self.shared.handle, &self.outlet.name);
        let waited = if let SinkError::Gone { .. } = error {
            handle.sink_is_gone(sink, problem);
            true
        } else {
            // Who has put it right need not wait for what may be an hour.
            tokio::select! { biased; waited = pause(wait, stop) => waited, () = handle.sink_resumed(sink) => true }
        };
        Ok(if waited && self.goes_on(stop).await { Flow::On } else { Flow::Stop })
    }

    /// Waits while the sink is paused: it is then as slow as can be, and holds up nobody else. `false` where `stop` fired.
    async fn goes_on(&self, stop: &CancellationToken) -> bool {
        self.shared.handle.until_sink_goes_on(&self.outlet.name, stop).await
    }
}
