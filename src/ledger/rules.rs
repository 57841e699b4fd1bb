//! The rules of a ledger: the effect of each change on the state of a channel, and the entries that record this state.

use std::collections::BTreeMap;

use litemap::LiteMap;

use proof::event::{EventKey, Offset};

use crate::StateError;

mod commit;
mod entry;
mod history;
mod key;
mod late;
mod replay;

pub use commit::{Change, Commit, DeadLetter, Effects, Pending, QuarantinedEvent, Refusal, Summary};
pub use entry::{
    Blocker, Confirmed, Cursor, DEAD_LETTERS, DeadLetterFacts, EventLocation, LATE, Pause, Paused, PendingEvent,
    QUARANTINE, Quarantined, QuarantinedDuplicates, ReplayId, Room, ShownWorkflow, SinkName, WORKFLOWS, WorkflowId,
};
pub(crate) use entry::{UnreadableValue, decode, encode};
pub use history::{Contradiction, Digest, HISTORY, History, KnownEvent, Proof};
pub(crate) use key::{Changes, MovedEntry, rekey};
pub use key::{Entries, Key, OtherKey, Table, Value};
pub use late::{LATE_DELIVERIES, LateDelivery};
pub use replay::{REPLAYS, Replay, ReplayState};

use entry::OweReason;
use history::{Chunks, digest_from};
use late::LateDeliveries;
use replay::Replays;

/// The state of one channel.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Not in a `BTreeMap`, which reserves room for eleven sinks: most channels have one. The same applies to `confirmed`.
    cursors: LiteMap<SinkName, Cursor>,
    confirmed: LiteMap<SinkName, Confirmed>,
    late: BTreeMap<EventKey, PendingEvent>,
    late_deliveries: LateDeliveries,
    quarantined: BTreeMap<EventKey, Quarantined>,
    dead_letters: BTreeMap<(EventKey, SinkName), DeadLetterFacts>,
    history: History,
    contradiction: Option<Contradiction>,
    asked: u64,
    blocker: Option<Blocker>,
    paused: Paused,
    proofs: Chunks,
    workflows: BTreeMap<WorkflowId, ShownWorkflow>,
    replays: Replays,
    version: u64,
    /// The result of [`held_back`](Self::held_back), limited to quarantined events whose `original` is recorded. The
    /// store publishes this list to other instances.
    shown_before: Vec<QuarantinedDuplicates>,
}

impl Ledger {
    /// Loads the entries of a channel. Also returns the proofs that the entries record as delivered, oldest first. The
    /// ledger remembers at most `proofs` of them.
    ///
    /// # Errors
    /// [`StateError::UnreadableEntry`].
    pub fn load(entries: Entries, proofs: usize) -> Result<(Self, Vec<Proof>), StateError> {
        let mut ledger = Self { proofs: Chunks::remembering(proofs), ..Self::default() };
        let mut delivered = Vec::new();
        for (key, value) in entries {
            ledger.add(&key, value, &mut delivered).map_err(|error| key.unreadable(error))?;
        }
        ledger.shown_before = ledger.held_back(|_| None);
        Ok((ledger, delivered))
    }

    /// Adds an entry from the store. Proofs are added to `delivered`.
    fn add(&mut self, key: &Key, value: Value, delivered: &mut Vec<Proof>) -> Result<(), UnreadableValue> {
        match (key, value) {
            (Key::Cursor(sink), Value::Bytes(value)) => drop(self.cursors.insert(sink.clone(), decode(&value)?)),
            (Key::Confirmed(sink), Value::Bytes(value)) => drop(self.confirmed.insert(sink.clone(), decode(&value)?)),
            (Key::Late(event), Value::Bytes(value)) => drop(self.late.insert(*event, decode(&value)?)),
            (Key::LateDelivery(number, sink), Value::Bytes(value)) => {
                self.late_deliveries.load(sink.clone(), *number, decode(&value)?);
            }
            (Key::Quarantined(event), Value::Bytes(value)) => drop(self.quarantined.insert(*event, decode(&value)?)),
            (Key::Body(event), Value::Size(size)) => {
                self.late.entry(*event).and_modify(|late| late.bytes = size);
                self.quarantined.entry(*event).and_modify(|facts| facts.bytes = size);
            }
            (Key::DeadLetter(event, sink), Value::Bytes(value)) => {
                self.dead_letters.insert((*event, sink.clone()), decode(&value)?);
            }
            (Key::DeadBody(event, sink), Value::Size(size)) => {
                self.dead_letters.entry((*event, sink.clone())).and_modify(|facts| facts.bytes = size);
            }
            (Key::History, Value::Bytes(value)) => self.history = History::unpack(&value)?,
            (Key::Asked, Value::Bytes(value)) => self.asked = decode(&value)?,
            (Key::Contradiction, Value::Bytes(value)) => self.contradiction = Some(decode(&value)?),
            (Key::Blocker, Value::Bytes(value)) => self.blocker = Some(decode(&value)?),
            (Key::Paused, Value::Bytes(value)) => self.paused = decode(&value)?,
            (Key::Proofs(number), Value::Bytes(value)) => delivered.append(&mut self.proofs.load(*number, &value)?),
            (Key::Workflow(id), Value::Bytes(value)) => drop(self.workflows.insert(*id, decode(&value)?)),
            (Key::Replay(id), Value::Bytes(value)) => drop(self.replays.0.insert(*id, decode(&value)?)),
            (Key::Version, Value::Bytes(value)) => self.version = decode(&value)?,
            // A ledger neither changes nor removes entries of an unknown kind, so the store keeps them.
            (Key::Summary | Key::Other(_), _) => {}
            _ => return Err(UnreadableValue),
        }
        Ok(())
    }

