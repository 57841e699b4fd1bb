//! Records the position of a lane, and compares the recorded position with the sink's own position.
//!
//! A sink can be restored from a backup, replaced or emptied, and the daemon is not told. A lane therefore never relies on
//! its cursor alone.
//!
//! | the sink's position | what happened | what the lane does |
//! |---|---|---|
//! | as confirmed | nothing | it continues |
//! | higher | a crash before the commit, or an older state was restored | it offers the events again, and the sink skips the ones it has; an event that it lacks at or below its position, or has written after a higher one, counts as a late delivery |
//! | lower | the sink has lost data | it moves its cursor back and delivers again |
//! | missing | the table or stream was dropped or purged | it waits for an operator: deliver again, or accept |

use std::collections::BTreeSet;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::deliver::batch::Batch;
use crate::deliver::lane::{Halt, Lane};
use crate::error::ChannelError;
use crate::read::gap_search;
use crate::verify::reason::RejectionReason;
use crate::verify::recent::digest_of;
use ledger::{self, Change, Cursor, DeadLetter, Pending, PendingEvent, Proof, QuarantinedEvent};
use proof::event::{EventKey, Offset, RawEvent};
use record::{Message, Record};
use sink::{self, MAX_HELD, Position, Recorded, Resumed, Undelivered};

impl Lane {
    pub(super) async fn begin(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let (sink, lease) = (self.identity.sink.clone(), &self.shared.owned.leased.lease);
        if lease.is_shared()
            && self.settings.sink.is_local()
            && self.shared.look(|ledger| ledger.confirmed(&sink).is_some())
        {
            // Another instance may have recorded this confirmation for its own files.
            let to = Cursor { through: self.through };
            self.shared.commit(vec![Change::SetCursor { sink, to }]).await?;
        }
        self.resume_and_report(stop).await
    }

    /// Compares the sink's position without a delivery that follows.
    pub(super) async fn resume_and_report(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        self.resume(stop).await?;
        self.accepted();
        Ok(())
    }

    /// Waits until the sink allows the next delivery, and while the sink is paused. Then requests the sink's position if a
    /// delivery has failed.
    pub(super) async fn ready(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        // If `stop` fires, this wait ends early, and the next statement returns `Stopped`.
        let _ = stop.run_until_cancelled(self.turn()).await;
        self.until_active(stop).await?;
        if self.confirmed.is_some() && !self.is_sure {
            self.resume(stop).await?;
        }
        Ok(())
    }

