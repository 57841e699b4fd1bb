//! One sink of one channel: deliver, then record.
//!
//! # Invariants
//!
//! * **Delivered before recorded.** The cursor moves after the sink has said `Ok`, and only as far as that.
//! * **Nothing twice without a crash.** Where a sink takes a part of a batch and refuses the rest, the part is recorded and
//!   only the rest is offered again.
//! * **Taken, filtered or kept.** The cursor passes an event that the sink has taken, that its filter leaves out, or that
//!   becomes a dead letter in the same commit.
//! * **Only with the lease.** No delivery begins once it is lost.
//!
//! # Cancellation
//!
//! `stop` is observed while waiting for work, while the sink is paused, and between two offers, never between an offer and
//! its record.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::channel::ChannelError;
use crate::channel::context::RunContext;
use crate::channel::deliver::batch::{Batch, Work};
use crate::channel::deliver::hub::LaneInput;
use crate::channel::settings::Outlet;
use crate::channel::verify::Awaited;
use crate::event::Offset;
use crate::ledger::Cursor;
use crate::metrics::LaneMetrics;
use crate::record::{Message, Record};
use crate::retry::Retry;
use crate::sink::{Delivery, Held, LaneRef, Recorded, Undelivered};
use crate::telemetry::Chain;
use crate::telemetry::trace::{Part, TraceId};

mod catch_up;
mod give_up;
mod record;
mod refusal;

use give_up::GiveUpTimer;

/// The most events that a lane joins into one batch: its filter may leave few of many to offer.
const MAX_GATHERED: usize = 4_000;

pub(in crate::channel) struct Lane {
    shared: Arc<RunContext>,
    identity: LaneRef,
    outlet: Outlet,
    input: LaneInput,
    /// The recorded cursor.
    through: Option<Offset>,
    retry: Retry,
    give_up: GiveUpTimer,
    /// The events that the sink held above the cursor when the lane began. They are offered again, and the sink skips them.
    held: BTreeSet<Offset>,
    /// The sink holds everything up to here, though it is not recorded. It is not offered again.
    held_through: Option<Offset>,
    /// The trace of the events in hand.
    trace: Option<TraceId>,
    /// The delivery of the events in hand, as a part of their trace.
    delivery: Part,
    /// Work that was taken from the queue and has not begun.
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
    pub(in crate::channel) fn new(shared: Arc<RunContext>, outlet: Outlet, Cursor { through }: Cursor) -> Self {
        let identity = LaneRef { channel: shared.channel.clone(), sink: outlet.name.clone() };
        let input = shared.hub.add(outlet.name.clone(), through);
        shared.handle.board.update(|board| board.lane_begins(&outlet.name, through, input.sender.clone()));
        let (retry, give_up) = (shared.machine.retry(outlet.retry), GiveUpTimer::new(outlet.gives_up_after));
        let metrics = shared.metrics.lane(&outlet.name);
        Self {
            shared,
            identity,
            outlet,
            input,
            through,
            retry,
            give_up,
            held: BTreeSet::new(),
            held_through: None,
            trace: None,
            delivery: Part::default(),
            ahead: None,
            metrics,
        }
    }

