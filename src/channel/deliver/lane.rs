//! Runs one sink of one channel: delivers events, and then records them as delivered.
//!
//! # Invariants
//!
//! * **Delivered before recorded.** The cursor moves past a delivered event only after the sink has accepted the event.
//! * **No event twice without a restart.** If a sink accepts a part of a batch and refuses the rest, the lane offers only the
//!   rest again. The lane records the part up to the first refused event. The accepted events above it are kept in memory:
//!   see [`AcceptedBeyond`](crate::deliver::beyond::AcceptedBeyond).
//! * **Accepted, filtered or stored.** The cursor passes an event only in three cases: the sink accepted the event, the
//!   configuration excludes it, or the same commit stores it. It is stored as a pending event, in the quarantine, or as a
//!   dead letter.
//! * **Only with the lease.** No delivery begins after the lease is lost.
//! * **The sink's own position counts.** The lane compares the sink's position with the recorded position before the first
//!   delivery, and after each failed delivery. The sink compares the two at every delivery. See `position`.
//! * **`stop` is observed** while the lane waits and between two offers. The lane never stops between an offer and the commit
//!   that records the offer.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::mem::take;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::channel::settings::LaneSettings;
use crate::deliver::batch::{Batch, Cause, LateRecord, Work};
use crate::deliver::upcoming::{PreparedBatch, Upcoming};
use crate::error::ChannelError;
use crate::late;
use crate::read::intake::Intake;
use crate::run::context::RunContext;
use crate::status::deliveries::LateDelivery;
use crate::status::reporter;
use crate::status::watchers::watcher_of;
use ledger::{Change, Confirmed, Cursor};
use net::Chain;
use net::retry::Retry;
use proof::event::{EventKey, EventType, Offset};
use record::Message;
use sink::{Delivery, LaneRef, SinkError, Undelivered};
use telemetry::trace::{ChildSpan, Trace, TraceId};

mod give_up;
mod lost;
mod position;
mod refusal;

use give_up::RefusedEvents;

pub(crate) struct Lane {
    shared: Arc<RunContext>,
    identity: LaneRef,
    settings: LaneSettings,
    /// The recorded cursor.
    through: Option<Offset>,
    /// The position that the sink has confirmed. `None` if the sink stores no positions, or before the first request for its
    /// position.
    confirmed: Option<Confirmed>,
    /// Whether the sink's position is certainly `confirmed`. A failed delivery may have moved the sink's position.
    is_sure: bool,
    /// Whether the lane has fallen behind, and reads for itself.
    reads: bool,
    retry: Retry,
    refused_events: RefusedEvents,
    /// The events above the cursor that the sink already has. Events that it received after higher ones are left out: they count as
    /// late deliveries. The lane offers all of them again, and the sink skips them.
    held: BTreeSet<EventKey>,
    /// The higher of the sink's position and the highest offset in `held`. `None` if it is not above the cursor. The position can
    /// be above all events that the sink has, because it also covers events that were pending.
    ahead: Option<Offset>,
    /// The events above the cursor that the sink has accepted, although it refused an earlier event. The lane does not offer them
    /// again.
    beyond: BTreeSet<EventKey>,
    /// The id and the start of the trace of the events in delivery. The trace itself is not stored, because this would delay
    /// the end of its spans.
    trace: Option<(TraceId, SystemTime)>,
    /// The span of the current delivery, in the trace of the delivered events.
    delivery: ChildSpan,
}

/// Why a lane stops its current work.
pub(super) enum Halt {
    Stopped,
    /// The cursor was moved back because the sink lost data. The lane reads from the new cursor.
    MovedBack,
    Failed(ChannelError),
}

impl Drop for Lane {
    /// Keeps the accepted events above the cursor for the sink's next lane.
    fn drop(&mut self) {
        self.shared.owned.accepted.keep(&self.settings, take(&mut self.beyond));
    }
}

impl From<ChannelError> for Halt {
    fn from(error: ChannelError) -> Self {
        Self::Failed(error)
    }
}

impl Lane {
    /// Creates a lane that begins at this cursor. Also returns the lane's upcoming work, for [`run`](Self::run). Both are boxed,
    /// because a future reserves the size of its arguments twice.
    pub(crate) fn new(
        shared: Arc<RunContext>,
        settings: LaneSettings,
        Cursor { through }: Cursor,
    ) -> (Box<Self>, Box<Upcoming>) {
        let (input, waiting) = shared.hub.add(&settings.name, through);
        shared.channel.metrics.lane_begins(&settings.name);
        let upcoming = Upcoming::new(input, settings.clone(), shared.channel.handle.memory.clone(), through);
        shared.channel.handle.board().lane_begins(&settings.name, through, waiting);
        let beyond = shared.owned.accepted.take(&settings);
        let lane = Self {
            identity: LaneRef { channel: shared.channel.identity.clone(), sink: settings.name.clone() },
            retry: shared.channel.parts.machine.retry(settings.retry),
            refused_events: RefusedEvents::default(),
            shared,
            settings,
            through,
            confirmed: None,
            is_sure: false,
            reads: false,
            held: BTreeSet::new(),
            ahead: None,
            beyond,
            trace: None,
            delivery: ChildSpan::default(),
        };
        (Box::new(lane), Box::new(upcoming))
    }

