//! What is remembered of one channel: how far each lane has got, which events it owes, which are quarantined, which
//! are dead letters, and which proofs were delivered lately.
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
mod tests;

pub use claim::{Claim, CommitError, Ledgers, PROOFS, PROOFS_OF_A_CHANNEL, proofs_each};
pub use commit::{Change, Commit, DeadLetter, Pending, QuarantinedEvent, Released};
pub use committer::Writes;
pub use entry::{Blocker, Cursor, GivenUp, Key, Late, Quarantined, Table, Value};
pub use error::{Refusal, StateError};
pub use proof::{Digest, Place, Proof};
pub use room::{DEAD_LETTERS, LATE, Limit, QUARANTINE, Room};
pub use store::{Lease, Lost, Outcome, Store};

use proof::Chunks;

/// A sink's name in the configuration: with its channel, what names a lane.
pub type SinkName = Arc<str>;

/// What is remembered of one channel.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    cursors: BTreeMap<SinkName, Cursor>,
    late: BTreeMap<Offset, Late>,
    late_room: Room,
    quarantined: BTreeMap<Offset, Quarantined>,
    quarantine_room: Room,
    dead_letters: BTreeMap<(Offset, SinkName), GivenUp>,
    dead_letter_room: Room,
    blocker: Option<Blocker>,
    proofs: Chunks,
    version: u64,
}

/// What a commit changes in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Entries to write, or to remove where there is no value. In order: of two for one key the last counts.
    pub changes: Vec<(Key, Option<bytes::Bytes>)>,
    /// The ledger after the commit, in a few numbers.
    pub summary: Summary,
}

/// A ledger in a few numbers: enough to notice later that a store has lost something, and to go on without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Grows by one with each commit.
    pub version: u64,
    /// Every lane's cursor.
    pub cursors: BTreeMap<SinkName, Cursor>,
    /// The lowest offset that a lane is owed: with cursors below it, no late event is lost.
    pub late_from: Option<Offset>,
    /// Late events.
    pub late: u64,
    /// Quarantined events.
    pub quarantined: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

