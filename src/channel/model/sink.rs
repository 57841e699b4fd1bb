//! Sinks that accept events according to the history, and remember the accepted events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use ledger::Cursor;
use ledger::testing::Disk;
use proof::event::{EventKey, Offset};
use record::{ChannelRef, Message};
use sink::{Delivery, Fault, LaneRef, Position, Recorded, Resumed, Sink, SinkError, Undelivered};

use super::expect::{Fate, recorded};
use super::history::{EventKind, SinkPlan, SinkTrouble};
use super::world::{Inner, Step, World, wait};
use super::{pool, sink_name};

#[derive(Debug)]
pub(super) struct RecordingSink {
    pub(super) world: Arc<World>,
    pub(super) lane: usize,
}

/// The events that a lane's sink has accepted.
#[derive(Debug, Default)]
pub(super) struct AcceptedEvents {
    /// How often each event was accepted, by offset.
    pub(super) times: BTreeMap<Offset, usize>,
    /// The events that may be delivered again, because they were not recorded when a run ended.
    pub(super) may_repeat: BTreeMap<Offset, usize>,
    /// How often each event may be delivered again because of replays.
    pub(super) replaying: BTreeMap<Offset, usize>,
    /// The events of replays that were not delivered again yet.
    pub(super) must_repeat: BTreeSet<Offset>,
    /// The highest offset of the events that arrived in order.
    last: Option<Offset>,
    offers: usize,
    unusable: usize,
    refuses_until: Option<Instant>,
    busy: bool,
    /// The sink's own position, if the sink keeps positions. `None` before the first run.
    position: Option<Cursor>,
    /// The events that the sink accepted, each with the position at that time.
    rows: Vec<(EventKey, Option<Offset>)>,
    /// The events that the sink has lost and has not received again.
    pub(super) lost: BTreeSet<Offset>,
    /// The replacement events of a restored service that the sink accepted.
    renewed: BTreeSet<Offset>,
}

impl AcceptedEvents {
    /// Begins a run.
    pub(super) fn begin(&mut self) {
        (self.busy, self.unusable) = (false, 0);
    }

    fn holds(&self, key: &EventKey) -> bool {
        self.rows.iter().any(|(row, _)| row == key)
    }

    /// Removes at most this number of the last events. A sink cannot tell that it has lost late deliveries if it still has its
    /// confirmed position, so no late delivery is removed then.
    fn lose(&mut self, events: usize, confirmed: Option<Offset>) -> usize {
        let is_noticed = |lost: &[(EventKey, Option<Offset>)]| {
            lost.first().is_none_or(|(_, position)| *position < confirmed)
                || lost.iter().all(|(row, position)| Some(row.offset) > *position)
        };
        let all = self.rows.len();
        let left = (all.saturating_sub(events)..all).find(|left| is_noticed(&self.rows[*left..])).unwrap_or(all);
        let lost = all - left;
        for (row, position) in self.rows.drain(left..).rev() {
            let row = row.offset;
            self.position = Some(Cursor { through: position });
            self.times.remove(&row);
            self.may_repeat.remove(&row);
            self.lost.insert(row);
        }
        self.last = self.rows.iter().map(|(row, _)| row.offset).max();
        lost
    }
}

impl World {
    /// Makes sinks lose events according to the history, before the run with this number.
    pub(super) fn lose(&self, disk: &Disk, run: usize) {
        for (_, lane, events) in self.history.losses.iter().filter(|(before, ..)| *before == run) {
            let confirmed = recorded(disk).confirmed(&sink_name(*lane));
            let confirmed =
                confirmed.and_then(|confirmed| confirmed.position.max(confirmed.last.map(|last| last.offset)));
            let mut inner = self.lock();
            let Some(taken) = inner.lanes.get_mut(*lane) else { continue };
            let lost = taken.lose(*events, confirmed);
            inner.totals.lost += lost as u64;
            drop(inner);
            self.log(|| format!("sink {lane} loses {lost} events"));
        }
    }
}

impl Inner {
    /// Returns whether a sink has the event that the service now has under this number.
    pub(super) fn has(&self, lane: &AcceptedEvents, at: usize, offset: Offset) -> bool {
        if self.renewed_at(at).is_some() { lane.renewed.contains(&offset) } else { lane.times.contains_key(&offset) }
    }
}

impl World {
    /// Acts as the operator who requests the events above an offset again, and accepts the new events of the service there.
    pub(super) fn accept(&self, above: Option<Offset>) {
        self.log(|| format!("an operator accepts the events above {above:?}"));
        let mut inner = self.lock();
        inner.accepted = true;
        let first = (0..self.offsets.len()).find(|at| inner.renewed_at(*at).is_some());
        let first = first.map(|first| self.offsets[first]);
        for lane in &mut inner.lanes {
            lane.times.retain(|offset, _| first.is_none_or(|first| *offset < first));
            lane.may_repeat
                .extend(lane.times.keys().filter(|offset| Some(**offset) > above).map(|offset| (*offset, 1)));
            lane.last = lane.last.min(above);
        }
    }
}