    pub(crate) async fn run(
        mut self: Box<Self>,
        mut upcoming: Box<Upcoming>,
        stop: CancellationToken,
    ) -> Result<(), ChannelError> {
        match self.work(&mut upcoming, &stop).await {
            Ok(()) | Err(Halt::Stopped | Halt::MovedBack) => Ok(()),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    /// Boxes the work, so that an idle lane uses little memory.
    async fn work(&mut self, upcoming: &mut Upcoming, stop: &CancellationToken) -> Result<(), Halt> {
        let mut done = Box::pin(self.begin(stop)).await;
        loop {
            if let Err(Halt::MovedBack) = done {
                upcoming.discard();
                done = Box::pin(self.catch_up(stop)).await;
                continue;
            }
            done?;
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Halt::Stopped),
                next = upcoming.next() => next,
                () = self.settings.sink.displaced(&self.identity) => {
                    done = Box::pin(self.resume_and_report(stop)).await;
                    continue;
                }
            };
            done = match next {
                Some(Work::Batch(prepared)) => upcoming.during(Box::pin(self.batch(prepared, stop))).await,
                Some(Work::Late(late)) => upcoming.during(Box::pin(self.late(&late, stop))).await,
                Some(Work::CatchUp) => Box::pin(self.catch_up(stop)).await,
                None => return Ok(()),
            };
        }
    }

    async fn batch(&mut self, prepared: PreparedBatch, stop: &CancellationToken) -> Result<(), Halt> {
        let without_confidence = prepared.without_confidence;
        self.deliver_batch(prepared, stop).await?;
        self.excluded(without_confidence);
        Ok(())
    }

    /// Counts recorded events that the sink did not receive because they have no confidence.
    fn excluded(&self, without_confidence: u64) {
        if without_confidence > 0 {
            let sink = &self.settings.name;
            self.shared.channel.metrics.without_confidence(sink, without_confidence);
            self.shared.channel.handle.board().lane(sink).status.without_confidence += without_confidence;
        }
    }

    async fn deliver_batch(&mut self, prepared: PreparedBatch, stop: &CancellationToken) -> Result<(), Halt> {
        let PreparedBatch { batch, messages: mut waiting, .. } = prepared;
        let batch = &*batch;
        // An earlier lane of the sink may have delivered events above the cursor. An operator can ask for them again.
        let has = |key: EventKey| self.beyond.contains(&key) && !self.is_owed(&key);
        waiting.retain(|message| !self.has_passed(message.offset()) && !has(message.event_key()));
        let mut others_accepted = waiting.first().is_some_and(|first| self.beyond.last() > Some(&first.event_key()));
        self.delivery = waiting.first().map(|first| self.begin_delivery(batch, first.offset())).unwrap_or_default();
        while !waiting.is_empty() {
            self.ready(stop).await?;
            let offered = &waiting[..waiting.len().min(self.settings.sink.at_once())];
            let trace = batch.trace_at(offered[0].offset());
            self.trace = Some((trace.id(), trace.since));
            let (count, last) = (offered.len(), offered[offered.len() - 1].offset());
            let through = if count == waiting.len() { batch.through } else { last };
            let Err(Undelivered { delivered, beyond, error }) = self.offer(offered, through).await else {
                waiting.drain(..count);
                if waiting.is_empty() {
                    break;
                }
                self.accepted();
                self.record(batch, last, None).await?;
                if stop.is_cancelled() {
                    return Err(Halt::Stopped);
                }
                continue;
            };
            let last = waiting.drain(..delivered).next_back();
            waiting.retain(|message| !beyond.contains(&message.event_key()));
            let refusal = (error, take(&mut others_accepted) || !beyond.is_empty());
            self.beyond.extend(beyond);
            if let Some(last) = last {
                self.record(batch, last.offset(), None).await?;
                self.retry.reset();
            }
            let Some(error) = self.judge(batch, &mut waiting, refusal, stop).await? else { continue };
            if waiting.is_empty() {
                self.delivery = ChildSpan::default();
                return Ok(());
            }
            self.refused(error, stop).await?;
        }
        self.accepted();
        self.delivery = ChildSpan::default();
        Ok(self.record(batch, batch.through, None).await?)
    }

