//! Handles a sink that has lost its position or late deliveries.
//!
//! A late delivery is below the sink's position, so the position does not tell whether the sink still has the event. The ledger
//! records the late deliveries of each lane. A sink that was restored from a backup names the late deliveries that it has lost,
//! and they become pending again. If the ledger has forgotten late deliveries since the backup, or the sink has no position, an
//! operator decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::deliver::batch::Batch;
use crate::deliver::lane::{Halt, Lane};
use crate::status::{Problem, Refill};
use ledger::{Change, Confirmed, Cursor, DeadLetter, LATE_DELIVERIES, LateDelivery, Pending, Proof};
use proof::event::{EventKey, Offset};
use record::Record;
use sink::{self, Position, Recorded, Resumed};

impl Lane {
    /// Returns the late deliveries that the ledger records.
    pub(super) fn late_deliveries(&self) -> Vec<sink::LateDelivery> {
        let of_sink = |&LateDelivery { event, after }: &LateDelivery| sink::LateDelivery { event, after };
        self.shared.look(|ledger| ledger.late_deliveries(&self.identity.sink).map(of_sink).collect())
    }

    /// Returns the changes that record a late delivery to a sink that has this position, and the proof of the event. For a sink
    /// without positions it cannot be found out what the sink has lost, so its late deliveries are not recorded.
    pub(super) fn delivered_late(
        &self,
        key: EventKey,
        proved: Option<Proof>,
        confirmed: Option<Confirmed>,
    ) -> Vec<Change> {
        let sink = self.identity.sink.clone();
        let note = |Confirmed { position, .. }| Change::NoteLateDelivery {
            sink,
            delivery: LateDelivery { event: key, after: position },
        };
        let noted = confirmed.filter(|_| self.is_owed(&key)).map(note);
        noted.into_iter().chain(proved.map(Change::DeliveredLate)).collect()
    }

    /// Returns the changes that record late deliveries: the events of this batch at or below [`ahead`](Self::ahead) that the sink
    /// did not have when its position was requested. Before a crash, for example, the sink moved its position past a pending event,
    /// and the daemon could not commit that. Now the proof has arrived, and the position does not tell that the sink has the event.
    pub(super) fn delivered_below_position(
        &self,
        batch: &Batch,
        through: Offset,
        letter: Option<&DeadLetter>,
    ) -> Vec<Change> {
        let (Some(ahead), Some(confirmed)) = (self.ahead, self.confirmed) else { return Vec::new() };
        let (after, given_up) = (confirmed.position.max(Some(ahead)), letter.map(|letter| letter.facts.event_key()));
        let is_new = |record: &&Arc<Record>| !self.has_passed(record.offset) && record.offset <= through;
        let records = batch.records.iter().filter(is_new).filter(|record| self.settings.takes(record));
        let delivered = records.map(|record| record.event_key()).filter(|key| Some(*key) != given_up);
        let late = delivered.filter(|key| key.offset <= ahead && !self.held.contains(key));
        late.map(|event| Change::NoteLateDelivery {
            sink: self.identity.sink.clone(),
            delivery: LateDelivery { event, after },
        })
        .collect()
    }

    /// If a sink was restored, and some of the late deliveries that it has lost are unknown or cannot be requested, returns the
    /// reason as a text for [`missing`](Self::missing).
    pub(super) fn unknown(&self, recorded: &Recorded, Resumed { position, lost, .. }: &Resumed) -> Option<String> {
        let Position::At(position) = *position else { return None };
        if let Some(EventKey { offset, .. }) = lost.iter().find(|key| key.id.is_none()) {
            return Some(format!("the sink has lost the event at offset {offset}, which has no id to request it by"));
        }
        let has_lost = recorded.confirmed.is_some_and(|confirmed| position < confirmed.position) || !lost.is_empty();
        let sink = &self.identity.sink;
        if !has_lost || self.shared.look(|ledger| ledger.knows_late_deliveries_since(sink, position)) {
            return None;
        }
        let position = Cursor { through: position };
        Some(format!(
            "the sink ends at offset {position}, and more than {LATE_DELIVERIES} events below that offset were delivered late since, so the lost ones are unknown"
        ))
    }