    /// Applies a commit and returns the changes that a store must persist.
    ///
    /// # Errors
    /// [`Refusal`] if [`Change::Advance`] would move a cursor back. The ledger is then unchanged.
    pub fn apply(&mut self, commit: Commit) -> Result<Effects, Refusal> {
        let mut cursors = self.cursors.clone();
        for change in &commit.0 {
            let (Change::Advance { sink, to } | Change::SetCursor { sink, to }) = change else { continue };
            let from = cursors.insert(sink.clone(), *to).filter(|from| from > to);
            if let (Change::Advance { .. }, Some(from)) = (change, from) {
                return Err(Refusal { sink: sink.clone(), from, to: *to });
            }
        }
        let mut changes = Vec::with_capacity(commit.0.len() + 2);
        // Not only the highest cursor: an operator, or a new sink, may have set it above all events that were read. Not only the
        // history: an event that appeared late can be remembered before the events around it.
        let read_before = self.history.last().min(self.highest_cursor());
        for change in commit.0 {
            self.change(change, read_before, &mut changes);
        }
        if changes.iter().any(|(key, _)| matches!(key, Key::Quarantined(_))) {
            self.shown_before = self.held_back(|_| None);
        }
        Ok(self.effects(changes))
    }

    /// Increases the version and returns the effects of a commit with these changes.
    pub(crate) fn effects(&mut self, changes: Changes) -> Effects {
        self.version += 1;
        self.summary().effects(changes)
    }