    /// Delivers a late event, if this lane has yet to deliver it. A lane that already read the event with its proof skips the
    /// late event.
    async fn late(&mut self, late: &LateRecord, stop: &CancellationToken) -> Result<(), Halt> {
        let LateRecord { record, cause, trace, .. } = late;
        let (offset, key) = (record.offset, record.event_key());
        if !self.is_owed(&key) {
            return Ok(());
        }
        if !self.has_passed(offset) || !self.held.is_empty() {
            // First case: an operator moved the cursor back. The event is then delivered with its batch. If the service no
            // longer has the event, it is delivered late, after the cursor has passed it again. Second case: the sink has
            // events that are not recorded. Until they are recorded, no other event may be delivered.
            self.shared.late.add([(key, false)]);
            return Ok(());
        }
        let proved = self.proof_of_late(record);
        if !self.settings.takes(record) {
            let proved = proved.filter(|_| late.claim_proof()).map(Change::DeliveredLate);
            self.settle(key, proved.into_iter().collect()).await?;
            self.excluded(self.settings.misses_confidence(record).into());
            return Ok(());
        }
        self.ready(stop).await?;
        self.trace = Some((trace.id(), trace.since));
        self.delivery = self.part(trace, "deliver");
        let message = [Message::new(record, &self.settings.shape)];
        let through = self.through.unwrap_or(offset);
        while self.is_owed(&key)
            && let Err(Undelivered { error, .. }) = self.offer(&message, through).await
        {
            if let Some(letter) = self.late_dead_letter(&message[0], &error) {
                self.delivery = ChildSpan::default();
                let given_up = Change::GiveUp { sink: self.identity.sink.clone(), letter };
                return Ok(self.settle(key, vec![given_up]).await?);
            }
            self.refused(error, stop).await?;
            // If the sink turns out to have the event already, this call settles the event.
            self.ready(stop).await?;
        }
        self.accepted();
        self.delivery = ChildSpan::default();
        let _recording = self.part(trace, "record");
        // Store the time on the board before the ledger forgets the event.
        let (sink, at) = (self.identity.sink.clone(), self.shared.channel.parts.machine.time());
        let delivery = LateDelivery { offset, sink, at, is_asked_for: *cause == Cause::Operator };
        self.shared.channel.handle.board().late.note(delivery);
        // The sink may have turned out to have the event, which settled it without its proof.
        let proved = proved.filter(|_| late.claim_proof());
        self.settle(key, self.delivered_late(key, proved, self.confirmed)).await?;
        let (channel, sink, trace_id) = (&self.identity.channel.name, &self.identity.sink, self.trace_id());
        let offset = offset.get();
        match cause {
            Cause::Operator => info!(%channel, %sink, trace_id, offset, "event delivered as an operator asked"),
            Cause::Appeared => {
                info!(%channel, %sink, trace_id, offset, "event delivered: it became visible after later events");
            }
            Cause::Proof => info!(%channel, %sink, trace_id, offset, "pending event delivered"),
        }
        Ok(())
    }