    /// Requests the sink's position, and the events that the sink has beyond the recorded position.
    async fn resume(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let (recorded, Resumed { position, held, lost }) = loop {
            let recorded = self.recorded();
            match self.settings.sink.resume(&recorded).await {
                Ok(Resumed { position: Position::Missing(place), .. }) => self.missing(&place, stop).await?,
                Ok(resumed) => match self.unknown(&recorded, &resumed) {
                    Some(place) => self.missing(&place, stop).await?,
                    None => break (recorded, resumed),
                },
                Err(error) => self.refused(error, stop).await?,
            }
        };
        self.is_sure = true;
        let early_ack = self.settings.sink.early_ack().await;
        self.shared.channel.handle.board().lane(&self.identity.sink).status.early_ack = early_ack;
        let (position, has_lost) = match position {
            Position::At(position) => (position, self.compare(&recorded, position).await?),
            Position::Untracked | Position::Missing(_) => (None, false),
        };
        // The lost events above the position are delivered again in order.
        let lost: BTreeSet<_> = lost.into_iter().filter(|key| Some(key.offset) <= position).collect();
        // Settle the late events that the sink has, before new events are delivered: a sink looks for them only beyond the
        // recorded position. The commit that settles these events also moves the recorded position past them.
        for key in held.iter().filter(|key| recorded.pending.contains(key)) {
            let late = self.delivered_late(*key, None, Some(ledger::Confirmed { position, last: None }));
            // The sink may have written this event last. A file seems to have lost lines if it ends with another event.
            if !has_lost
                && Some(key.offset) <= position
                && let Some(ledger::Confirmed { last: Some(last), .. }) = &mut self.confirmed
            {
                *last = *key;
            }
            self.settle(*key, late).await?;
        }
        if has_lost {
            return self.move_back(position, lost).await;
        }
        if !lost.is_empty() {
            let mut changes = self.owe_again(&lost);
            // Without a confirmed last event, the next resume compares no late deliveries. These events may become dead letters, and
            // would otherwise be lost again at each resume.
            self.confirmed = self.confirmed.map(|confirmed| ledger::Confirmed { last: None, ..confirmed });
            changes.extend(self.confirm());
            self.shared.commit(changes).await?;
            self.report_refill(position, None, lost);
        }
        let highest = position.filter(|position| !self.has_passed(*position));
        let through = self.through;
        // If a table has too many events to name, some events at or below its position are unnamed.
        let names_all = held.len() < MAX_HELD;
        self.held.clear();
        for key in held.into_iter().filter(|key| Some(key.offset) > through) {
            // An event that the sink received after a higher one is a late delivery. See `delivered_below_position`.
            if self.held.last().is_none_or(|highest| key > *highest) {
                self.held.insert(key);
            }
        }
        let last_held = self.held.last().map(|key| key.offset);
        self.ahead = highest.filter(|_| names_all).max(last_held);
        // If an operator chose the cursor, the operator knows that the sink is ahead.
        if let Some(highest) = highest.max(last_held).filter(|_| recorded.confirmed.is_some()) {
            let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
            let (position, cursor) = (highest.get(), self.through.map(Offset::get));
            info!(%channel, %sink, position, cursor, "sink is ahead of the state: events that it has are not delivered again");
            self.shared.channel.handle.board().lane(sink).status.ahead = Some(highest);
        }
        Ok(())
    }

    fn recorded(&self) -> Recorded {
        let (owed, replayed, confirmed) = self.shared.look(|ledger| {
            let owed = || ledger.owed(&self.identity.sink);
            let is_replayed = |event: &PendingEvent| event.replayed_to.contains(&self.identity.sink);
            let replayed = owed().filter(|(_, event)| is_replayed(event)).map(|(key, _)| *key).collect();
            (owed().map(|(key, _)| *key).collect(), replayed, ledger.confirmed(&self.identity.sink))
        });
        let confirmed = confirmed.map(|ledger::Confirmed { position, last }| sink::Confirmed { position, last });
        let epoch = self.shared.owned.leased.lease.epoch;
        let (lane, late) = (self.identity.clone(), self.late_deliveries());
        Recorded { lane, epoch, through: self.through, pending: owed, replayed, confirmed, late }
    }

    /// Compares the sink's position with the recorded position. Returns whether the sink has lost data.
    async fn compare(&mut self, recorded: &Recorded, position: Option<Offset>) -> Result<bool, Halt> {
        let sink = self.identity.sink.clone();
        let Some(sink::Confirmed { position: before, last }) = recorded.confirmed else {
            // The cursor was set, and the sink has adopted it as its position.
            let confirmed = ledger::Confirmed { position, last: None };
            self.confirmed = Some(confirmed);
            self.shared.commit(vec![Change::Confirm { sink, confirmed }]).await?;
            return Ok(false);
        };
        // If a sink accepted a part of a delivery, its position is at least the last event of this part.
        let before = before.max(last.map(|last| last.offset));
        let has_lost = position < before;
        if !has_lost {
            self.confirmed = Some(ledger::Confirmed { position, last });
        }
        Ok(has_lost)
    }