    fn change(&mut self, change: Change, read_before: Option<Offset>, changes: &mut Changes) {
        match change {
            Change::Advance { sink, to } => {
                changes.push((Key::Cursor(sink.clone()), Some(encode(&to))));
                self.cursors.insert(sink, to);
            }
            Change::SetCursor { sink, to } => {
                if self.confirmed.remove(&sink).is_some() {
                    changes.push((Key::Confirmed(sink.clone()), None));
                }
                self.late_deliveries.forget_after(&sink, to.through, changes);
                changes.push((Key::Cursor(sink.clone()), Some(encode(&to))));
                self.cursors.insert(sink, to);
            }
            Change::Confirm { sink, confirmed } => {
                changes.push((Key::Confirmed(sink.clone()), Some(encode(&confirmed))));
                self.confirmed.insert(sink, confirmed);
            }
            Change::Asked(seconds) => {
                self.asked = self.asked.max(seconds);
                changes.push((Key::Asked, Some(encode(&self.asked))));
            }
            Change::Read(events) => {
                let is_new = |event: &KnownEvent| Some(event.key.offset) > read_before;
                self.remember(events.into_iter().filter(is_new).collect(), changes);
            }
            Change::Appeared(event) => self.remember(vec![event], changes),
            Change::Contradict(contradiction) => {
                changes.push((Key::Contradiction, Some(encode(&contradiction))));
                self.contradiction = Some(contradiction);
            }
            Change::AcceptHistory { above } => {
                self.history.forget_above(above);
                changes.push((Key::History, Some(self.history.pack())));
                if self.contradiction.take().is_some() {
                    changes.push((Key::Contradiction, None));
                }
            }
            Change::Owe { sink, event } => self.owe(sink, event, OweReason::NotDelivered, changes),
            Change::ReplayEvent { sink, event } => self.owe(sink, event, OweReason::Operator, changes),
            Change::Settle { sink, key } => self.settle(&sink, key, changes),
            Change::NoteLateDelivery { sink, delivery } => self.late_deliveries.add(&sink, delivery, changes),
            Change::Quarantine(event) => self.quarantine(event, changes),
            Change::Release { key, since, sinks } => {
                let (event_id, first_seen, asked_at) = (key.id, since, Some(self.asked));
                let late = PendingEvent { event_id, first_seen, asked_at, ..PendingEvent::default() };
                self.release(key, late, &sinks, changes);
            }
            Change::DropQuarantined(key) => {
                if self.quarantined.remove(&key).is_some() {
                    changes.push((Key::Quarantined(key), None));
                    self.drop_unused_body(key, changes);
                }
            }
            Change::Block(blocker) => {
                let blocker = Blocker { asked_at: Some(self.asked), ..blocker };
                self.blocker = Some(blocker);
                changes.push((Key::Blocker, Some(encode(&blocker))));
            }
            Change::Pause { sink, pause } => {
                self.paused.set(sink, pause);
                changes.push((Key::Paused, Some(encode(&self.paused))));
            }
            Change::GiveUp { sink, letter: DeadLetter { mut facts, json } } => {
                let key = facts.event_key();
                facts.bytes = json.len() as u64;
                changes.push((Key::DeadLetter(key, sink.clone()), Some(encode(&facts))));
                changes.push((Key::DeadBody(key, sink.clone()), Some(json)));
                self.dead_letters.insert((key, sink), facts);
            }
            Change::DropDeadLetter { sink, key } => {
                if self.dead_letters.remove(&(key, sink.clone())).is_some() {
                    changes.push((Key::DeadLetter(key, sink.clone()), None));
                    changes.push((Key::DeadBody(key, sink), None));
                }
            }
            Change::Delivered(proofs) => {
                let new = proofs.into_iter().filter(|proof| Some(proof.offset) > read_before).collect::<Vec<_>>();
                self.proofs.add(&new, changes);
            }
            Change::ShowWorkflow(id, shown) => {
                changes.push((Key::Workflow(id), Some(encode(&shown))));
                self.workflows.insert(id, shown);
            }
            Change::DeliveredLate(proof) => self.proofs.add(&[proof], changes),
            Change::StartReplay(replay) => self.replays.start(replay, changes),
            Change::ReleaseReplayed { id, next, events } => self.release_replayed(id, next, events, changes),
            Change::SetReplay { id, state } => self.replays.set(id, state, changes),
        }
    }

    /// Makes an event pending for a lane. An event that is already pending keeps its origin. If it is already pending for this
    /// lane, the lane has not delivered it yet, so an operator's replay changes nothing.
    fn owe(&mut self, sink: SinkName, event: Pending, reason: OweReason, changes: &mut Changes) {
        let key = event.event_key();
        let Pending { event_id, first_seen, received, appeared, json, .. } = event;
        // A quarantined event keeps the bytes that were rejected.
        let kept = self.quarantined.get(&key).map(|facts| facts.bytes);
        let bytes = kept.unwrap_or(json.len() as u64);
        if kept.is_none() && !self.late.contains_key(&key) && !json.is_empty() {
            changes.push((Key::Body(key), Some(json)));
        }
        let (asked_at, replayed) = (Some(self.asked), reason == OweReason::Replay);
        let new = || PendingEvent {
            event_id,
            first_seen,
            asked_at,
            received,
            appeared,
            replayed,
            bytes,
            ..PendingEvent::default()
        };
        let late = self.late.entry(key).or_insert_with(new);
        if late.owed.insert(sink.clone()) && reason != OweReason::NotDelivered {
            late.replayed_to.insert(sink);
        }
        changes.push((Key::Late(key), Some(encode(late))));
    }

    fn release_replayed(&mut self, id: ReplayId, next: Option<Offset>, events: Vec<Pending>, changes: &mut Changes) {
        let Some(sinks) = self.replays.advance(id, next, events.len() as u64, changes) else { return };
        for event in events {
            for sink in &sinks {
                self.owe(sink.clone(), event.clone(), OweReason::Replay, changes);
            }
        }
    }

    fn settle(&mut self, sink: &str, key: EventKey, changes: &mut Changes) {
        let Some(late) = self.late.get_mut(&key) else { return };
        late.owed.remove(sink);
        late.replayed_to.remove(sink);
        if late.owed.is_empty() {
            self.late.remove(&key);
            changes.push((Key::Late(key), None));
            self.drop_unused_body(key, changes);
        } else {
            changes.push((Key::Late(key), Some(encode(late))));
        }
    }

    fn remember(&mut self, events: Vec<KnownEvent>, changes: &mut Changes) {
        if !events.is_empty() {
            self.history.add(events);
            changes.push((Key::History, Some(self.history.pack())));
        }
    }

