//! What is remembered of one channel: how far each lane has got, which events it owes, which are quarantined, which
//! are dead letters, which proofs were delivered lately, and which workflows it has shown.
//!
//! A [`Ledger`] is in memory, loaded when the channel is claimed. [`Ledger::apply`] is the one place that says what a
//! [`Commit`] means: it answers with [`Effects`] for a [`Store`] to persist, or refuses. A [`Claim`] is the right to
//! change a channel's ledger, and the only way to it.
//!
//! # Invariants
//!
//! * **Pure.** The ledger does no I/O and reads no clock. Bodies of events stay in the store: the ledger knows where they
//!   are and how large.
//! * **All or nothing.** A commit is applied as a whole or refused as a whole.
//! * **Cursors never go back** by themselves. Only [`Change::SetCursor`], an operator's word, may move one backwards.
//! * **Bounds are the channel's own.** Another channel's late events, quarantined events and dead letters take no room here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::Offset;

mod claim;
mod commit;
mod committer;
mod entry;
mod error;
mod proof;
mod room;
pub mod store;
#[cfg(test)]
pub(crate) mod tests;

pub use claim::{Claim, Claimed, CommitError, Ledgers, PROOFS, PROOFS_OF_A_CHANNEL, proofs_each};
pub use commit::{Change, Commit, DeadLetter, Effects, Pending, QuarantinedEvent, Refusal, Summary};
pub use committer::Writes;
pub use entry::{
    Blocker, Cursor, Entries, GivenUp, HeldBack, Key, Late, Pause, Paused, Quarantined, ShownWorkflow, Table, Value,
    WORKFLOWS, WorkflowId,
};
pub use error::StateError;
pub use proof::{Digest, Place, Proof};
pub use room::{DEAD_LETTERS, LATE, QUARANTINE, Room};
pub use store::{Lease, Loss, Lost, Outcome, Store};

use entry::{decode, encode};
use proof::Chunks;

/// A sink's name in the configuration: with its channel, what names a lane.
pub type SinkName = Arc<str>;

/// What is remembered of one channel.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    cursors: BTreeMap<SinkName, Cursor>,
    late: BTreeMap<Offset, Late>,
    quarantined: BTreeMap<Offset, Quarantined>,
    dead_letters: BTreeMap<(Offset, SinkName), GivenUp>,
    blocker: Option<Blocker>,
    paused: Paused,
    proofs: Chunks,
    workflows: BTreeMap<WorkflowId, ShownWorkflow>,
    version: u64,
    /// Of the quarantined events those that are known from them alone: other instances are told these.
    shown_before: Vec<HeldBack>,
}

type Changes = Vec<(Key, Option<bytes::Bytes>)>;

