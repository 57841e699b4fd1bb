//! What the daemon remembers: cursors, late proofs and quarantined events, in sled, with a readable mirror.
//!
//! # Invariants
//!
//! * **One transaction a commit.** A lane's cursor moves together with the late proofs and quarantined events that the
//!   move produced, or not at all.
//! * **On disk before it counts.** [`State::commit`] answers after the database file, and then the mirror, have been
//!   synced. sled's own flush ends in `sync_file_range`, which is no durability barrier.
//! * **Cursors never go back** by themselves: a commit that would move one backwards is refused. An operator's word,
//!   [`Commit::set`], may.
//! * **One process.** The directory is locked as long as a [`State`] lives.
//!
//! A failed write is final for this process: what a failed sync left on disk is unknown, and sled refuses to go on. The
//! daemon ends, and the next start reads what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::event::{ChannelId, EventId, Offset};

mod changes;
mod codec;
mod committer;
mod database;
mod directory;
mod error;
mod held;
#[cfg(test)]
pub(crate) mod memory;
mod mirror;
mod store;
mod trees;
mod writes;

pub use codec::{Blocker, GivenUp, Late, Quarantined};
pub use error::StateError;
pub use held::{Held, MAX_QUARANTINED, MAX_QUARANTINED_BYTES};
pub use writes::Writes;

use committer::{Committer, Files};
use directory::Directory;
use store::Store;

/// One sink of one channel: what a cursor belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// The channel's id at the service, so that renaming a channel keeps its cursors.
    pub channel: ChannelId,
    /// The sink's name in the configuration.
    pub sink: Arc<str>,
}

/// How far a lane has got: everything up to here was delivered, set aside for its late proof, or quarantined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// `None` is before the first event.
    pub through: Option<Offset>,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.through {
            Some(offset) => offset.fmt(f),
            None => f.write_str("the start"),
        }
    }
}

/// An event that a lane is owed: its proof has not come, or an operator wants it delivered once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its place.
    pub offset: Offset,
    /// What it is read again by, where that should be needed.
    pub event_id: Option<EventId>,
    /// When it was first seen, Unix seconds.
    pub first_seen: i64,
    /// The record as it came.
    pub json: bytes::Bytes,
}

/// An event that a sink gave up on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What is known about it.
    pub facts: GivenUp,
    /// The event as it came, on one line.
    pub json: bytes::Bytes,
}

/// An event to be kept as evidence instead of delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What is known about it.
    pub facts: Quarantined,
    /// The record as it came.
    pub json: bytes::Bytes,
}

/// What one step of one channel changes, all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The lane's new position.
    pub cursor: Option<(LaneKey, Cursor)>,
    /// Events that the lane has passed without delivering them: it is owed them.
    pub pending: Vec<(LaneKey, Pending)>,
    /// Late events that the lane has now got.
    pub settled: Vec<(LaneKey, Offset)>,
    /// Events condemned. One that waited for its proof waits no longer.
    pub quarantined: Vec<(ChannelId, Evidence)>,
    /// Events that leave the quarantine to be delivered after all.
    pub acquitted: Vec<(ChannelId, Acquitted)>,
    /// Evidence that an operator throws away.
    pub dropped: Vec<(ChannelId, Offset)>,
    /// Cursors that an operator puts elsewhere, backwards too.
    pub set: Vec<(LaneKey, Cursor)>,
    /// The event that everything else of the channel waits for now, in strict ordering.
    pub blocker: Option<(ChannelId, Blocker)>,
    /// Events that the lane's sink gave up on.
    pub given_up: Vec<(LaneKey, DeadLetter)>,
    /// Dead letters that are none any more.
    pub unburied: Vec<(LaneKey, Offset)>,
}

/// A quarantined event that is owed to those who passed it. Where nobody has, it stays: it will be read in its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquitted {
    /// Its place.
    pub offset: Offset,
    /// What it is read again by, where that should be needed.
    pub event_id: Option<EventId>,
    /// When the wait for its proof began anew, Unix seconds.
    pub since: i64,
    /// Those who may have passed it: whose cursor has, is owed it.
    pub sinks: Vec<Arc<str>>,
}

/// What one lane finds when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneState {
    /// Where it is; `None` where it has never been.
    pub cursor: Option<Cursor>,
    /// The late events that it is owed.
    pub owed: BTreeSet<Offset>,
}

/// The open state of this process.
#[derive(Debug)]
pub struct State {
    /// Until the state is dropped.
    store: Option<Store>,
    commits: mpsc::Sender<committer::Request>,
    writer: Writer,
    writes: Arc<Writes>,
}

/// What serves the commits.
#[derive(Debug)]
enum Writer {
    /// Writes to the directory, which it keeps locked.
    Thread { thread: Option<std::thread::JoinHandle<()>>, _directory: Directory },
    #[cfg(test)]
    Task(tokio::task::JoinSet<()>),
}

/// Commits that may wait for the one being written.
const QUEUE: usize = 256;