    fn quarantine(&mut self, event: QuarantinedEvent, changes: &mut Changes) {
        let QuarantinedEvent { mut facts, json } = event;
        let key = facts.event_key();
        facts.bytes = json.len() as u64;
        if self.late.remove(&key).is_some() {
            changes.push((Key::Late(key), None));
        }
        changes.push((Key::Quarantined(key), Some(encode(&facts))));
        changes.push((Key::Body(key), Some(json)));
        self.quarantined.insert(key, facts);
    }

    /// Makes a quarantined event pending for the lanes that have passed it. If the event would then be pending for no
    /// lane, it stays in the quarantine: every lane will still read it in order.
    fn release(&mut self, key: EventKey, mut late: PendingEvent, sinks: &[SinkName], changes: &mut Changes) {
        let Some(facts) = self.quarantined.get(&key) else { return };
        (late.bytes, late.received) = (facts.bytes, facts.received);
        let passed = |sink: &&SinkName| self.cursor(sink).is_some_and(|cursor| cursor.through >= Some(key.offset));
        late.owed.extend(sinks.iter().filter(passed).cloned());
        if let Some(known) = self.late.get(&key) {
            late.owed.extend(known.owed.iter().cloned());
            late.replayed_to.extend(known.replayed_to.iter().cloned());
        }
        if late.owed.is_empty() {
            return;
        }
        changes.push((Key::Late(key), Some(encode(&late))));
        changes.push((Key::Quarantined(key), None));
        self.late.insert(key, late);
        self.quarantined.remove(&key);
    }

    /// Drops the body of an event, unless the event is still pending or still quarantined.
    fn drop_unused_body(&mut self, key: EventKey, changes: &mut Changes) {
        if !self.late.contains_key(&key) && !self.quarantined.contains_key(&key) {
            changes.push((Key::Body(key), None));
        }
    }

    /// For each quarantined event whose proof another channel showed first: the digest of the proof, and the location
    /// of the first event with this proof.
    pub fn shown_elsewhere(&self) -> Vec<(Digest, EventLocation)> {
        let shown = self.quarantined.values().filter_map(|facts| facts.original.zip(facts.digest.as_deref()));
        shown.filter_map(|(original, digest)| Some((digest_from(digest)?, original))).collect()
    }

    /// The cursors, counts and other small facts about the ledger.
    pub fn summary(&self) -> Summary {
        Summary {
            version: self.version,
            cursors: self.cursors.iter().map(|(sink, cursor)| (sink.clone(), *cursor)).collect(),
            confirmed: self.confirmed.iter().map(|(sink, confirmed)| (sink.clone(), *confirmed)).collect(),
            paused: self.paused.clone(),
            replays: self.replays.unfinished(),
            late_from: self.late.keys().next().map(|key| key.offset),
            late: self.late.len() as u64,
            quarantined: self.quarantined.len() as u64,
            dead_letters: self.dead_letters.len() as u64,
            held_back: self.shown_before.clone(),
        }
    }

    /// The quarantined events whose proofs belong to another channel, grouped by that channel. For an event whose
    /// `original` is not recorded, `delivered_in` is called. It returns the location at which the proof was delivered,
    /// if it is known.
    pub fn held_back(&self, delivered_in: impl Fn(&Digest) -> Option<EventLocation>) -> Vec<QuarantinedDuplicates> {
        let mut first_in = BTreeMap::new();
        for facts in self.quarantined.values() {
            let Some(digest) = &facts.digest else { continue };
            let delivered = || delivered_in(&digest_from(digest)?);
            let Some(original) = facts.original.or_else(delivered) else { continue };
            let (offset, reason, digest) = (facts.offset, facts.reason.clone(), digest.clone());
            let new = || QuarantinedDuplicates { events: 0, offset, original, reason, digest };
            first_in.entry(original.channel_id).or_insert_with(new).events += 1;
        }
        first_in.into_values().collect()
    }

    /// The cursor of a lane, or `None` if the lane has no cursor yet.
    pub fn cursor(&self, sink: &str) -> Option<Cursor> {
        self.cursors.get(sink).copied()
    }

    /// The cursor of every lane, including lanes that are no longer configured.
    pub fn cursors(&self) -> &LiteMap<SinkName, Cursor> {
        &self.cursors
    }

    /// The highest of these cursors. `None` if no lane has passed an event.
    pub fn highest_cursor(&self) -> Option<Offset> {
        self.cursors.values().filter_map(|cursor| cursor.through).max()
    }