    /// Handles a sink that stores positions but has none for this lane. Waits until an operator accepts the sink as it is.
    pub(super) async fn missing(&mut self, place: &str, stop: &CancellationToken) -> Result<(), Halt> {
        let (channel, sink) = (self.identity.channel.name.clone(), self.identity.sink.clone());
        let cursor = Cursor { through: self.through };
        let message = format!(
            "{place}, although events up to offset {cursor} were delivered: the sink's data was dropped, purged or replaced. Nothing is \
             delivered until you decide. To deliver again, from the start or another offset: `channeld pause {channel}`, \
             `channeld cursor set {channel} --sink {sink} --to earliest --yes` (or `--to OFFSET`), `channeld resume {channel}`. To \
             accept the sink as it is and continue above {cursor}: `channeld resume {channel} --sink {sink} --accept-loss`"
        );
        error!(%channel, %sink, reason = message, "sink has no position: nothing is delivered until an operator decides");
        let problem = Problem::new(Problem::POSITION_MISSING, message, true);
        let handle = self.shared.channel.handle.clone();
        handle.board().lane_problem(&sink, Some(problem.clone()));
        handle.sink_is_gone(&sink, problem);
        self.until_active(stop).await?;
        // This change removes the earlier confirmation, so that the sink adopts the cursor as its position.
        self.shared.commit(vec![Change::SetCursor { sink: sink.clone(), to: cursor }]).await?;
        handle.board().lane_problem(&sink, None);
        info!(%channel, %sink, cursor = self.through.map(Offset::get), "an operator has accepted the sink's contents");
        Ok(())
    }

    /// Reports that the events above `above` up to `to`, and those in `lost`, are delivered again.
    pub(super) fn report_refill(&self, above: Option<Offset>, to: Option<Offset>, lost: BTreeSet<EventKey>) {
        let first = lost.first().map(|key| key.offset.before());
        let to = to.max(lost.last().map(|key| key.offset));
        let above = first.map_or(above, |first| above.min(first));
        let mut board = self.shared.channel.handle.board();
        let lane = board.lane(&self.identity.sink);
        let to = lane.status.refill.map(|refill| refill.to).max(to);
        lane.status.refill = to.map(|to| Refill { above, to });
        lane.lost = lost;
    }

    /// Returns the changes that make lost events pending again.
    pub(super) fn owe_again(&self, lost: &BTreeSet<EventKey>) -> Vec<Change> {
        let Some(first) = lost.first() else { return Vec::new() };
        let (channel, sink, offset) = (&self.identity.channel.name, &self.identity.sink, first.offset.get());
        warn!(%channel, %sink, events = lost.len(), offset, "sink has lost events that were delivered late: it was probably restored from a backup; delivering them again");
        let first_seen = self.shared.channel.parts.machine.now();
        let event = |key: &EventKey| {
            let (offset, event_id, received, appeared, json) = (key.offset, key.id, None, false, Bytes::new());
            Pending { offset, event_id, first_seen, received, appeared, json }
        };
        let owe = |key| Change::Owe { sink: sink.clone(), event: event(key) };
        [Change::Asked(self.shared.asked())].into_iter().chain(lost.iter().map(owe)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use async_trait::async_trait;

    use super::*;
    use crate::run::tests::{begun, channel, run_for};
    use proof::event::EventId;
    use sink::{Delivery, Sink, SinkError, Undelivered};
    use uuid::Uuid;

    /// A sink that is restored after its first delivery, and then lacks this event.
    #[derive(Debug)]
    struct RestoredSink {
        lost: EventKey,
        offers: AtomicUsize,
    }

    #[async_trait]
    impl Sink for RestoredSink {
        async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
            let lost = if self.offers.load(Relaxed) > 1 { BTreeSet::from([self.lost]) } else { BTreeSet::new() };
            Ok(Resumed { position: Position::At(recorded.through), held: Vec::new(), lost })
        }

        async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
            match self.offers.fetch_add(1, Relaxed) {
                1 => Err(Undelivered::after(0, SinkError::Displaced("it was restored".to_owned()))),
                _ => Ok(()),
            }
        }
    }