impl Ledger {
    /// What a store has of a channel, and the proofs that its records say were delivered, oldest first. `proofs` is how
    /// many of them are to be remembered.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub fn load(entries: Entries, proofs: usize) -> Result<(Self, Vec<Proof>), StateError> {
        let mut ledger = Self { proofs: Chunks::remembering(proofs), ..Self::default() };
        let mut delivered = Vec::new();
        for (key, value) in entries {
            match (key, value) {
                (Key::Cursor(sink), Value::Bytes(value)) => drop(ledger.cursors.insert(sink, decode(&value)?)),
                (Key::Late(offset), Value::Bytes(value)) => drop(ledger.late.insert(offset, decode(&value)?)),
                (Key::Quarantined(offset), Value::Bytes(value)) => {
                    ledger.quarantined.insert(offset, decode(&value)?);
                }
                (Key::Body(offset), Value::Size(size)) => {
                    ledger.late.entry(offset).and_modify(|late| late.bytes = size);
                    ledger.quarantined.entry(offset).and_modify(|facts| facts.bytes = size);
                }
                (Key::DeadLetter(offset, sink), Value::Bytes(value)) => {
                    ledger.dead_letters.insert((offset, sink), decode(&value)?);
                }
                (Key::DeadBody(offset, sink), Value::Size(size)) => {
                    ledger.dead_letters.entry((offset, sink)).and_modify(|facts| facts.bytes = size);
                }
                (Key::Blocker, Value::Bytes(value)) => ledger.blocker = Some(decode(&value)?),
                (Key::Paused, Value::Bytes(value)) => ledger.paused = decode(&value)?,
                (Key::Proofs(number), Value::Bytes(value)) => {
                    delivered.append(&mut ledger.proofs.load(number, &value)?);
                }
                (Key::Workflow(id), Value::Bytes(value)) => drop(ledger.workflows.insert(id, decode(&value)?)),
                (Key::Version, Value::Bytes(value)) => ledger.version = decode(&value)?,
                (Key::Summary, _) => {}
                (key, _) => {
                    return Err(StateError::Damaged(format!(
                        "an entry of `{}` is of another kind",
                        <&str>::from(Table::from(&key))
                    )));
                }
            }
        }
        ledger.shown_before = ledger.held_back(|_| None);
        Ok((ledger, delivered))
    }

    /// Applies a commit, and says what a store must persist of it.
    ///
    /// # Errors
    /// [`Refusal`]: nothing has changed.
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
        let read_before = self.cursors.values().filter_map(|cursor| cursor.through).max();
        for change in commit.0 {
            self.change(change, read_before, &mut changes);
        }
        self.version += 1;
        if changes.iter().any(|(key, _)| matches!(key, Key::Quarantined(_))) {
            self.shown_before = self.held_back(|_| None);
        }
        Ok(self.summary().effects(changes))
    }

    fn change(&mut self, change: Change, read_before: Option<Offset>, changes: &mut Changes) {
        match change {
            Change::Advance { sink, to } | Change::SetCursor { sink, to } => {
                changes.push((Key::Cursor(sink.clone()), Some(encode(&to))));
                self.cursors.insert(sink, to);
            }
            Change::Owe { sink, event } => self.owe(sink, event, changes),
            Change::Settle { sink, offset } => self.settle(&sink, offset, changes),
            Change::Quarantine(event) => self.quarantine(event, changes),
            Change::Release { offset, event_id, since, sinks } => {
                let late = Late { event_id, first_seen: since, received: None, owed: BTreeSet::new(), bytes: 0 };
                self.release(offset, late, &sinks, changes);
            }
            Change::DropQuarantined(offset) => {
                if self.quarantined.remove(&offset).is_some() {
                    changes.push((Key::Quarantined(offset), None));
                    self.drop_unused_body(offset, changes);
                }
            }
            Change::Block(blocker) => {
                self.blocker = Some(blocker);
                changes.push((Key::Blocker, Some(encode(&blocker))));
            }
            Change::Pause { sink, pause } => {
                self.paused.set(sink, pause);
                changes.push((Key::Paused, Some(encode(&self.paused))));
            }
            Change::GiveUp { sink, letter: DeadLetter { mut facts, json } } => {
                let offset = facts.offset;
                facts.bytes = json.len() as u64;
                changes.push((Key::DeadLetter(offset, sink.clone()), Some(encode(&facts))));
                changes.push((Key::DeadBody(offset, sink.clone()), Some(json)));
                self.dead_letters.insert((offset, sink), facts);
            }
            Change::DropDeadLetter { sink, offset } => {
                if self.dead_letters.remove(&(offset, sink.clone())).is_some() {
                    changes.push((Key::DeadLetter(offset, sink.clone()), None));
                    changes.push((Key::DeadBody(offset, sink), None));
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
        }
    }

    fn owe(&mut self, sink: SinkName, event: Pending, changes: &mut Changes) {
        let Pending { offset, event_id, first_seen, received, json } = event;
        // A quarantined event keeps the bytes that it was rejected for.
        let kept = self.quarantined.get(&offset).map(|facts| facts.bytes);
        let bytes = kept.unwrap_or(json.len() as u64);
        if kept.is_none() && !self.late.contains_key(&offset) {
            changes.push((Key::Body(offset), Some(json)));
        }
        let new = || Late { event_id, first_seen, received, owed: BTreeSet::new(), bytes };
        let late = self.late.entry(offset).or_insert_with(new);
        late.owed.insert(sink);
        changes.push((Key::Late(offset), Some(encode(late))));
    }

    fn settle(&mut self, sink: &str, offset: Offset, changes: &mut Changes) {
        let Some(late) = self.late.get_mut(&offset) else { return };
        late.owed.remove(sink);
        if late.owed.is_empty() {
            self.late.remove(&offset);
            changes.push((Key::Late(offset), None));
            self.drop_unused_body(offset, changes);
        } else {
            changes.push((Key::Late(offset), Some(encode(late))));
        }
    }

    fn quarantine(&mut self, event: QuarantinedEvent, changes: &mut Changes) {
        let QuarantinedEvent { mut facts, json } = event;
        let offset = facts.offset;
        facts.bytes = json.len() as u64;
        if self.late.remove(&offset).is_some() {
            changes.push((Key::Late(offset), None));
        }
        changes.push((Key::Quarantined(offset), Some(encode(&facts))));
        changes.push((Key::Body(offset), Some(json)));
        self.quarantined.insert(offset, facts);
    }

    /// A quarantined event becomes late for the lanes that have passed it. If none has, it stays: it is read in order.
    fn release(&mut self, offset: Offset, mut late: Late, sinks: &[SinkName], changes: &mut Changes) {
        let Some(facts) = self.quarantined.get(&offset) else { return };
        (late.bytes, late.received) = (facts.bytes, facts.received);
        let passed = |sink: &&SinkName| self.cursor(sink).is_some_and(|cursor| cursor.through >= Some(offset));
        late.owed.extend(sinks.iter().filter(passed).cloned());
        late.owed.extend(self.late.get(&offset).into_iter().flat_map(|known| known.owed.iter().cloned()));
        if late.owed.is_empty() {
            return;
        }
        changes.push((Key::Late(offset), Some(encode(&late))));
        changes.push((Key::Quarantined(offset), None));
        self.late.insert(offset, late);
        self.quarantined.remove(&offset);
    }

    /// Drops the body of an event that is no longer late, or no longer quarantined, unless it is the other still.
    fn drop_unused_body(&mut self, offset: Offset, changes: &mut Changes) {
        if !self.late.contains_key(&offset) && !self.quarantined.contains_key(&offset) {
            changes.push((Key::Body(offset), None));
        }
    }

    /// Proofs of quarantined events, each with the place where another channel showed it before.
    pub(crate) fn shown_elsewhere(&self) -> Vec<(Digest, Place)> {
        let shown = self.quarantined.values().filter_map(|facts| facts.original.zip(facts.digest.as_deref()));
        shown.filter_map(|(original, digest)| Some((proof::digest_from(digest)?, original))).collect()
    }

    /// The ledger in a few numbers.
    pub fn summary(&self) -> Summary {
        Summary {
            version: self.version,
            cursors: self.cursors.clone(),
            paused: self.paused.clone(),
            late_from: self.late.keys().next().copied(),
            late: self.late.len() as u64,
            quarantined: self.quarantined.len() as u64,
            dead_letters: self.dead_letters.len() as u64,
            held_back: self.shown_before.clone(),
        }
    }

    /// Quarantined events whose proofs belong to other channels, by channel. Where the proof of an event that names another
    /// channel's things was delivered is not known here: `delivered_in` says it.
    pub(crate) fn held_back(&self, delivered_in: impl Fn(&Digest) -> Option<Place>) -> Vec<HeldBack> {
        let mut first_in = BTreeMap::new();
        for facts in self.quarantined.values() {
            let Some(digest) = &facts.digest else { continue };
            let delivered = || delivered_in(&proof::digest_from(digest)?);
            let Some(original) = facts.original.or_else(delivered) else { continue };
            let (offset, reason, digest) = (facts.offset, facts.reason.clone(), digest.clone());
            let new = || HeldBack { events: 0, offset, original, reason, digest };
            first_in.entry(original.channel_id).or_insert_with(new).events += 1;
        }
        first_in.into_values().collect()
    }

    /// How far a lane has got; `None` where it has never been.
    pub fn cursor(&self, sink: &str) -> Option<Cursor> {
        self.cursors.get(sink).copied()
    }

    /// Every lane's cursor, those of lanes that are no longer configured included.
    pub fn cursors(&self) -> &BTreeMap<SinkName, Cursor> {
        &self.cursors
    }

    /// The events that wait for their proof, or to be delivered once more.
    pub fn late(&self) -> &BTreeMap<Offset, Late> {
        &self.late
    }

    /// The late events that a lane is owed.
    pub fn owed(&self, sink: &str) -> impl Iterator<Item = (&Offset, &Late)> {
        self.late.iter().filter(move |(_, late)| late.owed.contains(sink))
    }

    /// Whether a lane is owed the event at an offset.
    pub fn owes(&self, sink: &str, offset: Offset) -> bool {
        self.late.get(&offset).is_some_and(|late| late.owed.contains(sink))
    }

    /// The quarantined events.
    pub fn quarantined(&self) -> &BTreeMap<Offset, Quarantined> {
        &self.quarantined
    }

    /// The events that sinks gave up on, by offset and sink.
    pub fn dead_letters(&self) -> &BTreeMap<(Offset, SinkName), GivenUp> {
        &self.dead_letters
    }

    /// Whether a verified event has been delivered, as far as is remembered.
    pub fn has_delivered(&self) -> bool {
        !self.proofs.is_empty()
    }

    /// The workflows that the channel has shown verified. At most [`WORKFLOWS`].
    pub fn workflows(&self) -> &BTreeMap<WorkflowId, ShownWorkflow> {
        &self.workflows
    }

    /// The event that everything after it waited for last, in strict ordering.
    pub fn blocker(&self) -> Option<Blocker> {
        self.blocker
    }

    /// What stands still because an operator asked for it.
    pub fn paused(&self) -> &Paused {
        &self.paused
    }

    /// What the late events take, of [`LATE`].
    pub fn late_room(&self) -> Room {
        Room::of(self.late.values().map(|event| event.bytes))
    }

    /// What the quarantine takes, of [`QUARANTINE`].
    pub fn quarantine_room(&self) -> Room {
        Room::of(self.quarantined.values().map(|event| event.bytes))
    }

    /// What the dead letters take, of [`DEAD_LETTERS`].
    pub fn dead_letter_room(&self) -> Room {
        Room::of(self.dead_letters.values().map(|event| event.bytes))
    }
}