    /// Moves the cursor back to the sink's position, because the sink has lost data. If the sink's position is still above
    /// the cursor, the cursor stays, because the events between the two are not recorded. The events in `lost` are below the
    /// position, and are delivered late again.
    async fn move_back(&mut self, position: Option<Offset>, lost: BTreeSet<EventKey>) -> Result<(), Halt> {
        let through = position.min(self.through);
        let (sink, to) = (self.identity.sink.clone(), Cursor { through });
        let confirmed = ledger::Confirmed { position, last: None };
        let mut changes = self.owe_again(&lost);
        changes.push(Change::SetCursor { sink: sink.clone(), to });
        changes.push(Change::Confirm { sink: sink.clone(), confirmed });
        self.shared.commit(changes).await?;
        self.shared.hub.detach(&sink);
        let before = self.through;
        (self.through, self.confirmed) = (through, Some(confirmed));
        self.held.clear();
        self.ahead = None;
        // If the position is above the cursor, the events between them are requested again.
        self.is_sure = position <= through;
        let channel = &self.identity.channel.name;
        warn!(%channel, %sink, position = position.map(Offset::get), delivered = before.map(Offset::get), "sink has lost data: more events were delivered than the sink has; it was probably restored from a backup; delivering the events above the sink's position again");
        self.accepted();
        self.shared.channel.handle.board().lane_recorded(&sink, through);
        self.report_refill(through, before, lost);
        Err(Halt::MovedBack)
    }

    /// Updates the confirmed position after a delivery. Does nothing if the sink stores no positions.
    pub(super) fn note_answer(&mut self, messages: &[Message], through: Offset, answer: &Result<(), Undelivered>) {
        let Some(confirmed) = &mut self.confirmed else { return };
        match answer {
            Ok(()) => {
                confirmed.position = confirmed.position.max(Some(through));
                let is_new = |message: &&Message| !self.held.contains(&message.event_key());
                let last = messages.iter().rfind(is_new).or(messages.last());
                confirmed.last = last.map(Message::event_key).or(confirmed.last);
            }
            Err(Undelivered { delivered, .. }) => {
                let last = messages[..*delivered].last().map(Message::event_key);
                confirmed.last = last.or(confirmed.last);
                self.is_sure = false;
            }
        }
    }

    /// Returns the change that records the position that the sink has confirmed, if this position is not recorded yet.
    pub(super) fn confirm(&self) -> Option<Change> {
        let (sink, confirmed) = (&self.identity.sink, self.confirmed?);
        let is_news = self.shared.look(|ledger| ledger.confirmed(sink) != Some(confirmed));
        is_news.then(|| Change::Confirm { sink: sink.clone(), confirmed })
    }

    pub(super) fn is_owed(&self, key: &EventKey) -> bool {
        self.shared.look(|ledger| ledger.owes(&self.identity.sink, key))
    }