#[async_trait]
impl Sink for RecordingSink {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let mut inner = self.world.lock();
        let taken = &mut inner.lanes[self.lane];
        taken.unusable += 1;
        if taken.unusable <= self.plan().unusable {
            return Err(refusal(0));
        }
        if !self.plan().keeps {
            return Ok(Resumed::default());
        }
        if recorded.confirmed.is_none() {
            taken.position = Some(Cursor { through: recorded.through });
        }
        let position = taken.position;
        let missing = || Position::Missing("here".to_owned());
        let position = position.map_or_else(missing, |position| Position::At(position.through));
        let rows = taken.rows.iter().map(|(row, _)| *row);
        let held = rows.filter(|row| !recorded.covers(row)).collect();
        let mut lost = BTreeSet::new();
        if let Position::At(position) = position
            && recorded.confirmed.is_some_and(|confirmed| position < confirmed.position)
        {
            let late = recorded.late.iter().filter(|delivery| delivery.after >= position);
            lost = late.map(|delivery| delivery.event).filter(|event| !taken.holds(event)).collect();
        }
        Ok(Resumed { position, held, lost })
    }

    async fn position(&self, _: &LaneRef) -> Result<Position, SinkError> {
        let position = self.world.lock().lanes[self.lane].position;
        let position = position.filter(|_| self.plan().keeps);
        Ok(position.map_or(Position::Untracked, |position| Position::At(position.through)))
    }

    fn at_once(&self) -> usize {
        self.plan().at_once
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let Delivery { lane, through, messages: batch, .. } = *delivery;
        let (offer, until) = self.begin();
        self.world.log(|| format!("sink {} is offered {:?}", self.lane, offsets(batch)));
        self.world.step(Step::Offer, batch.len()).await;
        self.look_at(&lane.channel, through, batch);
        wait(&self.plan().delays, offer).await;
        let trouble = self.plan().troubles.iter().find(|(at, _)| *at == offer).map(|(_, trouble)| *trouble);
        let takes = match trouble {
            _ if until.is_some_and(|until| Instant::now() < until) => 0,
            None => batch.len(),
            Some(SinkTrouble::Takes(some)) => some.min(batch.len()),
            Some(SinkTrouble::Hangs(seconds)) => {
                sleep(Duration::from_secs(seconds)).await;
                batch.len()
            }
            Some(SinkTrouble::Refuses(seconds)) => {
                let until = Instant::now() + Duration::from_secs(seconds);
                self.world.lock().lanes[self.lane].refuses_until = Some(until);
                0
            }
        };
        self.world.goes_on().await;
        if self.plan().keeps && self.world.lock().lanes[self.lane].position != Some(Cursor { through: delivery.after })
        {
            self.world.lock().lanes[self.lane].busy = false;
            return Err(Undelivered::after(0, SinkError::Displaced("its position has changed".to_owned())));
        }
        let (first, second) = batch[..takes].split_at(takes / 2);
        if !first.is_empty() {
            self.take(first);
            self.world.step(Step::PartTaken, takes).await;
        }
        self.take(second);
        self.world.step(Step::Taken, takes).await;
        self.world.lock().lanes[self.lane].busy = false;
        if takes == batch.len() {
            self.move_to(through);
            return Ok(());
        }
        self.world.log(|| format!("sink {} takes {takes} of {}", self.lane, batch.len()));
        Err(Undelivered::after(takes, refusal(offer)))
    }
}

impl RecordingSink {
    fn plan(&self) -> &SinkPlan {
        &self.world.history.sinks[self.lane]
    }

    /// Begins an offer. Returns its number, and the time until which the sink accepts nothing.
    fn begin(&self) -> (usize, Option<Instant>) {
        let mut inner = self.world.lock();
        let taken = &mut inner.lanes[self.lane];
        let busy = std::mem::replace(&mut taken.busy, true);
        let offer = taken.offers;
        taken.offers += 1;
        let until = taken.refuses_until;
        drop(inner);
        if self.world.is_overtaken() {
            self.fail(|| "was offered a batch by an instance that has lost the channel".to_owned());
        }
        if busy {
            self.fail(|| "was offered a batch before it had finished the previous one".to_owned());
        }
        (offer, until)
    }

    fn fail(&self, what: impl FnOnce() -> String) {
        self.world.fail(|| format!("sink {} {}", self.lane, what()));
    }

    fn look_at(&self, channel: &ChannelRef, through: Offset, batch: &[Message]) {
        if batch.is_empty() || batch.len() > self.plan().at_once || !batch.is_sorted_by_key(Message::offset) {
            self.fail(|| format!("was offered {:?}", offsets(batch)));
        }
        if batch.last().is_some_and(|last| last.offset() > through) {
            self.fail(|| format!("was offered {:?}, through {through}", offsets(batch)));
        }
        if channel.id != pool::channel() {
            self.fail(|| "was offered another channel's events".to_owned());
        }
    }

