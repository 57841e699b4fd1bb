//! Delivers an event whose proof arrived after the lane's cursor had passed it.

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::deliver::batch::{Cause, LateRecord};
use crate::deliver::lane::{Halt, Lane, of_trace};
use crate::late::deliveries::LateDelivery;
use proof::event::Offset;
use record::Message;
use sink::Undelivered;
use telemetry::trace::Part;

impl Lane {
    /// Delivers a late event, if this lane has yet to deliver it. A lane that read the event with its proof skips it.
    pub(super) async fn late(&mut self, late: &LateRecord, stop: &CancellationToken) -> Result<(), Halt> {
        let LateRecord { record, cause, trace } = late;
        let (offset, key) = (record.offset, record.event_key());
        if !self.is_owed(&key) {
            return Ok(());
        }
        if !self.has_passed(offset) || !self.held.is_empty() {
            // Either an operator moved the cursor back: the event is delivered with its batch or, if the service no longer
            // has it, later. Or the sink has events that are not recorded, and no event may be delivered after them yet.
            self.shared.late.insert([key]);
            return Ok(());
        }
        if !self.outlet.takes(record) {
            return Ok(self.settle(key, Some(record), None).await?);
        }
        self.ready(stop).await?;
        self.trace = Some(of_trace(trace));
        self.delivery = trace.part("deliver");
        self.delivery.note("sink", self.outlet.name.to_string());
        let message = [Message::new(record, &self.outlet.shape)];
        let through = self.through.unwrap_or(offset);
        while self.is_owed(&key)
            && let Err(Undelivered { error, .. }) = self.offer(&message, through).await
        {
            if let Some(letter) = self.dead_letter(&message[0], &error) {
                self.delivery = Part::default();
                return Ok(self.settle(key, None, Some(letter)).await?);
            }
            self.refused(error, stop).await?;
            // If the sink turns out to have the event, it is settled.
            self.ready(stop).await?;
        }
        self.accepted();
        self.delivery = Part::default();
        let recording = trace.part("record");
        recording.note("sink", self.outlet.name.to_string());
        self.note_late(offset, *cause);
        self.settle(key, Some(record), None).await?;
        let (channel, sink, offset) = (&self.identity.channel.name, &self.identity.sink, offset.get());
        let trace_id = self.trace_id();
        match cause {
            Cause::Operator => info!(%channel, %sink, trace_id, offset, "event delivered as an operator asked"),
            Cause::Appeared => {
                info!(%channel, %sink, trace_id, offset, "event delivered that became visible after later events");
            }
            Cause::Proof => info!(%channel, %sink, trace_id, offset, "late event delivered"),
        }
        Ok(())
    }

    /// Records the time of the delivery, before the ledger forgets the event.
    fn note_late(&self, offset: Offset, cause: Cause) {
        let channel = &self.shared.channel;
        let (sink, at) = (self.identity.sink.clone(), channel.parts.machine.time());
        let is_asked_for = cause == Cause::Operator;
        channel.handle.board().late.note(LateDelivery { offset, sink, at, is_asked_for });
    }
}
