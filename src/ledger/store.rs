//! Where ledgers are kept: a store persists effects and knows nothing else.
//!
//! # Invariants
//!
//! * **Durable before it answers.** [`Outcome::Ok`] means that the effects survive a power loss.
//! * **Fenced.** A store writes nothing for a lease that is not in force any more.
//!
//! # Adding a store
//!
//! One file or folder beside `sled.rs` that implements [`Store`], and a line in `daemon` that opens it. Entries are opaque: a
//! table's name, the key's bytes, the value's bytes (see [`Key`]).

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Digest, Effects, Entries, Key, Place, Proof, StateError};
use proof::event::ChannelId;

mod copy;
mod directory;
mod postgres;
pub mod shared;
mod sled;
mod used;

pub use copy::{Copied, copy};
pub use postgres::{Postgres, PostgresSettings};
pub use sled::Sled;

use directory::Directory;
use shared::{Hold, Membership};

/// Where the state is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// `state.path`: the directory of sled's database and of the control socket.
    pub path: PathBuf,
    /// The database that instances share; `None`: sled.
    pub database: Option<PostgresSettings>,
}

impl StateSettings {
    /// Opens the store. Blocks.
    ///
    /// # Errors
    /// If the directory is in use, or the state is not to be used as it is.
    pub fn open(self) -> Result<Arc<dyn Store>, StateError> {
        Ok(match self.database {
            None => Arc::new(Sled::open(&self.path)?),
            Some(database) => Arc::new(Postgres::open(Some(&self.path), database)?),
        })
    }

    /// What [`open`](Self::open) would find in the directory, or make, in words. Nothing is made or opened.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn examine(&self) -> Result<String, StateError> {
        match &self.database {
            None => Sled::examine(&self.path),
            Some(_) => Directory::examine(&self.path),
        }
    }
}

/// The right to work a channel: to deliver its events and to commit what it remembers.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The channel.
    pub channel: ChannelId,
    /// Grows with each claim: of two owners the one with the larger epoch is right.
    pub epoch: u64,
    /// Fires when another has taken the channel over.
    pub lost: CancellationToken,
    /// Until when it is in force at all; `None`: for ever.
    pub(crate) hold: Option<Arc<Hold>>,
}

impl Lease {
    /// A lease that nothing can take away: its store has one process.
    pub fn for_ever(channel: ChannelId) -> Self {
        Self { channel, epoch: 0, lost: CancellationToken::new(), hold: None }
    }

    /// Whether other instances may own the channel some day.
    pub fn is_shared(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether nothing may be begun under it: another owns the channel, or may.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled() || self.hold.as_ref().is_some_and(|hold| hold.left().is_zero())
    }
}

/// What came of one channel's effects.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// They are durable.
    Ok,
    /// The channel is not ours as we know it: nothing was written, and the channel's run ends.
    Lost(Loss),
    /// The store cannot be reached now: the same effects are tried again after a wait.
    Unavailable(StateError),
    /// Whether they are durable is unknown, and this process cannot find out: it ends, and the next one reads what is
    /// there. Nothing more is committed.
    Fatal(StateError),
}

/// Why nothing may be written under a lease any more. The channel is claimed and loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The lease has ended, or another instance has taken the channel over.
    #[error("this instance's lease of the channel has ended")]
    Ended,
    /// Another owns the channel.
    #[error("another instance owns the channel")]
    Overtaken,
    /// A failover, or a restored copy: the store has an older state of the channel than it acknowledged.
    #[error("the database has lost commits: it has version {stored} of the channel, after it acknowledged {recorded}")]
    Behind {
        /// What the store has.
        stored: u64,
        /// What it acknowledged.
        recorded: u64,
    },
    /// The store has a newer state of the channel than its only writer. A defect, or somebody changed the store.
    #[error("the database has version {stored} of the channel, and its only writer is at {version}")]
    Ahead {
        /// What the store has.
        stored: u64,
        /// What was to be written.
        version: u64,
    },
}

/// What was lost to a damaged store, and is known only by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// When the damage was found last, RFC 3339.
    pub at: String,
    /// Late events. None is lost: they are read again.
    pub late: u64,
    /// Quarantined events.
    pub quarantined: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Where the damaged store is kept as it was found.
    pub kept: Option<String>,
}

/// Somewhere ledgers are kept.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Claims a channel, and gives every entry of it, with bodies by their size alone. `None` where another owns it.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError>;

    /// Every entry of a channel, as [`claim`](Self::claim) gives them. Needs no claim.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError>;

    /// Persists the effects of several channels, one entry each, whole or not at all. As many answers as effects, in their
    /// order. The store keeps no copy of the group: what is unavailable is moved on to the next attempt.
    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<Outcome>;

    /// The body at a key.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError>;

    /// Gives a channel up. Nothing to do where there is one process.
    async fn release(&self, _: Lease) {}

    /// The channels of which anything is kept.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError>;

    /// Looks whether the store is still where it was.
    ///
    /// # Errors
    /// Why nothing can be written.
    async fn check(&self) -> Result<(), StateError>;

    /// What was lost to damage and no operator has acknowledged. Waits for nothing.
    fn lost(&self) -> Option<Lost> {
        None
    }

    /// An operator has seen what was lost: what that was.
    ///
    /// # Errors
    /// If the store cannot be written.
    async fn acknowledge_lost(&self) -> Result<Option<Lost>, StateError> {
        Ok(None)
    }

    /// Whether a copy to this store was begun and not ended.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn is_incomplete(&self) -> Result<bool, StateError> {
        Ok(false)
    }

    /// Marks the store as incomplete, durably, and removes what an interrupted copy has left.
    ///
    /// # Errors
    /// If the store keeps a complete state, or cannot be written.
    async fn begin_copy(&self) -> Result<(), StateError> {
        Ok(())
    }

    /// Marks the store as complete.
    ///
    /// # Errors
    /// If the store cannot be written.
    async fn end_copy(&self) -> Result<(), StateError> {
        Ok(())
    }

    /// Whether other processes work channels of it.
    fn is_shared(&self) -> bool {
        false
    }

    /// Notes that a channel shows these proofs, each of which belongs to the channel that showed it first. Gives those that
    /// another channel did. Where there is one process it knows all of them itself.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn show(&self, _: ChannelId, _: &[Proof]) -> Result<Vec<(Digest, Place)>, StateError> {
        Ok(Vec::new())
    }

    /// The instances that share it; `None` where there is one process.
    fn membership(self: Arc<Self>) -> Option<Arc<dyn Membership>> {
        None
    }
}