    /// Moves the cursor to `through`. The same commit stores the pending and rejected events of the batch up to `through`,
    /// and the dead letter.
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
        let changes = || {
            let mut changes = if self.reads { self.found_in_gaps(batch, through) } else { Vec::new() };
            changes.extend(self.delivered_below_position(batch, through, letter.as_ref()));
            changes.extend(self.changes(batch, through, letter));
            changes
        };
        let recording = self.part(batch.trace_at(through), "record");
        recording.note("offset", through.get());
        shared.commit_with(changes).await?;
        drop(recording);
        let before = self.through.replace(through);
        self.shared.channel.handle.board().lane_recorded(&self.settings.name, Some(through));
        self.held.retain(|key| key.offset > through);
        self.ahead = self.ahead.filter(|ahead| *ahead > through);
        self.beyond.retain(|key| key.offset > through);
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        for (end, trace) in batch.parts.iter().skip_while(|(end, _)| Some(*end) <= before) {
            debug!(%channel, %sink, trace_id = %trace.id(), offset = end.min(&through).get(), "batch recorded");
            if *end >= through {
                break;
            }
        }
        Ok(())
    }

    /// Returns the changes for events that this lane found in gaps while it read for itself. Such an event was not yet
    /// visible when the range was read for the other lanes.
    fn found_in_gaps(&self, batch: &Batch, through: Offset) -> Vec<Change> {
        let raw = |EventKey { offset, id }, json| RawEvent { offset, id, json };
        let records = batch.records.iter().map(|record| raw(record.event_key(), record.event()));
        let pending = batch.pending.iter().map(|pending| raw(pending.event_key(), pending.json.clone()));
        let is_new = |event: &RawEvent| !self.has_passed(event.offset) && event.offset <= through;
        gap_search::found_by(&self.shared, Some(&self.identity.sink), records.chain(pending).filter(is_new))
    }

    fn changes(&self, batch: &Batch, through: Offset, letter: Option<DeadLetter>) -> Vec<Change> {
        let sink = &self.identity.sink;
        let new = |offset: Offset| !self.has_passed(offset) && offset <= through;
        let pending = || batch.pending.iter().filter(|pending| new(pending.offset));
        // A rejected event that is pending for this lane was released after the batch was read. It must not be rejected again.
        let is_released = |event: &&QuarantinedEvent| self.is_owed(&event.facts.event_key());
        let rejected = batch.rejected.iter().filter(|event| new(event.facts.offset) && !is_released(event));
        let records = || batch.records.iter().filter(|record| new(record.offset));
        // The late events that this batch delivers. The lane had passed them before an operator moved the cursor back.
        let repaid: Vec<EventKey> = self.shared.look(|ledger| {
            if ledger.late().is_empty() {
                return Vec::new();
            }
            records().map(|record| record.event_key()).filter(|key| ledger.owes(sink, key)).collect()
        });
        // The events of this batch that were quarantined before an operator accepted the service's history. The lanes that
        // have passed them must deliver them late.
        let accepted: Vec<Change> = self.shared.look(|ledger| {
            if ledger.quarantined().is_empty() || ledger.contradiction().is_some() {
                return Vec::new();
            }
            // A rejection that names an original is about the content under one id. Other bytes were rejected than were read now, so
            // only an operator may release it.
            let is_accepted = |key: &EventKey| {
                let facts = ledger.quarantined().get(key).filter(|facts| facts.original.is_none());
                facts.is_some_and(|facts| facts.reason == RejectionReason::Contradiction.name())
            };
            let (since, sinks) = (self.shared.channel.parts.machine.now(), ledger.cursors().keys());
            let release = |key| Change::Release { key, since, sinks: sinks.clone().cloned().collect() };
            let keys = records().map(|record| record.event_key()).chain(pending().map(Pending::event_key));
            let keys = keys.filter(is_accepted);
            keys.flat_map(|key| [release(key), Change::DropQuarantined(key)]).collect()
        });
        let owe = |event| Change::Owe { sink: sink.clone(), event };
        let settle = |key| Change::Settle { sink: sink.clone(), key };
        let given_up = letter.map(|letter| Change::GiveUp { sink: sink.clone(), letter });
        let delivered = records().filter_map(|record| proof(record)).collect();
        let asked = pending().next().map(|_| Change::Asked(self.shared.asked()));
        let known = batch.known_through(through).iter().filter(|event| new(event.key.offset)).copied().collect();
        let changes = asked.into_iter().chain(pending().cloned().map(owe)).chain(repaid.into_iter().map(settle));
        let changes = changes.chain(accepted).chain(rejected.cloned().map(Change::Quarantine)).chain(given_up);
        let advance = Change::Advance { sink: sink.clone(), to: Cursor { through: Some(through) } };
        let (recent, channel) = (&self.shared.channel.parts.recent, self.identity.channel.id);
        let workflows = self.shared.look(|ledger| recent.workflows.unrecorded(channel, ledger));
        let changes = changes.chain(workflows).chain([Change::Read(known), Change::Delivered(delivered), advance]);
        changes.chain(self.confirm()).collect()
    }

    /// Records that a late event is settled, and its outcome: the sink has accepted or excluded it, or it is a dead letter.
    pub(super) async fn settle(&mut self, key: EventKey, outcome: Vec<Change>) -> Result<(), ChannelError> {
        let settled = Change::Settle { sink: self.identity.sink.clone(), key };
        let changes = [settled].into_iter().chain(outcome);
        self.shared.commit(changes.chain(self.confirm()).collect()).await
    }

    /// Returns the proof that the ledger remembers when a late event is settled. The ledger remembers the newest proofs, and the
    /// proof of a replayed event is old. Must be called before the event is settled for the first time.
    pub(super) fn proof_of_late(&self, record: &Record) -> Option<Proof> {
        let (key, sink) = (record.event_key(), &self.identity.sink);
        let is_replayed =
            self.shared.look(|ledger| ledger.late().get(&key).is_some_and(|late| late.replayed_to.contains(sink)));
        proof(record).filter(|_| !is_replayed)
    }
}

