//! What a commit means, entry by entry, in whatever database.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::codec::{self, Late};
use super::trees::{Aborted, Tree, Trees};
use super::{Acquitted, Commit, Cursor, DeadLetter, Evidence, Held, LaneKey, Pending, StateError};
use crate::event::{ChannelId, Offset};

/// A transaction in the making.
pub(super) struct Changes<'t> {
    pub(super) trees: &'t dyn Trees,
    /// What the quarantine holds after what has been changed so far.
    pub(super) held: Cell<Held>,
    /// What the dead letters hold.
    pub(super) dead: Cell<Held>,
}

impl Changes<'_> {
    pub(super) fn apply(&self, commit: &Commit) -> Result<(), Aborted> {
        for (lane, pending) in &commit.pending {
            self.owe(lane, pending)?;
        }
        for (lane, offset) in &commit.settled {
            self.settle(lane, *offset)?;
        }
        for (channel, evidence) in &commit.quarantined {
            self.quarantine(*channel, evidence)?;
        }
        for (channel, acquitted) in &commit.acquitted {
            self.acquit(*channel, acquitted)?;
        }
        for (channel, offset) in &commit.dropped {
            self.discard(*channel, *offset)?;
        }
        for (lane, cursor) in &commit.set {
            self.put(lane, *cursor)?;
        }
        for (lane, letter) in &commit.given_up {
            self.bury(lane, letter)?;
        }
        for (lane, offset) in &commit.unburied {
            self.unbury(&codec::dead_letter_key(lane, *offset))?;
        }
        if let Some((channel, blocker)) = &commit.blocker {
            self.trees.insert(Tree::Blockers, channel.0.as_bytes(), &codec::encode(blocker))?;
        }
        match &commit.cursor {
            Some((lane, cursor)) => self.advance(lane, *cursor),
            None => Ok(()),
        }
    }

    fn owe(&self, lane: &LaneKey, pending: &Pending) -> Result<(), Aborted> {
        let key = codec::event_key(lane.channel, pending.offset);
        let mut late = self.late(&key)?.unwrap_or_else(|| Late {
            event_id: pending.event_id,
            first_seen: pending.first_seen,
            owed: BTreeSet::new(),
        });
        late.owed.insert(lane.sink.to_string());
        self.trees.insert(Tree::Late, &key, &codec::encode(&late))?;
        // What is evidence already keeps the bytes that it was condemned for.
        if !self.is_there(Tree::Quarantine, &key)? {
            self.trees.insert(Tree::Json, &key, &pending.json)?;
        }
        Ok(())
    }

    fn settle(&self, lane: &LaneKey, offset: Offset) -> Result<(), Aborted> {
        let key = codec::event_key(lane.channel, offset);
        let Some(mut late) = self.late(&key)? else { return Ok(()) };
        late.owed.remove(&*lane.sink);
        if !late.owed.is_empty() {
            return self.trees.insert(Tree::Late, &key, &codec::encode(&late));
        }
        self.trees.remove(Tree::Late, &key)?;
        if !self.is_there(Tree::Quarantine, &key)? {
            self.trees.remove(Tree::Json, &key)?;
        }
        Ok(())
    }

    fn quarantine(&self, channel: ChannelId, evidence: &Evidence) -> Result<(), Aborted> {
        let key = codec::event_key(channel, evidence.facts.offset);
        self.trees.remove(Tree::Late, &key)?;
        self.release(&key)?;
        self.trees.insert(Tree::Quarantine, &key, &codec::encode(&evidence.facts))?;
        self.trees.insert(Tree::Json, &key, &evidence.json)?;
        self.held.set(self.held.get().with(evidence.json.len()));
        Ok(())
    }

    fn acquit(&self, channel: ChannelId, acquitted: &Acquitted) -> Result<(), Aborted> {
        let key = codec::event_key(channel, acquitted.offset);
        if !self.is_there(Tree::Quarantine, &key)? {
            return Ok(());
        }
        let mut owed = self.late(&key)?.map_or_else(BTreeSet::new, |late| late.owed);
        for sink in &acquitted.sinks {
            let cursor = self.cursor(&LaneKey { channel, sink: sink.clone() })?;
            if cursor.is_some_and(|cursor| cursor.through >= Some(acquitted.offset)) {
                owed.insert(sink.to_string());
            }
        }
        if !owed.is_empty() {
            let late = Late { event_id: acquitted.event_id, first_seen: acquitted.since, owed };
            self.trees.insert(Tree::Late, &key, &codec::encode(&late))?;
            self.release(&key)?;
        }
        Ok(())
    }

    fn discard(&self, channel: ChannelId, offset: Offset) -> Result<(), Aborted> {
        let key = codec::event_key(channel, offset);
        if self.release(&key)? && !self.is_there(Tree::Late, &key)? {
            self.trees.remove(Tree::Json, &key)?;
        }
        Ok(())
    }

    /// Takes an event out of the quarantine, if it was in it; its bytes stay.
    fn release(&self, key: &[u8]) -> Result<bool, Aborted> {
        let there = self.trees.remove(Tree::Quarantine, key)?;
        if there {
            let bytes = self.trees.get(Tree::Json, key)?.map_or(0, |json| json.len());
            self.held.set(self.held.get().without(bytes));
        }
        Ok(there)
    }

    fn bury(&self, lane: &LaneKey, letter: &DeadLetter) -> Result<(), Aborted> {
        let (key, value) = (codec::dead_letter_key(lane, letter.facts.offset), codec::encode_dead_letter(letter));
        self.unbury(&key)?;
        self.trees.insert(Tree::DeadLetters, &key, &value)?;
        self.dead.set(self.dead.get().with(value.len()));
        Ok(())
    }

    fn unbury(&self, key: &[u8]) -> Result<(), Aborted> {
        if let Some(value) = self.trees.get(Tree::DeadLetters, key)? {
            self.trees.remove(Tree::DeadLetters, key)?;
            self.dead.set(self.dead.get().without(value.len()));
        }
        Ok(())
    }

    fn advance(&self, lane: &LaneKey, cursor: Cursor) -> Result<(), Aborted> {
        match self.cursor(lane)? {
            Some(recorded) if recorded > cursor => Err(backwards(lane, recorded, cursor).into()),
            _ => self.put(lane, cursor),
        }
    }

    fn put(&self, lane: &LaneKey, cursor: Cursor) -> Result<(), Aborted> {
        self.trees.insert(Tree::Cursors, &codec::lane_key(lane), &codec::encode(&cursor.through))
    }

    fn cursor(&self, lane: &LaneKey) -> Result<Option<Cursor>, Aborted> {
        let stored = self.trees.get(Tree::Cursors, &codec::lane_key(lane))?;
        Ok(stored.map(|through| codec::decode(&through)).transpose()?.map(|through| Cursor { through }))
    }

    fn late(&self, key: &[u8]) -> Result<Option<Late>, Aborted> {
        let stored = self.trees.get(Tree::Late, key)?;
        Ok(stored.map(|late| codec::decode(&late)).transpose()?)
    }

    fn is_there(&self, tree: Tree, key: &[u8]) -> Result<bool, Aborted> {
        Ok(self.trees.get(tree, key)?.is_some())
    }
}

fn backwards(lane: &LaneKey, from: Cursor, to: Cursor) -> StateError {
    StateError::Backwards {
        channel: lane.channel,
        sink: lane.sink.to_string(),
        from: from.to_string(),
        to: to.to_string(),
    }
}
