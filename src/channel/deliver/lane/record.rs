//! Records the progress of a lane, each time in one commit.

use std::sync::Arc;

use tracing::debug;

use crate::deliver::batch::Batch;
use crate::deliver::lane::Lane;
use crate::error::ChannelError;
use crate::read::gap_search;
use crate::verify::RejectionReason;
use crate::verify::recent::digest_of;
use ledger::{Change, Cursor, DeadLetter, Proof};
use proof::event::{EventKey, Offset};
use record::Record;

impl Lane {
    /// Moves the cursor to `through`. The same commit contains the outcomes of the batch's events up to `through`, and the
    /// dead letter, if any.
    pub(super) async fn record(
        &mut self,
        batch: &Batch,
        through: Offset,
        letter: Option<DeadLetter>,
    ) -> Result<(), ChannelError> {
        if self.has_passed(through) {
            return Ok(());
        }
        let shared = self.shared.clone();
        let _closing = if self.reads { Some(shared.gaps.closing.lock().await) } else { None };
        let mut changes = self.found_in_gaps(batch, through);
        changes.extend(self.changes(batch, through, letter));
        let recording = batch.trace_at(through).part("record");
        recording.note("sink", self.outlet.name.to_string());
        recording.note("offset", through.get());
        self.shared.commit(changes).await?;
        drop(recording);
        let before = self.through.replace(through);
        self.shared.channel.handle.board().lane_recorded(&self.outlet.name, Some(through));
        self.held.retain(|offset| *offset > through);
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        for (end, trace) in batch.parts.iter().skip_while(|(end, _)| Some(*end) <= before) {
            debug!(%channel, %sink, trace_id = %trace.id(), offset = end.min(&through).get(), "batch recorded");
            if *end >= through {
                break;
            }
        }
        Ok(())
    }

    /// Returns the changes for events found in gaps. A lane that reads for itself may read an event in order that was not
    /// yet visible when the other lanes read that range.
    fn found_in_gaps(&self, batch: &Batch, through: Offset) -> Vec<Change> {
        if !self.reads {
            return Vec::new();
        }
        let new = |record: &&Arc<Record>| !self.has_passed(record.offset) && record.offset <= through;
        let records: Vec<_> = batch.records.iter().filter(new).collect();
        gap_search::found_by(&self.shared, &self.identity.sink, &records)
    }

    /// Returns the changes that record a batch up to `through`.
    fn changes(&self, batch: &Batch, through: Offset, letter: Option<DeadLetter>) -> Vec<Change> {
        let sink = &self.identity.sink;
        let new = |offset: Offset| !self.has_passed(offset) && offset <= through;
        let pending = || batch.pending.iter().filter(|pending| new(pending.offset));
        let rejected = batch.rejected.iter().filter(|event| new(event.facts.offset));
        let records = || batch.records.iter().filter(|record| new(record.offset));
        // Late events above the cursor: the lane had passed them before an operator moved the cursor back.
        let repaid: Vec<EventKey> = self.shared.look(|ledger| {
            if ledger.late().is_empty() {
                return Vec::new();
            }
            records().map(|record| record.event_key()).filter(|key| ledger.owes(sink, key)).collect()
        });
        // These events were quarantined before an operator accepted the service's history. Lanes that have passed them must
        // deliver them late.
        let accepted: Vec<Change> = self.shared.look(|ledger| {
            if ledger.quarantined().is_empty() || ledger.contradiction().is_some() {
                return Vec::new();
            }
            let is_accepted = |key: &EventKey| {
                ledger.quarantined().get(key).is_some_and(|facts| facts.reason == RejectionReason::Contradiction.name())
            };
            let (since, sinks) = (self.shared.channel.parts.machine.now(), ledger.cursors().keys());
            let release = |key| Change::Release { key, since, sinks: sinks.clone().cloned().collect() };
            let keys = records().map(|record| record.event_key()).filter(is_accepted);
            keys.flat_map(|key| [release(key), Change::DropQuarantined(key)]).collect()
        });
        let owe = |event| Change::Owe { sink: sink.clone(), event };
        let settle = |key| Change::Settle { sink: sink.clone(), key };
        let given_up = letter.map(|letter| Change::GiveUp { sink: sink.clone(), letter });
        let delivered = records().filter_map(|record| proof(record)).collect();
        let asked = pending().next().map(|_| Change::Asked(self.shared.asked()));
        let changes = asked.into_iter().chain(pending().cloned().map(owe)).chain(repaid.into_iter().map(settle));
        let changes = changes.chain(accepted);
        let known = batch.known.iter().filter(|event| new(event.key.offset)).copied().collect();
        let changes = changes.chain(rejected.cloned().map(Change::Quarantine)).chain(given_up);
        let advance = Change::Advance { sink: sink.clone(), to: Cursor { through: Some(through) } };
        let (recent, channel) = (&self.shared.channel.parts.recent, self.identity.channel.id);
        let workflows = self.shared.look(|ledger| recent.workflows.unrecorded(channel, ledger));
        let changes = changes.chain(workflows).chain([Change::Read(known), Change::Delivered(delivered), advance]);
        changes.chain(self.confirm()).collect()
    }

    /// Records that a late event of the lane is settled: the sink accepted it or, with a dead letter, the lane gave up on
    /// it.
    pub(super) async fn settle(
        &mut self,
        key: EventKey,
        record: Option<&Record>,
        letter: Option<DeadLetter>,
    ) -> Result<(), ChannelError> {
        let sink = &self.identity.sink;
        let given_up = letter.map(|letter| Change::GiveUp { sink: sink.clone(), letter });
        let proved = record.and_then(proof).map(Change::DeliveredLate);
        let settled = Change::Settle { sink: sink.clone(), key };
        let changes = [settled].into_iter().chain(given_up).chain(proved).chain(self.confirm());
        self.shared.commit(changes.collect()).await?;
        self.shared.channel.handle.board().lane_offers(&self.outlet.name, None);
        Ok(())
    }
}

/// Returns the proof of a verified event.
fn proof(record: &Record) -> Option<Proof> {
    record.digest.map(|digest| Proof { digest: digest_of(&digest), offset: record.offset })
}