fn proof(record: &Record) -> Option<Proof> {
    record.digest.map(|digest| Proof { digest: digest_of(&digest), offset: record.offset })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;
    use crate::Channel;
    use crate::channel::settings::LaneSettings;
    use crate::deliver::batch::{Cause, LateRecord};
    use crate::run::tests::{Receives, begun, channel, stuck};
    use ledger::{HISTORY, KnownEvent, Quarantined, Replay, SinkName};
    use record::testing::proved;

    /// Otherwise the search for late events would take the event for known, and the other sinks would never receive it.
    #[tokio::test]
    async fn a_pending_event_that_a_lane_finds_in_a_gap_is_late_for_the_other_lanes() {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let (shared, plan, _) = begun(&channel).await;
        let at = |offset| Offset::new(offset).unwrap();
        let (own, other) = (plan.lanes[0].name.clone(), SinkName::from("other"));
        let cursors = [(&own, 10), (&other, 12)]
            .map(|(sink, to)| Change::SetCursor { sink: sink.clone(), to: Cursor { through: Some(at(to)) } });
        shared.commit(cursors.into()).await.unwrap();
        shared.gaps.note(Some(at(10)), [(at(12), None)].into_iter(), Duration::from_secs(30));
        let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor { through: Some(at(10)) });
        lane.reads = true;
        let raw = RawEvent { offset: at(11), id: None, json: Bytes::from_static(b"{}") };
        let pending: Vec<Pending> = vec![channel.pending(&raw, channel.parts.machine.time(), false)];
        let trace = channel.parts.traces.begin("batch", &channel.identity, channel.parts.machine.time().into());
        let batch = Batch { pending, ..Batch::through(at(12), trace) };
        lane.record(&batch, at(12), None).await.unwrap();
        for sink in [own, other] {
            assert!(shared.look(|ledger| ledger.owes(&sink, &raw.event_key())), "{sink}");
        }
    }

    /// Otherwise the next lane that passes the event would record its proof once more.
    #[tokio::test]
    async fn the_history_remembers_the_last_event_of_a_delivery_that_ends_within_a_batch() {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let (shared, plan, _) = begun(&channel).await;
        let at = |offset| Offset::new(offset).unwrap();
        let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor { through: None });
        let trace = || channel.parts.traces.begin("batch", &channel.identity, channel.parts.machine.time().into());
        let mut batch = Batch::through(at(0), trace());
        let last = i64::try_from(3 * HISTORY).unwrap();
        for offset in 1..=last {
            let mut range = Batch::through(at(offset), trace());
            range.known.push(KnownEvent { key: event(offset).event_key(), previous: None, digest: None });
            batch.join(&range);
        }
        for through in [2, 3, last] {
            lane.record(&batch, at(through), None).await.unwrap();
            assert_eq!(shared.look(|ledger| ledger.history().last()), Some(at(through)));
        }
    }

    fn event(offset: i64) -> RawEvent {
        RawEvent { offset: Offset::new(offset).unwrap(), id: None, json: Bytes::from_static(b"{}") }
    }

    fn rejected(RawEvent { offset, id, json }: RawEvent, reason: RejectionReason) -> QuarantinedEvent {
        let (reason, detail, bytes) = (reason.name().to_owned(), String::new(), json.len() as u64);
        let (received, original, digest) = (None, None, None);
        let facts = Quarantined { offset, event_id: id, reason, detail, at: 0, received, original, digest, bytes };
        QuarantinedEvent { facts, json }
    }

    /// Records a batch through offset 12 on the lane `sink`, whose cursor is 10. The cursor of the sink `other` is 12. Returns the
    /// quarantined events, and the events that are pending for the two sinks.
    async fn recorded(before: Vec<Change>, fill: impl FnOnce(&mut Batch, &Channel)) -> (Vec<i64>, [Vec<i64>; 2]) {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let (shared, plan, _) = begun(&channel).await;
        let cursor = |at| Cursor { through: Offset::new(at) };
        let cursors =
            [("sink", 10), ("other", 12)].map(|(sink, at)| Change::SetCursor { sink: sink.into(), to: cursor(at) });
        shared.commit(cursors.into_iter().chain(before).collect()).await.unwrap();
        let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), cursor(10));
        let trace = channel.parts.traces.begin("batch", &channel.identity, channel.parts.machine.time().into());
        let mut batch = Batch::through(Offset::new(12).unwrap(), trace);
        fill(&mut batch, &channel);
        lane.record(&batch, batch.through, None).await.unwrap();
        shared.look(|ledger| {
            let pending = |sink| ledger.owed(sink).map(|(key, _)| key.offset.get()).collect();
            let quarantined = ledger.quarantined().keys().map(|key| key.offset.get()).collect();
            (quarantined, ["sink", "other"].map(pending))
        })
    }

    /// Otherwise the event would return to the quarantine although its reason is corrected, and the other sinks would receive
    /// the event twice.
    #[tokio::test]
    async fn a_batch_that_was_read_before_an_event_was_released_does_not_reject_the_event_again() {
        let [released, kept] = [11, 12].map(|at| rejected(event(at), RejectionReason::ProofTimeout));
        let (offset, key, json) = (released.facts.offset, released.facts.event_key(), Bytes::new());
        let pending = Pending { offset, event_id: None, first_seen: 0, received: None, appeared: false, json };
        let before = vec![
            Change::Quarantine(released.clone()),
            Change::Release { key, since: 0, sinks: vec!["other".into()] },
            Change::Owe { sink: "sink".into(), event: pending },
        ];
        let (quarantined, pending) = recorded(before, |batch, _| batch.rejected = vec![released, kept]).await;
        assert_eq!((quarantined, pending), (vec![12], [vec![11], vec![11]]));
    }

    /// Otherwise the event would stay in the quarantine after its delivery.
    #[tokio::test]
    async fn an_accepted_event_whose_proof_is_missing_leaves_the_quarantine() {
        let before = vec![Change::Quarantine(rejected(event(11), RejectionReason::Contradiction))];
        let (quarantined, pending) = recorded(before, |batch, channel| {
            batch.pending = vec![channel.pending(&event(11), channel.parts.machine.time(), false)];
        })
        .await;
        assert_eq!((quarantined, pending), (vec![], [vec![11], vec![11]]));
    }

    /// A lane that does not end in time is dropped. If it had closed the gap, the other sinks would never receive the event.
    #[tokio::test(start_paused = true)]
    async fn a_lane_closes_a_gap_only_when_its_commit_starts() {
        let (shared, plan) = stuck().await;
        let at = |offset| Offset::new(offset).unwrap();
        shared.gaps.note(Some(at(10)), [(at(12), None)].into_iter(), Duration::from_secs(30));
        let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor { through: Some(at(10)) });
        lane.reads = true;
        let raw = RawEvent { offset: at(11), id: None, json: Bytes::from_static(b"{}") };
        let pending = vec![shared.channel.pending(&raw, shared.channel.parts.machine.time(), false)];
        let trace = shared.channel.parts.traces.begin("batch", &lane.identity.channel, std::time::SystemTime::now());
        let batch = Batch { pending, ..Batch::through(at(12), trace) };
        assert!(lane.record(&batch, at(12), None).now_or_never().is_none());
        assert!(!gap_search::found_by(&shared, None, [raw].into_iter()).is_empty());
    }

    /// Otherwise a sink that has an event would not receive it again.
    #[tokio::test]
    async fn a_sink_learns_which_pending_events_are_replayed() {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let (shared, plan, _) = begun(&channel).await;
        let (sink, time) = (plan.lanes[0].name.clone(), channel.parts.machine.time());
        let event = |at| RawEvent { offset: Offset::new(at).unwrap(), id: None, json: Bytes::from_static(b"{}") };
        let [late, replayed, waiting] = [1, 2, 3].map(|at| channel.pending(&event(at), time, false));
        let to = Cursor { through: Some(waiting.offset) };
        let replay = Replay::new(vec![sink.clone()], late.offset, waiting.offset, 0);
        let other = SinkName::from("other");
        let owe = |sink: &SinkName, event: &Pending| Change::Owe { sink: sink.clone(), event: event.clone() };
        let events = vec![late.clone(), replayed.clone(), waiting.clone()];
        let changes = vec![
            Change::SetCursor { sink: sink.clone(), to },
            owe(&sink, &late),
            owe(&other, &waiting),
            Change::StartReplay(replay),
            Change::ReleaseReplayed { id: 1, next: None, events },
            // The other sink gave up on this event, and an operator has it delivered to this sink.
            owe(&other, &replayed),
        ];
        shared.commit(changes).await.unwrap();
        let [late, replayed, waiting] = [late, replayed, waiting].map(|event| event.event_key());
        let of_other = ([replayed, waiting].into(), BTreeSet::new());
        for (name, expected) in
            [(sink, ([late, replayed, waiting].into(), [replayed, waiting].into())), (other, of_other)]
        {
            let settings = LaneSettings { name, ..plan.lanes[0].clone() };
            let (lane, _) = Lane::new(shared.clone(), settings, to);
            let Recorded { pending, replayed: again, .. } = lane.recorded();
            assert_eq!((pending, again), expected, "{}", lane.identity.sink);
        }
    }

    /// Otherwise the proofs of late events would replace the proofs of other events in the ledger too soon.
    #[tokio::test]
    async fn the_lanes_record_the_proof_of_a_late_event_once() {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let (shared, plan, stop) = begun(&channel).await;
        let trace = channel.parts.traces.begin("late", &channel.identity, channel.parts.machine.time().into());
        let late = LateRecord::new(proved("", "{}"), Cause::Proof, trace);
        let (key, json) = (late.record.event_key(), late.record.event());
        let (raw, cursor) = (RawEvent { offset: key.offset, id: key.id, json }, Cursor { through: Some(key.offset) });
        for name in ["one", "two", "three"] {
            let sink = SinkName::from(name);
            let event = channel.pending(&raw, channel.parts.machine.time(), false);
            let passed = vec![Change::Owe { sink: sink.clone(), event }, Change::Advance { sink, to: cursor }];
            shared.commit(passed).await.unwrap();
        }
        for name in ["one", "two", "three"] {
            let settings = LaneSettings { name: name.into(), ..plan.lanes[0].clone() };
            let (mut lane, _) = Lane::new(shared.clone(), settings, cursor);
            assert!(lane.late(&late, &stop).await.is_ok(), "{name}");
        }
        assert!(shared.look(|ledger| ledger.late().is_empty()));
        drop(shared);
        let (_, proofs) = channel.parts.ledgers.claim(channel.identity.id, usize::MAX).await.unwrap().unwrap();
        assert_eq!(proofs.len(), 1, "{proofs:?}");
    }
}
