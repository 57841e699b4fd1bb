//! Storage for ledgers. A store persists effects and does not interpret them.
//!
//! # Invariants
//!
//! * **Durable before it answers.** [`CommitOutcome::Ok`] means that the effects survive a power loss.
//! * **Fenced.** A store writes nothing for a lease that is no longer in force.
//!
//! # Adding a store
//!
//! Add one file or folder next to `sled.rs` that implements [`Store`], and a line in `daemon` that opens it. Entries
//! are opaque to a store: a table name, the bytes of the key, and the bytes of the value (see [`Key`]).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{Digest, Effects, Entries, EventLocation, Key, Proof, StateError};
use proof::event::ChannelId;

mod copy;
mod directory;
pub mod discovered;
#[cfg(feature = "postgres")]
mod postgres;
mod settings;
pub mod shared;
mod sled;

pub use copy::{CopySummary, copy};
pub use settings::{HAS_POSTGRES, PostgresSettings, StateSettings};
pub use sled::Sled;

use shared::{LeaseTerm, Membership};

/// Runs blocking work on a separate thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StateError> + Send + 'static,
) -> Result<T, StateError> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())))
}

/// The right to run a channel: to deliver its events and to commit changes to its ledger.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The channel.
    pub channel: ChannelId,
    /// Grows with each claim. If two instances believe that they own the channel, the larger epoch wins.
    pub epoch: u64,
    /// Fires when the lease is lost, for example because another instance has taken over the channel.
    pub lost: CancellationToken,
    /// The time until which the lease is in force. `None` if the lease never ends.
    pub(crate) term: Option<Arc<LeaseTerm>>,
}

impl Lease {
    /// A lease that never ends, for a store that only one process uses.
    pub fn for_ever(channel: ChannelId) -> Self {
        Self { channel, epoch: 0, lost: CancellationToken::new(), term: None }
    }

    /// Whether other instances share the store, so that one of them can take over the channel.
    pub fn is_shared(&self) -> bool {
        self.term.is_some()
    }

    /// Whether no new work may start under this lease, because another instance owns the channel or could own it.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled() || self.term.as_ref().is_some_and(|term| term.left().is_zero())
    }
}

/// The result of committing one channel's effects.
#[derive(Clone, Debug)]
pub enum CommitOutcome {
    /// The effects are durable.
    Ok,
    /// The lease or the known version of the channel is no longer valid. Nothing was written, and the channel's run
    /// ends.
    Lost(Loss),
    /// The store is unavailable now. The same effects are tried again after a wait.
    Unavailable(StateError),
    /// It is unknown whether the effects are durable, and this process cannot find out. The process ends and commits
    /// nothing more. The next process reads the stored state.
    Fatal(StateError),
}

/// Why nothing more may be written under a lease. The channel must be claimed and loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name each field")]
pub enum Loss {
    /// The lease has ended, or another instance has taken over the channel.
    #[error("this instance's lease of the channel has ended")]
    Ended,
    #[error("another instance owns the channel")]
    Overtaken,
    /// After a failover, or after a backup was restored, the store has an older state of the channel than it
    /// acknowledged.
    #[error(
        "the database has lost commits: it has version {stored} of the channel, but it acknowledged version {recorded}"
    )]
    Behind { stored: u64, recorded: u64 },
    /// The store has a newer state of the channel than this instance, which is its only writer. This is a defect, or another
    /// program changed the store.
    #[error(
        "the database has version {stored} of the channel, but this instance, the only writer, is at version {version}"
    )]
    Ahead { stored: u64, version: u64 },
}

/// How many entries were lost because a store was damaged. Only their numbers are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEntries {
    /// When the damage was last found, in RFC 3339 format.
    pub at: String,
    /// Pending events. These events are not lost for good: channeld reads them again.
    pub late: u64,
    /// Quarantined events.
    pub quarantined: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// The path where the damaged store is kept in the form in which it was found.
    pub kept: Option<String>,
}

/// A wait for a shared table that lasts this long is logged, and the process is not ready.
pub const LONG_WAIT: Duration = Duration::from_secs(10);

/// A wait of at least [`LONG_WAIT`] for tables that instances share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableWait {
    /// The tables that the waiting statements use, separated by commas. At least one of the tables is locked or unusable.
    pub tables: String,
    /// For how long no statement on these tables has succeeded.
    pub lasts: Duration,
    /// The last error. `None` if the first statement is still waiting.
    pub error: Option<String>,
}

/// Stores ledgers. A method fails if the store cannot be read or written.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Claims a channel and returns all its entries. Bodies are represented by their size only. `None` if another
    /// instance owns the channel.
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError>;

    /// Returns all entries of a channel, like [`claim`](Self::claim). Needs no claim.
    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError>;

    /// Persists the effects of several channels. Each channel has one element in `group`, and its effects are persisted
    /// completely or not at all. Returns one outcome for each element, in the same order. The store must not keep a
    /// reference to the group after it returns: the caller then reuses unavailable effects for the next attempt without
    /// a copy.
    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<CommitOutcome>;

    /// The body that is stored under a key.
    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError>;

    /// Releases a channel. Does nothing in a store that only one process uses.
    async fn release(&self, _: Lease) {}

    /// The channels that have entries.
    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError>;

    /// Checks that the store still exists at its location. The error says why nothing can be written.
    async fn check(&self) -> Result<(), StateError>;

    /// The losses from damage that no operator has acknowledged. Does not block.
    fn lost(&self) -> Option<LostEntries> {
        None
    }

    /// Why the store acknowledges commits before they are on a disk. `None` if it does not, or if that is unknown. Does not
    /// block.
    fn early_ack(&self) -> Option<String> {
        None
    }

    /// Acknowledges the losses for an operator and returns them.
    async fn acknowledge_lost(&self) -> Result<Option<LostEntries>, StateError> {
        Ok(None)
    }

    /// The long waits for tables that instances share. Does not block.
    fn waits(&self) -> Vec<TableWait> {
        Vec::new()
    }

    /// Whether a copy to this store was started and not completed.
    async fn is_incomplete(&self) -> Result<bool, StateError> {
        Ok(false)
    }

    /// Durably marks the store as incomplete, and removes the leftovers of an interrupted copy. Fails if the store
    /// contains a complete state.
    async fn begin_copy(&self) -> Result<(), StateError> {
        Ok(())
    }

    /// Marks the store as complete.
    async fn end_copy(&self) -> Result<(), StateError> {
        Ok(())
    }

    /// Whether other processes can run channels of this store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Records that a channel shows these proofs. Each proof belongs to the channel that showed it first. Returns the
    /// proofs that another channel showed first. If only one process uses the store, that process knows all proofs
    /// itself, so the result is empty.
    async fn show(&self, _: ChannelId, _: &[Proof]) -> Result<Vec<(Digest, EventLocation)>, StateError> {
        Ok(Vec::new())
    }

    /// The instances that share the store. `None` if only one process uses it.
    fn membership(self: Arc<Self>) -> Option<Arc<dyn Membership>> {
        None
    }
}