    /// Delivers until the feed ends or `stop` fires.
    pub(in crate::channel) async fn run(mut self, stop: CancellationToken) -> Result<(), ChannelError> {
        if self.resume(&stop).await? == Flow::Stop {
            return Ok(());
        }
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                next = next(&mut self.ahead, &mut self.input.queue) => Some(next),
                // Only when the queue is empty: its batches come before those that the lane has to read for itself.
                () = self.input.detached.notified() => None,
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

    /// Joins further batches to one that offers less than the sink takes at once, so that they share one commit: those that
    /// came while the sink was at work, and those that come within the sink's linger. `None` where `stop` fired: nothing of
    /// them has begun.
    async fn gather(&mut self, first: Arc<Batch>, stop: &CancellationToken) -> Option<Arc<Batch>> {
        let linger = self.outlet.sink.linger();
        let until = Instant::now() + linger;
        let (mut offered, mut held) = (self.fresh(&first).count(), first.len());
        let mut batches = vec![first];
        while offered < self.outlet.sink.at_once() && held < MAX_GATHERED {
            let next = match self.input.queue.try_recv() {
                Ok(next) => Some(next),
                // A batch waits for more only where it has events to offer.
                Err(TryRecvError::Empty) if offered > 0 && !linger.is_zero() => tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    next = self.input.queue.recv() => next,
                    () = sleep_until(until) => break,
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

    /// Asks the sink what it holds beyond the recorded cursor.
    async fn resume(&mut self, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let owed = self.shared.look(|ledger| ledger.owed(&self.identity.sink).map(|(offset, _)| *offset).collect());
        let epoch = self.shared.claim().lease().epoch;
        let recorded = Recorded { lane: self.identity.clone(), epoch, through: self.through, owed };
        let held = loop {
            match self.outlet.sink.resume(&recorded).await {
                Ok(held) => break held,
                Err(error) => {
                    if self.refused(error, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
        };
        self.accepted();
        match held {
            Held::Through(through) => self.held_through = Some(through),
            Held::Offsets(offsets) => {
                // Settled before anything new is delivered: a sink looks back only as far as the record goes.
                for offset in offsets.intersection(&recorded.owed) {
                    self.settle(*offset, None, None).await?;
                }
                self.held = offsets.into_iter().filter(|offset| !self.has_passed(*offset)).collect();
            }
        }
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
            let last = offered[offered.len() - 1].offset();
            let through = if offered.len() == waiting.len() { batch.through } else { last };
            match self.offer(offered, through).await {
                Ok(()) if offered.len() == waiting.len() => break,
                Ok(()) => {
                    let count = offered.len();
                    self.accepted();
                    self.record(batch, last, None).await?;
                    waiting.drain(..count);
                    if stop.is_cancelled() {
                        return Ok(Flow::Stop);
                    }
                }
                Err(Undelivered { delivered, beyond, error }) => {
                    if let Some(last) = waiting.drain(..delivered).next_back() {
                        self.record(batch, last.offset(), None).await?;
                        self.retry.reset();
                    }
                    waiting.retain(|message| !beyond.contains(&message.offset()));
                    if let Some(letter) = waiting.first().and_then(|first| self.dead_letter(first, &error)) {
                        let first = waiting.remove(0);
                        let through = if waiting.is_empty() { batch.through } else { first.offset() };
                        self.record(batch, through, Some(letter)).await?;
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
        self.record(batch, batch.through, None).await?;
        Ok(Flow::On)
    }

    /// Offers events to the sink once. With them, everything up to `through` is dealt with.
    async fn offer(&self, messages: &[Message], through: Offset) -> Result<(), Undelivered> {
        let first = messages.first().and_then(|message| message.record().time);
        self.shared.handle.board.update(|board| board.lane_offers(&self.outlet.name, first));
        let began = std::time::Instant::now();
        let epoch = self.shared.claim().lease().epoch;
        let delivery = Delivery { lane: &self.identity, epoch, through, messages };
        let answer = self.delivery.around(self.outlet.sink.deliver(&delivery)).await;
        let (taken, error) = match &answer {
            Ok(()) => (messages.len(), None),
            Err(Undelivered { delivered, beyond, error }) => (delivered + beyond.len(), Some(error.kind())),
        };
        self.metrics.offered(began.elapsed(), taken, error);
        let (channel, sink, trace_id) = (&self.identity.channel.name, &self.identity.sink, self.trace_id());
        debug!(%channel, %sink, trace_id, offered = messages.len(), taken, "events offered");
        let error = answer.as_ref().err().map(|undelivered| Chain(&undelivered.error));
        self.delivery.attempt(messages.len(), taken, error.as_ref().map(|error| error as &dyn Display));
        answer
    }

    /// Begins the delivery in the trace of the first event, and links the traces of the batch's other parts to it.
    fn begin_delivery(&self, batch: &Batch, first: Offset) -> Part {
        let trace = batch.trace_at(first);
        let delivery = trace.part("deliver");
        delivery.note("sink", self.outlet.name.to_string());
        let (channel, sink, joined_to) = (&self.identity.channel.name, &self.identity.sink, trace.id());
        for (_, other) in batch.parts().filter(|(_, other)| other.id() != joined_to) {
            delivery.joins(other);
            debug!(%channel, %sink, trace_id = %other.id(), %joined_to, "batch offered with another");
        }
        delivery
    }

    /// The events of a batch that the sink is offered, in its shape.
    fn messages(&self, batch: &Batch) -> Vec<Message> {
        self.fresh(batch).map(|record| Message::new(record, self.outlet.shape)).collect()
    }

    /// The records of a batch that the sink does not have yet and its filter takes.
    fn fresh<'a>(&'a self, batch: &'a Batch) -> impl Iterator<Item = &'a Arc<Record>> {
        let is_new = |offset| !self.has_passed(offset) && Some(offset) > self.held_through;
        batch.records.iter().filter(move |record| is_new(record.offset) && self.takes(record))
    }

    fn takes(&self, record: &Record) -> bool {
        self.outlet.filter.as_ref().is_none_or(|filter| filter.takes(record.facts()))
    }

    /// Delivers a late event, if this lane is owed it. A lane that read the event with its proof is not.
    async fn late(&mut self, record: &Arc<Record>, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let offset = record.offset;
        if !self.shared.look(|ledger| ledger.owes(&self.identity.sink, offset)) {
            return Ok(Flow::On);
        }
        if !self.has_passed(offset) || !self.held.is_empty() {
            // An operator has put the cursor back: the event comes with its batch or, where the service no longer has it,
            // later. Or the sink holds events that are not recorded, and nothing may be delivered behind them yet.
            let late = self.shared.look(|ledger| ledger.late().get_key_value(&offset).map(Awaited::from));
            self.shared.late.insert(late);
            return Ok(Flow::On);
        }
        let taken = self.takes(record);
        self.trace = None;
        if taken {
            if !self.goes_on(stop).await {
                return Ok(Flow::Stop);
            }
            let message = [Message::new(record, self.outlet.shape)];
            let through = self.through.unwrap_or(offset);
            while let Err(Undelivered { error, .. }) = self.offer(&message, through).await {
                if let Some(letter) = self.dead_letter(&message[0], &error) {
                    return self.settle(offset, None, Some(letter)).await.map(|()| Flow::On);
                }
                if self.refused(error, stop).await? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            self.accepted();
        }
        self.settle(offset, Some(record), None).await?;
        if taken {
            info!(channel = %self.identity.channel.name, sink = %self.identity.sink, %offset, "late event delivered");
        }
        Ok(Flow::On)
    }

    fn has_passed(&self, offset: Offset) -> bool {
        self.through.is_some_and(|through| offset <= through)
    }
}