    /// Sets the position of a sink that keeps positions.
    fn move_to(&self, through: Offset) {
        let mut inner = self.world.lock();
        let position = &mut inner.lanes[self.lane].position;
        *position = position.map(|position| position.max(Cursor { through: Some(through) }));
    }

    fn take(&self, records: &[Message]) {
        for record in records {
            let (offset, id) = (record.offset(), record.record().event_id);
            let key = EventKey { offset, id };
            if !self.plan().keeps {
                self.take_one(record);
                continue;
            }
            if !self.world.lock().lanes[self.lane].holds(&key) {
                self.take_one(record);
                let mut inner = self.world.lock();
                let taken = &mut inner.lanes[self.lane];
                taken.rows.push((key, taken.position.and_then(|position| position.through)));
                taken.lost.remove(&offset);
            }
            self.move_to(offset);
        }
    }

    fn take_one(&self, record: &Message) {
        let offset = record.offset();
        if let Err(what) = self.world.is_deliverable(self.lane, record) {
            self.fail(|| format!("received {offset}, {what}"));
        }
        let mut inner = self.world.lock();
        inner.totals.deliveries += 1;
        if record.record().event_id == Some(pool::renewed_id(offset)) {
            inner.lanes[self.lane].renewed.insert(offset);
            drop(inner);
            self.world.log(|| format!("sink {} takes the other {offset}", self.lane));
            return;
        }
        let at = self.world.offsets.binary_search(&offset);
        let late = at.is_ok_and(|at| inner.seen[at].bare.is_some()) && !self.world.history.strict;
        let late = late || at.is_ok_and(|at| self.world.history.hidden_for(at).is_some());
        // If one run rejected an event and the next run admits it, the event can arrive after later events.
        let anew = at.is_ok_and(|at| self.world.fate(&inner, at) == Fate::Either);
        let taken = &mut inner.lanes[self.lane];
        let times = taken.times.entry(offset).or_default();
        *times += 1;
        taken.must_repeat.remove(&offset);
        let mut wrong = None;
        if *times > 1 {
            let repeats = taken.may_repeat.get_mut(&offset).filter(|times| **times > 0);
            match repeats.or_else(|| taken.replaying.get_mut(&offset).filter(|times| **times > 0)) {
                Some(times) => *times -= 1,
                None => wrong = Some("again, although it was recorded or no run broke off"),
            }
            inner.totals.duplicates += 1;
        } else if late || anew {
            inner.totals.late += u64::from(late);
        } else {
            if taken.last > Some(offset) {
                wrong = Some("out of its order");
            }
            taken.last = taken.last.max(Some(offset));
        }
        drop(inner);
        self.world.log(|| format!("sink {} takes {offset}", self.lane));
        if let Some(wrong) = wrong {
            self.fail(|| format!("received {offset} {wrong}"));
        }
    }
}

impl World {
    /// Checks that a lane may deliver this record, in this form, to its sink.
    fn is_deliverable(&self, lane: usize, record: &Message) -> Result<(), &'static str> {
        let offset = record.offset();
        let at = self.offsets.binary_search(&offset).map_err(|_| "which does not exist")?;
        let first = self.history.start.and_then(|start| self.offsets.get(start));
        if first.is_some_and(|first| offset < *first) {
            return Err("from before the start");
        }
        if self.is_below_limit(lane, at) {
            return Err("which has less confidence than the sink demands");
        }
        let is_renewed = record.record().event_id == Some(pool::renewed_id(offset));
        if is_renewed && self.lock().renewed_at(at).is_none_or(|since| Instant::now() < since) {
            return Err("which the service does not have");
        }
        let (kind, proved) = (self.history.events[at].kind, record.record().is_verified());
        match kind {
            EventKind::Notice if self.history.drop_notices => return Err("a notice"),
            EventKind::Notice if proved => return Err("a notice, as proved"),
            EventKind::Notice => {}
            EventKind::Never => return Err("which was never proved"),
            EventKind::Forged(_) | EventKind::LateForged(_) => return Err("which is forged"),
            _ if !proved => return Err("without its proof"),
            _ => {}
        }
        let form = if is_renewed { pool::Form::Renewed } else { self.history.form_delivered(&self.offsets, at) };
        let raw = pool::record(offset, form);
        let json = record.body().strip_suffix(b"}").is_some_and(|rest| rest.ends_with(&raw.json));
        if !json || record.record().event_id != raw.id {
            return Err("with other content");
        }
        Ok(())
    }
}

fn offsets(batch: &[Message]) -> Vec<i64> {
    batch.iter().map(|record| record.offset().get()).collect()
}

/// Returns one of the two kinds of refusal, in rotation.
fn refusal(number: usize) -> SinkError {
    if number.is_multiple_of(2) {
        return SinkError::Refused {
            message: "as the history says".to_owned(),
            retry_after: None,
            fault: Fault::Target,
        };
    }
    SinkError::io("writing", std::io::Error::other("as the history says"))
}
