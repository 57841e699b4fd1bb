//! An event whose proof came after the lane had passed it.

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::channel::deliver::batch::LateRecord;
use crate::channel::deliver::lane::{Halt, Lane, of_trace};
use crate::channel::late::deliveries::LateDelivery;
use crate::event::Offset;
use crate::record::Message;
use crate::sink::Undelivered;
use crate::telemetry::trace::Part;

impl Lane {
    /// Delivers a late event, if this lane is owed it. A lane that read the event with its proof is not.
    pub(super) async fn late(&mut self, late: &LateRecord, stop: &CancellationToken) -> Result<(), Halt> {
        let LateRecord { record, is_asked_for, trace } = late;
        let offset = record.offset;
        if !self.shared.look(|ledger| ledger.owes(&self.identity.sink, offset)) {
            return Ok(());
        }
        if !self.has_passed(offset) || !self.held.is_empty() {
            // An operator has put the cursor back: the event comes with its batch or, where the service no longer has it,
            // later. Or the sink holds events that are not recorded, and nothing may be delivered behind them yet.
            self.shared.late.insert([offset]);
            return Ok(());
        }
        if !self.outlet.takes(record) {
            return Ok(self.settle(offset, Some(record), None).await?);
        }
        self.paced(stop).await?;
        self.trace = Some(of_trace(trace));
        self.delivery = trace.part("deliver");
        self.delivery.note("sink", self.outlet.name.to_string());
        let message = [Message::new(record, &self.outlet.shape)];
        let through = self.through.unwrap_or(offset);
        while let Err(Undelivered { error, .. }) = self.offer(&message, through).await {
            if let Some(letter) = self.dead_letter(&message[0], &error) {
                self.delivery = Part::default();
                return Ok(self.settle(offset, None, Some(letter)).await?);
            }
            self.refused(error, stop).await?;
            self.resume(stop).await?;
            if !self.shared.look(|ledger| ledger.owes(&self.identity.sink, offset)) {
                return Ok(());
            }
            self.paced(stop).await?;
        }
        self.accepted();
        self.delivery = Part::default();
        let recording = trace.part("record");
        recording.note("sink", self.outlet.name.to_string());
        self.note_late(offset, *is_asked_for);
        self.settle(offset, Some(record), None).await?;
        let (channel, sink, offset) = (&self.identity.channel.name, &self.identity.sink, offset.get());
        let trace_id = self.trace_id();
        if *is_asked_for {
            info!(%channel, %sink, trace_id, offset, "event delivered as an operator asked");
        } else {
            info!(%channel, %sink, trace_id, offset, "late event delivered");
        }
        Ok(())
    }

    /// Shows when it was delivered, before the ledger forgets it.
    fn note_late(&self, offset: Offset, is_asked_for: bool) {
        let channel = &self.shared.channel;
        let (sink, at) = (self.identity.sink.clone(), channel.parts.machine.time());
        channel.handle.board().late.note(LateDelivery { offset, sink, at, is_asked_for });
    }
}
