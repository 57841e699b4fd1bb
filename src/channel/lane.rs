//! One sink of one channel: deliver, then record, with the waits of a sink that refuses.
//!
//! # Invariants
//!
//! * **Delivered before recorded.** The cursor moves after the sink has said `Ok`, and only as far as that.
//! * **Nothing twice without a crash.** What a sink took of a batch before it refused the rest is recorded, and only
//!   the rest is offered again.
//!
//! # Cancellation
//!
//! `stop` is observed while waiting for work, while the sink is paused, and while waiting for a sink that refuses.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::event::Offset;
use crate::record::Record;
use crate::retry::Retry;
use crate::sink::{Recorded, SinkError, Undelivered};
use crate::state::{Commit, Cursor, LaneKey, LaneState};
use crate::telemetry::Chain;

use super::batch::{Batch, Work};
use super::hub::Seat;
use super::intake::{Intake, Taken};
use super::judge::Awaited;
use super::{ChannelError, Outlet, Shared, pause};

pub(super) struct Lane {
    shared: Arc<Shared>,
    key: LaneKey,
    outlet: Outlet,
    seat: Seat,
    recorded: Recorded,
    retry: Retry,
}

/// Whether the lane goes on.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    On,
    Stop,
}

impl Lane {
    pub(super) fn new(shared: Arc<Shared>, outlet: Outlet, position: LaneState) -> Self {
        let channel = shared.settings.channel.clone();
        let key = LaneKey { channel: channel.id, sink: outlet.name.clone() };
        let through = position.cursor.unwrap_or_default().through;
        let seat = shared.hub.add(outlet.name.clone(), through);
        let recorded = Recorded { channel, through, owed: position.owed };
        let retry = shared.machine.retry(outlet.retry);
        Self { shared, key, outlet, seat, recorded, retry }
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
                next = self.seat.queue.recv() => Some(next),
                // Only when the queue is empty: what is in it comes before what was not put into it.
                () = self.seat.detached.notified() => None,
            };
            let flow = match next {
                Some(Some(Work::Batch(batch))) => self.batch(&batch, &stop).await?,
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
        let mut intake = Intake::new(self.shared.clone(), self.recorded.through);
        while !self.shared.hub.rejoin(&self.seat, self.recorded.through) {
            match intake.next(stop).await? {
                Taken::Batch(batch) => {
                    if self.batch(&batch, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                    self.shared.book.add(batch.pending.iter().map(Awaited::from).collect(), stop).await;
                }
                Taken::Nothing => {
                    pause(self.shared.settings.idle_wait, stop).await;
                }
                Taken::Stopped => return Ok(Flow::Stop),
            }
        }
        // What its proof came for meanwhile was offered to attached lanes only.
        let owed = self.shared.state.late(self.key.channel)?.into_iter();
        let owed = owed.filter(|(_, late)| late.owed.contains(&*self.key.sink)).map(Awaited::from);
        self.shared.book.insert(owed);
        Ok(Flow::On)
    }

    async fn resume(&mut self, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        while let Err(error) = self.outlet.sink.resume(&self.recorded).await {
            if self.refused(error, stop).await? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        self.accepted();
        Ok(Flow::On)
    }

    async fn batch(&mut self, batch: &Batch, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let passed = batch.records.iter().take_while(|record| self.has_passed(record.offset())).count();
        let mut records = &batch.records[passed..];
        while !records.is_empty() {
            if !self.goes_on(stop).await {
                return Ok(Flow::Stop);
            }
            let offered = &records[..records.len().min(self.outlet.sink.at_once())];
            match self.outlet.sink.deliver(&self.recorded.channel, offered).await {
                Ok(()) if offered.len() == records.len() => break,
                Ok(()) => {
                    self.accepted();
                    self.record(batch, offered[offered.len() - 1].offset()).await?;
                    records = &records[offered.len()..];
                    if stop.is_cancelled() {
                        return Ok(Flow::Stop);
                    }
                }
                Err(Undelivered { delivered, error }) => {
                    let (arrived, rest) = records.split_at(delivered);
                    if let Some(last) = arrived.last() {
                        self.record(batch, last.offset()).await?;
                        self.retry.reset();
                    }
                    records = rest;
                    if self.refused(error, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
        }
        self.accepted();
        self.record(batch, batch.through).await?;
        Ok(Flow::On)
    }

    /// Delivers a late event, if this lane passed it without its proof. A lane that read it with its proof did not.
    async fn late(&mut self, record: &Record, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        if !self.is_owed(record.offset())? {
            return Ok(Flow::On);
        }
        if !self.has_passed(record.offset()) {
            // An operator has put the cursor back: it comes with its batch or, where the service has it no more, later.
            let late = self.shared.state.late(self.key.channel)?.remove_entry(&record.offset());
            self.shared.book.insert(late.map(Awaited::from));
            return Ok(Flow::On);
        }
        if !self.goes_on(stop).await {
            return Ok(Flow::Stop);
        }
        while let Err(Undelivered { error, .. }) =
            self.outlet.sink.deliver(&self.recorded.channel, std::slice::from_ref(record)).await
        {
            if self.refused(error, stop).await? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        self.accepted();
        let settled = vec![(self.key.clone(), record.offset())];
        self.shared.state.commit(Commit { settled, ..Commit::default() }).await?;
        self.recorded.owed.remove(&record.offset());
        info!(channel = %self.recorded.channel.name, sink = %self.outlet.name, offset = %record.offset(), "late proof came: delivered");
        Ok(Flow::On)
    }

    /// Whether this lane passed that event without delivering it. What left the quarantine meanwhile, the state knows.
    fn is_owed(&self, offset: Offset) -> Result<bool, ChannelError> {
        Ok(self.recorded.owed.contains(&offset) || self.shared.state.owes(&self.key, offset)?)
    }

    /// Moves the cursor through `through`, together with what became of the batch's other events up to there.
    async fn record(&mut self, batch: &Batch, through: Offset) -> Result<(), ChannelError> {
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
        let delivered = batch.records.iter().map(Record::offset);
        let repaid: Vec<_> = delivered.filter(|at| new(*at) && self.recorded.owed.contains(at)).collect();
        let settled = repaid.iter().map(|offset| (self.key.clone(), *offset)).collect();

        let cursor = Some((self.key.clone(), Cursor { through: Some(through) }));
        self.shared.state.commit(Commit { cursor, pending, settled, quarantined, ..Commit::default() }).await?;
        self.recorded.through = Some(through);
        self.recorded.owed.retain(|offset| !repaid.contains(offset));
        self.recorded.owed.extend(owed.iter().map(|awaited| awaited.offset));
        // It may have been asked for, and given up, while this batch was in the queue.
        self.shared.book.insert(owed);
        debug!(channel = %self.recorded.channel.name, sink = %self.outlet.name, offset = %through, "batch recorded");
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
            SinkError::Io { .. } => None,
        };
        let wait = self.retry.next_wait(asked);
        self.complain(&error, wait);
        Ok(if pause(wait, stop).await && self.goes_on(stop).await { Flow::On } else { Flow::Stop })
    }

    /// Waits while the sink is paused: it is then as slow as can be, and holds up nobody else. `false` where `stop` fired.
    async fn goes_on(&self, stop: &CancellationToken) -> bool {
        self.shared.handle.until_sink_goes_on(&self.outlet.name, stop).await
    }

    fn complain(&self, error: &SinkError, wait: Duration) {
        let (channel, sink, attempt) = (&self.recorded.channel.name, &self.outlet.name, self.retry.attempt());
        let (wait_ms, error) = (wait.as_millis(), Chain(error));
        if attempt == 1 {
            warn!(%channel, %sink, wait_ms, %error, "sink refused: its events wait and are offered again");
        } else {
            debug!(%channel, %sink, attempt, wait_ms, %error, "sink refused again");
        }
    }

    fn accepted(&mut self) {
        if self.retry.attempt() > 0 {
            info!(channel = %self.recorded.channel.name, sink = %self.outlet.name, "sink accepts again");
            self.retry.reset();
        }
    }
}
