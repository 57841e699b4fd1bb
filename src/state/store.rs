//! The database behind the few operations that the rest needs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::changes::Changes;
use super::codec::{self, Blocker, Late, Quarantined};
use super::database::Sled;
use super::trees::{Database, Tree};
use super::{Commit, Cursor, DeadLetter, Held, LaneKey, StateError};
use crate::event::{ChannelId, Offset};

/// The open database.
#[derive(Clone, Debug)]
pub(super) struct Store {
    database: Arc<dyn Database>,
    /// What the quarantine holds. Counted once, at opening.
    held: Arc<watch::Sender<Held>>,
    /// So for the dead letters.
    dead: Arc<watch::Sender<Held>>,
}

impl Store {
    /// Opens the database in `path`.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        Self::over(Arc::new(Sled::open(path)?))
    }

    pub(super) fn over(database: Arc<dyn Database>) -> Result<Self, StateError> {
        Self { database, held: Arc::default(), dead: Arc::default() }.counted()
    }

    /// Leaves the database as it is, for good: sled would try to write once more when it is dropped, and panic where that
    /// fails too. The process is about to end, and what was not written is read again from the service.
    pub(super) fn abandon(&self) {
        std::mem::forget(self.clone());
    }

    fn counted(self) -> Result<Self, StateError> {
        let mut held = Held::default();
        self.database.scan(Tree::Quarantine, &[], &mut |key, _| {
            held = held.with(self.database.get(Tree::Json, key)?.map_or(0, |json| json.len()));
            Ok(())
        })?;
        let mut dead = Held::default();
        self.database.scan(Tree::DeadLetters, &[], &mut |_, value| {
            dead = dead.with(value.len());
            Ok(())
        })?;
        self.held.send_replace(held);
        self.dead.send_replace(dead);
        Ok(self)
    }

    pub(super) fn held(&self) -> watch::Receiver<Held> {
        self.held.subscribe()
    }

    pub(super) fn dead(&self) -> watch::Receiver<Held> {
        self.dead.subscribe()
    }

    /// Applies commits as one transaction and hands them to the operating system. Not yet on disk: see
    /// [`DatabaseFiles::sync`](super::directory::DatabaseFiles::sync).
    pub(super) fn apply(&self, commits: &[Commit]) -> Result<(), StateError> {
        let before = (*self.held.borrow(), *self.dead.borrow());
        let after = Cell::new(before);
        self.database.transact(&|trees| {
            let changes = Changes { trees, held: Cell::new(before.0), dead: Cell::new(before.1) };
            commits.iter().try_for_each(|commit| changes.apply(commit))?;
            after.set((changes.held.get(), changes.dead.get()));
            Ok(())
        })?;
        let (held, dead) = after.get();
        self.held.send_if_modified(|known| std::mem::replace(known, held) != held);
        self.dead.send_if_modified(|known| std::mem::replace(known, dead) != dead);
        Ok(())
    }

    /// Writes cursors and late proofs as a mirror has them. A cursor that is further already stays.
    pub(super) fn restore(&self, cursors: &BTreeMap<LaneKey, Cursor>, late: &LateEvents) -> Result<(), StateError> {
        let known = self.cursors()?;
        self.database.transact(&|trees| {
            let behind = cursors.iter().filter(|(lane, cursor)| known.get(lane) < Some(cursor));
            for (lane, cursor) in behind {
                trees.insert(Tree::Cursors, &codec::lane_key(lane), &codec::encode(&cursor.through))?;
            }
            for ((channel, offset), entry) in late {
                trees.insert(Tree::Late, &codec::event_key(*channel, *offset), &codec::encode(entry))?;
            }
            Ok(())
        })
    }

    pub(super) fn cursor(&self, lane: &LaneKey) -> Result<Option<Cursor>, StateError> {
        let stored = self.database.get(Tree::Cursors, &codec::lane_key(lane))?;
        stored.map(|value| Ok(Cursor { through: codec::decode(&value)? })).transpose()
    }

    pub(super) fn cursors(&self) -> Result<BTreeMap<LaneKey, Cursor>, StateError> {
        self.entries(Tree::Cursors, &[], |key, value| {
            Ok((codec::lane_of(key)?, Cursor { through: codec::decode(value)? }))
        })
    }

    pub(super) fn all_late(&self) -> Result<LateEvents, StateError> {
        self.entries(Tree::Late, &[], |key, value| Ok((codec::event_of(key)?, codec::decode(value)?)))
    }

    pub(super) fn late(&self, channel: ChannelId) -> Result<BTreeMap<Offset, Late>, StateError> {
        let entry = |key: &[u8], value: &[u8]| Ok((codec::event_of(key)?.1, codec::decode(value)?));
        self.entries(Tree::Late, channel.0.as_bytes(), entry)
    }

    pub(super) fn quarantined(&self, channel: ChannelId) -> Result<BTreeMap<Offset, Quarantined>, StateError> {
        let entry = |key: &[u8], value: &[u8]| Ok((codec::event_of(key)?.1, codec::decode(value)?));
        self.entries(Tree::Quarantine, channel.0.as_bytes(), entry)
    }

    pub(super) fn count_quarantined(&self, channel: ChannelId) -> Result<usize, StateError> {
        let mut count = 0;
        self.database.scan(Tree::Quarantine, channel.0.as_bytes(), &mut |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    pub(super) fn late_at(&self, channel: ChannelId, offset: Offset) -> Result<Option<Late>, StateError> {
        let stored = self.database.get(Tree::Late, &codec::event_key(channel, offset))?;
        stored.map(|value| codec::decode(&value)).transpose()
    }

    pub(super) fn quarantined_at(&self, channel: ChannelId, offset: Offset) -> Result<Option<Quarantined>, StateError> {
        let stored = self.database.get(Tree::Quarantine, &codec::event_key(channel, offset))?;
        stored.map(|value| codec::decode(&value)).transpose()
    }

    pub(super) fn blocker(&self, channel: ChannelId) -> Result<Option<Blocker>, StateError> {
        let stored = self.database.get(Tree::Blockers, channel.0.as_bytes())?;
        stored.map(|value| codec::decode(&value)).transpose()
    }

    pub(super) fn dead_letters(&self, channel: Option<ChannelId>) -> Result<Vec<(LaneKey, DeadLetter)>, StateError> {
        let prefix = channel.as_ref().map_or(&[][..], |channel| channel.0.as_bytes());
        let mut letters = Vec::new();
        self.database.scan(Tree::DeadLetters, prefix, &mut |key, value| {
            letters.push((codec::dead_letter_lane(key)?, codec::decode_dead_letter(value)?));
            Ok(())
        })?;
        Ok(letters)
    }

    pub(super) fn channels_in_quarantine(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        let mut channels = BTreeSet::new();
        self.database.scan(Tree::Quarantine, &[], &mut |key, _| {
            channels.insert(codec::event_of(key)?.0);
            Ok(())
        })?;
        Ok(channels)
    }

    pub(super) fn json(&self, channel: ChannelId, offset: Offset) -> Result<Option<Bytes>, StateError> {
        self.database.get(Tree::Json, &codec::event_key(channel, offset))
    }

    fn entries<K: Ord, V>(
        &self,
        tree: Tree,
        prefix: &[u8],
        read: impl Fn(&[u8], &[u8]) -> Result<(K, V), StateError>,
    ) -> Result<BTreeMap<K, V>, StateError> {
        let mut entries = BTreeMap::new();
        self.database.scan(tree, prefix, &mut |key, value| {
            entries.extend([read(key, value)?]);
            Ok(())
        })?;
        Ok(entries)
    }
}

/// Every event that waits for its proof.
pub(super) type LateEvents = BTreeMap<(ChannelId, Offset), Late>;