impl State {
    /// Opens the state in `path`, creating it where there is none, restoring the cursors from their mirror where the
    /// database does not open. Blocks.
    ///
    /// # Errors
    /// [`StateError`]: nothing is started on a state that is not known to be right.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let directory = Directory::lock(path)?;
        let store = directory.open_store()?;
        let (commits, requests) = mpsc::channel(QUEUE);
        let files = Files { database: directory.database_files(), mirror: directory.mirror() };
        let committer = Committer::new(store.clone(), files)?;
        let writes = committer.writes();
        let thread = std::thread::Builder::new()
            .name("state".to_owned())
            .spawn(move || committer.run(requests))
            .map_err(|error| StateError::io("starting the state's thread", error))?;
        let writer = Writer::Thread { thread: Some(thread), _directory: directory };
        Ok(Self { store: Some(store), commits, writer, writes })
    }

    /// Writes `commit`, and answers once it is on disk.
    ///
    /// # Errors
    /// [`StateError`]: it is not known to be on disk, and nothing more can be written.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the write.
    pub async fn commit(&self, commit: Commit) -> Result<(), StateError> {
        let (done, answer) = oneshot::channel();
        self.commits.send((commit, done)).await.map_err(|_| StateError::Closed)?;
        answer.await.map_err(|_| StateError::Closed)?
    }

    /// How the writing goes, for whoever watches it.
    #[must_use]
    pub fn writes(&self) -> Arc<Writes> {
        self.writes.clone()
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is taken only when the state is dropped")
    }

    /// What is recorded about a lane.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn lane(&self, lane: &LaneKey) -> Result<LaneState, StateError> {
        let owed = self.late(lane.channel)?.into_iter().filter(|(_, late)| late.owed.contains(&*lane.sink));
        Ok(LaneState { cursor: self.store().cursor(lane)?, owed: owed.map(|(offset, _)| offset).collect() })
    }

    /// The events of a channel that wait for their proof.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn late(&self, channel: ChannelId) -> Result<BTreeMap<Offset, Late>, StateError> {
        self.store().late(channel)
    }

    /// The quarantined events of a channel.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn quarantined(&self, channel: ChannelId) -> Result<BTreeMap<Offset, Quarantined>, StateError> {
        self.store().quarantined(channel)
    }

    /// How many quarantined events a channel has.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn count_quarantined(&self, channel: ChannelId) -> Result<usize, StateError> {
        self.store().count_quarantined(channel)
    }

    /// The event at `offset`, if it waits for its proof.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn late_at(&self, channel: ChannelId, offset: Offset) -> Result<Option<Late>, StateError> {
        self.store().late_at(channel, offset)
    }

    /// Whether a lane is owed the late event at `offset`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn owes(&self, lane: &LaneKey, offset: Offset) -> Result<bool, StateError> {
        Ok(self.late_at(lane.channel, offset)?.is_some_and(|late| late.owed.contains(&*lane.sink)))
    }

    /// Every cursor there is, those of lanes that are no longer configured included.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn cursors(&self) -> Result<BTreeMap<LaneKey, Cursor>, StateError> {
        self.store().cursors()
    }

    /// The channels that have something in the quarantine.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn channels_in_quarantine(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        self.store().channels_in_quarantine()
    }

    /// What a channel waited for last, in strict ordering.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn blocker(&self, channel: ChannelId) -> Result<Option<Blocker>, StateError> {
        self.store().blocker(channel)
    }

    /// What is known of a quarantined event.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn quarantined_at(&self, channel: ChannelId, offset: Offset) -> Result<Option<Quarantined>, StateError> {
        self.store().quarantined_at(channel, offset)
    }

    /// The dead letters of a channel, or of all, in the order of channels and offsets.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn dead_letters(&self, channel: Option<ChannelId>) -> Result<Vec<(LaneKey, DeadLetter)>, StateError> {
        self.store().dead_letters(channel)
    }

    /// What the dead letters hold, as it changes.
    pub fn dead(&self) -> watch::Receiver<Held> {
        self.store().dead()
    }

    /// What the quarantine holds, as it changes.
    pub fn held(&self) -> watch::Receiver<Held> {
        self.store().held()
    }

    /// The bytes of an event that waits or is quarantined.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn json(&self, channel: ChannelId, offset: Offset) -> Result<Option<bytes::Bytes>, StateError> {
        self.store().json(channel, offset)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The thread ends when the last sender is gone; a commit in hand is finished first.
        let (closed, _) = mpsc::channel(1);
        self.commits = closed;
        self.writer.end();
        // sled syncs once more when it is dropped, though every commit has been, and panics where that fails.
        let store = self.store.take();
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(store))).is_err() {
            tracing::warn!("the state database could not be closed in order: what is recorded is on disk all the same");
        }
    }
}

impl Writer {
    /// Waits for it to end.
    fn end(&mut self) {
        match self {
            Self::Thread { thread, .. } => {
                if thread.take().is_some_and(|thread| thread.join().is_err()) {
                    tracing::error!("the state's thread panicked");
                }
            }
            #[cfg(test)]
            Self::Task(tasks) => tasks.abort_all(),
        }
    }
}

#[cfg(test)]
mod tests;