impl Ledger {
    /// What a store has of a channel, and the proofs that its records say were delivered, oldest first. `proofs` is how
    /// many of them are to be remembered.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub fn load(
        entries: impl IntoIterator<Item = (Key, Value)>,
        proofs: usize,
    ) -> Result<(Self, Vec<Proof>), StateError> {
        let mut ledger = Self { proofs: Chunks::remembering(proofs), ..Self::default() };
        let (mut bodies, mut delivered) = (Vec::new(), Vec::new());
        for (key, value) in entries {
            match (key, value) {
                (key, Value::Size(size)) => bodies.push((key, size)),
                (Key::Proofs(number), Value::Bytes(value)) => {
                    delivered.append(&mut ledger.proofs.load(number, &value)?);
                }
                (key, Value::Bytes(value)) => ledger.load_entry(key, &value)?,
            }
        }
        for (key, size) in bodies {
            ledger.load_size(key, size);
        }
        ledger.late_room = Room::of(ledger.late.values().map(|late| late.bytes));
        ledger.quarantine_room = Room::of(ledger.quarantined.values().map(|facts| facts.bytes));
        ledger.dead_letter_room = Room::of(ledger.dead_letters.values().map(|facts| facts.bytes));
        Ok((ledger, delivered))
    }

    fn load_entry(&mut self, key: Key, value: &[u8]) -> Result<(), StateError> {
        match key {
            Key::Cursor(sink) => drop(self.cursors.insert(sink, Cursor { through: entry::decode(value)? })),
            Key::Late(offset) => drop(self.late.insert(offset, entry::decode(value)?)),
            Key::Quarantined(offset) => drop(self.quarantined.insert(offset, entry::decode(value)?)),
            Key::DeadLetter(offset, sink) => drop(self.dead_letters.insert((offset, sink), entry::decode(value)?)),
            Key::Blocker => self.blocker = Some(entry::decode(value)?),
            Key::Version => self.version = entry::decode(value)?,
            Key::Body(_) | Key::DeadBody(..) | Key::Proofs(_) => {
                return Err(StateError::damaged(format!("{key:?} does not belong there")));
            }
        }
        Ok(())
    }

    fn load_size(&mut self, key: Key, size: u64) {
        match key {
            Key::Body(offset) => {
                self.late.entry(offset).and_modify(|late| late.bytes = size);
                self.quarantined.entry(offset).and_modify(|facts| facts.bytes = size);
            }
            Key::DeadBody(offset, sink) => {
                self.dead_letters.entry((offset, sink)).and_modify(|facts| facts.bytes = size);
            }
            // A store gives the size of bodies only.
            _ => {}
        }
    }

    /// Applies a commit, and says what a store must persist of it.
    ///
    /// # Errors
    /// [`Refusal`]: nothing has changed.
    pub fn apply(&mut self, commit: Commit) -> Result<Effects, Refusal> {
        self.check(&commit)?;
        let mut changes = Vec::with_capacity(commit.0.len() + 1);
        let read_before = self.cursors.values().filter_map(|cursor| cursor.through).max();
        for change in commit.0 {
            self.change(change, read_before, &mut changes);
        }
        self.version += 1;
        changes.push((Key::Version, Some(entry::encode(&self.version))));
        Ok(Effects { changes, summary: self.summary() })
    }

    fn check(&self, commit: &Commit) -> Result<(), Refusal> {
        for change in &commit.0 {
            if let Change::Advance { sink, to } = change
                && let Some(recorded) = self.cursor(sink)
                && recorded > *to
            {
                return Err(Refusal::Backwards { sink: sink.clone(), from: recorded, to: *to });
            }
        }
        Ok(())
    }

    fn change(&mut self, change: Change, read_before: Option<Offset>, changes: &mut Changes) {
        match change {
            Change::Advance { sink, to } | Change::SetCursor { sink, to } => {
                changes.push((Key::Cursor(sink.clone()), Some(entry::encode(&to.through))));
                self.cursors.insert(sink, to);
            }
            Change::Owe { sink, event } => self.owe(&sink, event, changes),
            Change::Settle { sink, offset } => self.settle(&sink, offset, changes),
            Change::Quarantine(event) => self.quarantine(event, changes),
            Change::Release(released) => self.release(released, changes),
            Change::DropQuarantined(offset) => {
                if self.leave_quarantine(offset, changes) && !self.late.contains_key(&offset) {
                    changes.push((Key::Body(offset), None));
                }
            }
            Change::Block(blocker) => {
                self.blocker = Some(blocker);
                changes.push((Key::Blocker, Some(entry::encode(&blocker))));
            }
            Change::GiveUp { sink, letter } => self.give_up(sink, letter, changes),
            Change::DropDeadLetter { sink, offset } => self.drop_dead_letter(offset, sink, changes),
            Change::Delivered(proofs) => {
                let new = proofs.into_iter().filter(|proof| Some(proof.offset) > read_before).collect::<Vec<_>>();
                self.proofs.add(&new, changes);
            }
            Change::DeliveredLate(proof) => self.proofs.add(&[proof], changes),
        }
    }

    fn owe(&mut self, sink: &SinkName, event: Pending, changes: &mut Changes) {
        let Pending { offset, event_id, first_seen, json } = event;
        let is_new = !self.late.contains_key(&offset);
        // A quarantined event keeps the bytes that it was rejected for.
        let kept = self.quarantined.get(&offset).map(|facts| facts.bytes);
        let bytes = kept.unwrap_or(json.len() as u64);
        let new = || Late { event_id, first_seen, owed: BTreeSet::new(), bytes };
        let late = self.late.entry(offset).or_insert_with(new);
        late.owed.insert(sink.to_string());
        changes.push((Key::Late(offset), Some(entry::encode(late))));
        if is_new {
            self.late_room.add(bytes);
            if kept.is_none() {
                changes.push((Key::Body(offset), Some(json)));
            }
        }
    }

    fn settle(&mut self, sink: &str, offset: Offset, changes: &mut Changes) {
        let Some(late) = self.late.get_mut(&offset) else { return };
        late.owed.remove(sink);
        if !late.owed.is_empty() {
            changes.push((Key::Late(offset), Some(entry::encode(late))));
            return;
        }
        self.forget_late(offset, changes);
        if !self.quarantined.contains_key(&offset) {
            changes.push((Key::Body(offset), None));
        }
    }

    fn forget_late(&mut self, offset: Offset, changes: &mut Changes) {
        if let Some(late) = self.late.remove(&offset) {
            self.late_room.remove(late.bytes);
            changes.push((Key::Late(offset), None));
        }
    }

    fn quarantine(&mut self, event: QuarantinedEvent, changes: &mut Changes) {
        let QuarantinedEvent { mut facts, json } = event;
        let offset = facts.offset;
        facts.bytes = json.len() as u64;
        self.forget_late(offset, changes);
        self.leave_quarantine(offset, changes);
        changes.push((Key::Quarantined(offset), Some(entry::encode(&facts))));
        changes.push((Key::Body(offset), Some(json)));
        self.quarantine_room.add(facts.bytes);
        self.quarantined.insert(offset, facts);
    }

    /// Takes an event out of the quarantine, if it was in it; its body stays.
    fn leave_quarantine(&mut self, offset: Offset, changes: &mut Changes) -> bool {
        let Some(facts) = self.quarantined.remove(&offset) else { return false };
        self.quarantine_room.remove(facts.bytes);
        changes.push((Key::Quarantined(offset), None));
        true
    }

    /// A quarantined event is owed to the lanes that have passed it. If none has, it stays: it is read in its turn.
    fn release(&mut self, released: Released, changes: &mut Changes) {
        let Released { offset, event_id, since, sinks } = released;
        let Some(bytes) = self.quarantined.get(&offset).map(|facts| facts.bytes) else { return };
        let mut owed = self.late.get(&offset).map_or_else(BTreeSet::new, |late| late.owed.clone());
        let passed = |sink: &&SinkName| self.cursor(sink).is_some_and(|cursor| cursor.through >= Some(offset));
        owed.extend(sinks.iter().filter(passed).map(ToString::to_string));
        if owed.is_empty() {
            return;
        }
        self.forget_late(offset, changes);
        let late = Late { event_id, first_seen: since, owed, bytes };
        changes.push((Key::Late(offset), Some(entry::encode(&late))));
        self.late_room.add(bytes);
        self.late.insert(offset, late);
        self.leave_quarantine(offset, changes);
    }

    fn give_up(&mut self, sink: SinkName, letter: DeadLetter, changes: &mut Changes) {
        let DeadLetter { mut facts, json } = letter;
        let offset = facts.offset;
        self.drop_dead_letter(offset, sink.clone(), changes);
        facts.bytes = json.len() as u64;
        changes.push((Key::DeadLetter(offset, sink.clone()), Some(entry::encode(&facts))));
        changes.push((Key::DeadBody(offset, sink.clone()), Some(json)));
        self.dead_letter_room.add(facts.bytes);
        self.dead_letters.insert((offset, sink), facts);
    }

    fn drop_dead_letter(&mut self, offset: Offset, sink: SinkName, changes: &mut Changes) {
        let Some(facts) = self.dead_letters.remove(&(offset, sink.clone())) else { return };
        self.dead_letter_room.remove(facts.bytes);
        changes.push((Key::DeadLetter(offset, sink.clone()), None));
        changes.push((Key::DeadBody(offset, sink), None));
    }

    /// The ledger in a few numbers.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            version: self.version,
            cursors: self.cursors.clone(),
            late_from: self.late.keys().next().copied(),
            late: self.late.len() as u64,
            quarantined: self.quarantined.len() as u64,
            dead_letters: self.dead_letters.len() as u64,
        }
    }

    /// How far a lane has got; `None` where it has never been.
    #[must_use]
    pub fn cursor(&self, sink: &str) -> Option<Cursor> {
        self.cursors.get(sink).copied()
    }

    /// Every lane's cursor, those of lanes that are no longer configured included.
    #[must_use]
    pub fn cursors(&self) -> &BTreeMap<SinkName, Cursor> {
        &self.cursors
    }

    /// The events that wait for their proof, or to be delivered once more.
    #[must_use]
    pub fn late(&self) -> &BTreeMap<Offset, Late> {
        &self.late
    }

    /// The late events that a lane is owed.
    pub fn owed(&self, sink: &str) -> impl Iterator<Item = (&Offset, &Late)> {
        self.late.iter().filter(move |(_, late)| late.owed.contains(sink))
    }

    /// Whether a lane is owed the event at an offset.
    #[must_use]
    pub fn owes(&self, sink: &str, offset: Offset) -> bool {
        self.late.get(&offset).is_some_and(|late| late.owed.contains(sink))
    }

    /// The quarantined events.
    #[must_use]
    pub fn quarantined(&self) -> &BTreeMap<Offset, Quarantined> {
        &self.quarantined
    }

    /// The events that sinks gave up on, by offset and sink.
    #[must_use]
    pub fn dead_letters(&self) -> &BTreeMap<(Offset, SinkName), GivenUp> {
        &self.dead_letters
    }

    /// The event that everything after it waited for last, in strict ordering.
    #[must_use]
    pub fn blocker(&self) -> Option<Blocker> {
        self.blocker
    }

    /// What the late events take, of [`LATE`].
    #[must_use]
    pub fn late_room(&self) -> Room {
        self.late_room
    }

    /// What the quarantine takes, of [`QUARANTINE`].
    #[must_use]
    pub fn quarantine_room(&self) -> Room {
        self.quarantine_room
    }

    /// What the dead letters take, of [`DEAD_LETTERS`].
    #[must_use]
    pub fn dead_letter_room(&self) -> Room {
        self.dead_letter_room
    }
}

type Changes = Vec<(Key, Option<bytes::Bytes>)>;