    fn key(offset: i64, id: Option<u128>) -> EventKey {
        EventKey { offset: Offset::new(offset).unwrap(), id: id.map(|id| EventId(Uuid::from_u128(id))) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_restored_sink_that_lost_an_event_without_an_id_is_blocked() {
        for (id, offers) in [(None, 2), (Some(1), 3)] {
            let sink = Arc::new(RestoredSink { lost: key(1, id), offers: AtomicUsize::default() });
            let (channel, handle) = channel(20, sink.clone());
            run_for(&channel, Duration::from_secs(600), &CancellationToken::new()).await;
            assert!(sink.offers.load(Relaxed) >= offers, "{id:?}");
            let gone = handle.pauses().gone.get("sink").cloned();
            if id.is_some() {
                assert!(gone.is_none(), "{gone:?}");
                continue;
            }
            let Problem { kind, message, needs_attention, .. } = gone.unwrap();
            assert!(kind == Problem::POSITION_MISSING && needs_attention, "{kind}");
            assert!(message.starts_with("the sink has lost the event at offset 1, which has no id"), "{message}");
            assert_eq!(sink.offers.load(Relaxed), offers, "nothing is delivered before an operator decides");
        }
    }

    #[tokio::test]
    async fn a_lost_event_that_was_given_up_is_not_delivered_again_at_the_next_resume() {
        /// A sink whose late delivery is lost, until another event is written.
        #[derive(Debug)]
        struct LacksOne;

        #[async_trait]
        impl Sink for LacksOne {
            async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
                let is_written = recorded.confirmed.is_some_and(|confirmed| confirmed.last.is_some());
                let lost = if is_written { BTreeSet::from([key(1, Some(1))]) } else { BTreeSet::new() };
                Ok(Resumed { position: Position::At(recorded.through), held: Vec::new(), lost })
            }

            async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
                Ok(())
            }
        }

        let (channel, _) = channel(0, Arc::new(LacksOne));
        let (shared, plan, stop) = begun(&channel).await;
        let (sink, lost) = (plan.lanes[0].name.clone(), key(1, Some(1)));
        let position = Some(lost.offset);
        let to = Cursor { through: position };
        let confirmed = Confirmed { position, last: Some(lost) };
        let change = Change::Confirm { sink: sink.clone(), confirmed };
        shared.commit(vec![Change::SetCursor { sink: sink.clone(), to }, change]).await.unwrap();
        let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), to);
        for is_lost in [true, false] {
            assert!(lane.resume_and_report(&stop).await.is_ok());
            assert_eq!(shared.look(|ledger| ledger.owes(&sink, &lost)), is_lost);
            shared.commit(vec![Change::Settle { sink: sink.clone(), key: lost }]).await.unwrap();
        }
    }

    /// Otherwise a file that ends with this event would seem to have lost lines.
    #[tokio::test]
    async fn a_pending_event_that_the_sink_has_is_recorded_as_its_last_event() {
        /// A sink that has received a pending event. A crash prevented the commit.
        #[derive(Debug)]
        struct HasOne(EventKey);

        #[async_trait]
        impl Sink for HasOne {
            async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
                let position = recorded.confirmed.map_or(recorded.through, |confirmed| confirmed.position);
                Ok(Resumed { position: Position::At(position), held: vec![self.0], lost: BTreeSet::new() })
            }

            async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
                Ok(())
            }
        }

        let (earlier, late, at) = (key(3, None), key(4, None), |offset| Offset::new(offset).unwrap());
        // In the second case, the sink's position does not include the event. In the third case, nothing was written since an
        // operator chose the cursor.
        for (position, last, expected) in
            [(7, Some(earlier), Some(late)), (3, Some(earlier), Some(earlier)), (7, None, None)]
        {
            let (channel, _) = channel(0, Arc::new(HasOne(late)));
            let (shared, plan, stop) = begun(&channel).await;
            let (sink, to) = (plan.lanes[0].name.clone(), Cursor { through: Some(at(7)) });
            let (first_seen, json) = (channel.parts.machine.now(), Bytes::from_static(b"{}"));
            let (offset, event_id) = (late.offset, late.id);
            let event = Pending { offset, event_id, first_seen, received: None, appeared: false, json };
            let confirmed = Confirmed { position: Some(at(position)), last };
            let changes = vec![
                Change::SetCursor { sink: sink.clone(), to },
                Change::Owe { sink: sink.clone(), event },
                Change::Confirm { sink: sink.clone(), confirmed },
            ];
            shared.commit(changes).await.unwrap();
            let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), to);
            assert!(lane.resume_and_report(&stop).await.is_ok());
            assert!(!shared.look(|ledger| ledger.owes(&sink, &late)), "{position}");
            let expected = Confirmed { last: expected, ..confirmed };
            assert_eq!(shared.look(|ledger| ledger.confirmed(&sink)), Some(expected), "{position}");
        }
    }

    /// The sink's position also covers events that were pending, and a crash prevented the commit. If the sink is restored after
    /// it has received such an event, its position does not tell that it lacks the event.
    #[tokio::test]
    async fn an_event_at_or_below_the_sinks_unrecorded_position_is_a_late_delivery() {
        /// A sink without events that has this position.
        #[derive(Debug)]
        struct Ahead(i64);

        #[async_trait]
        impl Sink for Ahead {
            async fn resume(&self, _: &Recorded) -> Result<Resumed, SinkError> {
                Ok(Resumed { position: Position::At(Offset::new(self.0)), ..Resumed::default() })
            }

            async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
                Ok(())
            }
        }

        let record = Arc::new(record::testing::proved("", "{}"));
        let (key, through) = (record.event_key(), Offset::new(9).unwrap());
        for (position, late) in [(8, true), (5, true), (4, false)] {
            let (channel, _) = channel(0, Arc::new(Ahead(position)));
            let (shared, plan, stop) = begun(&channel).await;
            let sink = plan.lanes[0].name.clone();
            let confirmed = Confirmed::default();
            let changes = [
                Change::SetCursor { sink: sink.clone(), to: Cursor::default() },
                Change::Confirm { sink: sink.clone(), confirmed },
            ];
            shared.commit(changes.into()).await.unwrap();
            let (mut lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor::default());
            assert!(lane.resume_and_report(&stop).await.is_ok());
            let trace = channel.parts.traces.begin("batch", &channel.identity, channel.parts.machine.time().into());
            let batch = Batch { records: vec![record.clone()], ..Batch::through(through, trace) };
            lane.record(&batch, through, None).await.unwrap();
            let deliveries = shared.look(|ledger| ledger.late_deliveries(&sink).copied().collect::<Vec<_>>());
            let delivery = LateDelivery { event: key, after: Offset::new(position) };
            assert_eq!(deliveries, if late { vec![delivery] } else { vec![] }, "{position}");
        }
    }

    #[tokio::test]
    async fn forgotten_late_deliveries_are_unknown_to_a_sink_that_was_restored() {
        let sink = RestoredSink { lost: key(1, Some(1)), offers: AtomicUsize::default() };
        let (channel, _) = channel(0, Arc::new(sink));
        let (shared, plan, _) = begun(&channel).await;
        let at = |offset| Offset::new(offset).unwrap();
        let late = |number: usize| {
            let (event, after) = (key(1, Some(1)), Some(at(10 + i64::try_from(number).unwrap())));
            Change::NoteLateDelivery { sink: "sink".into(), delivery: LateDelivery { event, after } }
        };
        shared.commit((0..=LATE_DELIVERIES).map(late).collect()).await.unwrap();
        let (lane, _) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor::default());
        // The first of the late deliveries is forgotten, and the second one was made at offset 11.
        for (position, lost, is_unknown) in [
            (10, None, true),
            (11, None, true),
            (12, None, false),
            (2_000, None, false),
            (2_000, Some(1), false),
            (10, Some(1), true),
        ] {
            let confirmed = Some(sink::Confirmed { position: Some(at(1_500)), last: None });
            let recorded = Recorded {
                lane: lane.identity.clone(),
                epoch: 1,
                through: Some(at(1_500)),
                pending: BTreeSet::new(),
                replayed: BTreeSet::new(),
                confirmed,
                late: lane.late_deliveries(),
            };
            let lost = lost.map(|id| key(1, Some(id))).into_iter().collect();
            let resumed = Resumed { position: Position::At(Some(at(position))), held: Vec::new(), lost };
            let unknown = lane.unknown(&recorded, &resumed);
            assert_eq!(unknown.is_some(), is_unknown, "{position}: {unknown:?}");
            assert!(unknown.is_none_or(|why| why.contains("more than 1000 events below that offset")), "{position}");
        }
    }
}