    /// The pending events: events without a proof, and events that must be delivered again.
    pub fn late(&self) -> &BTreeMap<EventKey, PendingEvent> {
        &self.late
    }

    /// The events that are pending for a lane.
    pub fn owed(&self, sink: &str) -> impl Iterator<Item = (&EventKey, &PendingEvent)> {
        self.late.iter().filter(move |(_, late)| late.owed.contains(sink))
    }

    /// Whether an event is pending for a lane.
    pub fn owes(&self, sink: &str, key: &EventKey) -> bool {
        self.late.get(key).is_some_and(|late| late.owed.contains(sink))
    }

    /// The newest late deliveries to a lane, in the order of delivery. At most [`LATE_DELIVERIES`].
    pub fn late_deliveries(&self, sink: &str) -> impl Iterator<Item = &LateDelivery> {
        self.late_deliveries.of(sink)
    }

    /// Whether all late deliveries are recorded that a lane may have made since its sink had this position.
    pub fn knows_late_deliveries_since(&self, sink: &str, position: Option<Offset>) -> bool {
        self.late_deliveries.are_known_since(sink, position)
    }

    /// The quarantined events.
    pub fn quarantined(&self) -> &BTreeMap<EventKey, Quarantined> {
        &self.quarantined
    }

    /// The quarantined events at an offset, usually only one.
    pub fn quarantined_at(&self, offset: Offset) -> impl Iterator<Item = &Quarantined> {
        self.quarantined.range(EventKey::first_at(offset)..=EventKey::last_at(offset)).map(|(_, facts)| facts)
    }

    /// The pending events at an offset, usually only one.
    pub fn late_at(&self, offset: Offset) -> impl Iterator<Item = &PendingEvent> {
        self.late.range(EventKey::first_at(offset)..=EventKey::last_at(offset)).map(|(_, late)| late)
    }

    /// The dead letters, by event and sink.
    pub fn dead_letters(&self) -> &BTreeMap<(EventKey, SinkName), DeadLetterFacts> {
        &self.dead_letters
    }

    /// The number and size of the pending events. The limit is [`LATE`].
    pub fn late_room(&self) -> Room {
        Room::of(self.late.values().map(|event| event.bytes))
    }

    /// The number and size of the quarantined events. The limit is [`QUARANTINE`].
    pub fn quarantine_room(&self) -> Room {
        Room::of(self.quarantined.values().map(|event| event.bytes))
    }

    /// The number and size of the dead letters. The limit is [`DEAD_LETTERS`].
    pub fn dead_letter_room(&self) -> Room {
        Room::of(self.dead_letters.values().map(|event| event.bytes))
    }

    /// The position that a sink has confirmed. `None` if the cursor was set and the sink has confirmed nothing since.
    pub fn confirmed(&self, sink: &str) -> Option<Confirmed> {
        self.confirmed.get(sink).copied()
    }

    /// The newest events that were read.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The total time, in seconds, during which the channel has polled the service. Waits for proofs are measured with
    /// this clock, because it does not depend on the time of day and does not advance while the daemon is stopped.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// The difference between the service's history and the events that were read, until an operator accepts the
    /// service's history.
    pub fn contradiction(&self) -> Option<Contradiction> {
        self.contradiction
    }

    /// Whether any verified event was delivered, according to the remembered proofs.
    pub fn has_delivered(&self) -> bool {
        !self.proofs.is_empty()
    }

    /// The workflows that appeared in verified events of the channel. At most [`WORKFLOWS`].
    pub fn workflows(&self) -> &BTreeMap<WorkflowId, ShownWorkflow> {
        &self.workflows
    }

    /// In strict ordering, the last event that blocked all later events.
    pub fn blocker(&self) -> Option<Blocker> {
        self.blocker
    }

    /// The unfinished replays, and the latest replays that have ended. At most [`REPLAYS`].
    pub fn replays(&self) -> &BTreeMap<ReplayId, Replay> {
        &self.replays.0
    }

    /// The number of events that a replay has made pending and that are still pending for one of its sinks.
    pub fn undelivered(&self, replay: &Replay) -> usize {
        replay.count_undelivered(&self.late)
    }

    /// The replay whose next step is due. The step is the next part or, if the whole range was read, the end of the
    /// replay. While the service's history differs from the events that were read, no step is due.
    pub fn due_replay(&self) -> Option<(ReplayId, &Replay)> {
        let agrees = self.contradiction.is_none();
        self.replays.due(&self.late, || self.late_room()).filter(|_| agrees)
    }

    /// The channel and the sinks that an operator has paused.
    pub fn paused(&self) -> &Paused {
        &self.paused
    }
}

#[cfg(test)]
pub(crate) mod tests;