    /// Reads and delivers events from the lane's own cursor, independently of the other lanes, until the lane has caught up.
    async fn catch_up(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let sink = self.settings.name.clone();
        self.reads = true;
        'position: while !self.shared.hub.rejoin(&sink, self.through) {
            // Never deliver beyond the position that the hub had before the first request. Only the intake that feeds the hub records the
            // gaps in which events may still appear, and a page that is older than the hub's may lack events that the hub has read.
            let position = self.shared.hub.position();
            let read_plan = self.shared.read_plan();
            let part = reporter::LoopPart::Lane(sink.clone());
            let mut intake = Intake::new(self.shared.clone(), read_plan.clone(), self.through, part);
            while self.through < position {
                let reading = async {
                    late::room(&self.shared, &intake.reporter).await;
                    intake.next().await
                };
                let batch = tokio::select! {
                    biased;
                    () = stop.cancelled() => return Err(Halt::Stopped),
                    batch = reading => batch?,
                    () = read_plan.over.cancelled() => continue 'position,
                };
                match batch {
                    Some(mut batch) => {
                        if let Some(position) = position {
                            batch.end_at(position);
                        }
                        let mut prepared = PreparedBatch::of(Arc::new(batch));
                        prepared.shape(&self.settings, self.through).await;
                        match intake.during(self.batch(prepared, stop)).await {
                            Err(Halt::MovedBack) => continue 'position,
                            done => done?,
                        }
                    }
                    None => drop(stop.run_until_cancelled(sleep(read_plan.settings.idle_wait)).await),
                }
            }
        }
        self.reads = false;
        self.shared.channel.handle.board().lane(&sink).status.reading = None;
        // Late events whose proofs arrived meanwhile were offered only to attached lanes.
        self.shared.ask_for_owed(&sink);
        Ok(())
    }

    /// Offers events to the sink once. If the sink accepts them all, its position is `through`.
    async fn offer(&mut self, messages: &[Message], through: Offset) -> Result<(), Undelivered> {
        if let Some(first) = messages.first() {
            self.shared.channel.handle.board().lane_offers(&self.settings.name, first.record());
        }
        let began = std::time::Instant::now();
        let epoch = self.shared.owned.leased.lease.epoch;
        let after = self.confirmed.and_then(|confirmed| confirmed.position);
        let delivery = Delivery { lane: &self.identity, epoch, after, through, messages };
        let answer = self.delivery.around(self.deliver(&delivery)).await;
        let (took, no_more) = (began.elapsed(), BTreeSet::new());
        let (first, beyond, error) = match &answer {
            Ok(()) => (messages.len(), &no_more, None),
            Err(Undelivered { delivered, beyond, error }) => (*delivered, beyond, Some(error.kind())),
        };
        let (metrics, taken) = (&self.shared.channel.metrics, first + beyond.len());
        metrics.offered(&self.settings.name, took, taken, error);
        if taken > 0 {
            self.refused_events.gave_up_alone = false;
        }
        let beyond = messages[first..].iter().filter(|message| beyond.contains(&message.event_key()));
        let taken_ones = messages[..first].iter().chain(beyond);
        let times = taken_ones.clone().map(|message| message.record().time);
        let read = self.trace.map(|(_, since)| since);
        metrics.delivered(&self.settings.name, read, times);
        // If the clock was set back, the time since the read counts as zero.
        let waited = read.map(|read| read.elapsed().unwrap_or_default());
        let is_watched = |message: &&Message| message.record().kind == EventType::WatcherEvent;
        let watcher = taken_ones.clone().rev().find(is_watched).and_then(|message| watcher_of(message.record()));
        {
            let mut board = self.shared.channel.handle.board();
            board.hour.took(taken, waited);
            if taken > 0 {
                board.lane(&self.settings.name).status.dead_letters_in_a_row = 0;
            }
            if let Some((id, network)) = watcher {
                board.watchers.note(id, network);
            }
        }
        let tail = &self.shared.channel.parts.handles.tail;
        tail.note(&self.settings.name, taken_ones.map(|message| (message, self.has_passed(message.offset()))));
        let (channel, sink, trace_id) = (&self.identity.channel.name, &self.identity.sink, self.trace_id());
        debug!(%channel, %sink, trace_id, offered = messages.len(), taken, "events offered");
        let error = answer.as_ref().err().map(|undelivered| Chain(&undelivered.error));
        self.delivery.attempt(messages.len(), taken, error.as_ref().map(|error| error as &dyn Display));
        self.note_answer(messages, through, &answer);
        answer
    }

    /// Delivers messages to the sink. If the body of a message could not be made, delivers only the messages before it, and
    /// returns a refusal for this message.
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let sink = &self.settings.sink;
        let unshaped = delivery.messages.iter().enumerate().find_map(|(at, message)| Some((at, message.unshaped()?)));
        let Some((at, why)) = unshaped else { return sink.deliver(delivery).await };
        let messages = &delivery.messages[..at];
        if let Some(last) = messages.last() {
            sink.deliver(&Delivery { through: last.offset(), messages, ..*delivery }).await?;
        }
        Err(Undelivered::after(at, SinkError::refused(format!("the body could not be made: {why}"))))
    }

    /// Begins a delivery span in the trace of the first event, and links this span to the traces of the batch's other parts.
    fn begin_delivery(&self, batch: &Batch, first: Offset) -> ChildSpan {
        let trace = batch.trace_at(first);
        let delivery = self.part(trace, "deliver");
        let (channel, sink, joined_to) = (&self.identity.channel.name, &self.identity.sink, trace.id());
        for (_, other) in batch.parts.iter().filter(|(_, other)| other.id() != joined_to) {
            delivery.joins(other);
            debug!(%channel, %sink, trace_id = %other.id(), %joined_to, "batch joined with another batch");
        }
        delivery
    }

    /// Begins a span in a trace. The span notes the sink's name.
    fn part(&self, trace: &Trace, name: &'static str) -> ChildSpan {
        let part = trace.part(name);
        part.note("sink", self.settings.name.to_string());
        part
    }

    fn has_passed(&self, offset: Offset) -> bool {
        self.through.is_some_and(|through| offset <= through)
    }
}
