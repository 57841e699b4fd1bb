//! Claimed channels: the right to change a ledger, and the only way to it.
//!
//! # Invariants
//!
//! * **One claim a channel.** A second claim of a channel waits until the first has ended and its commits are written.
//! * **In order.** Effects reach the store in the order in which commits were applied.
//! * **Durable before it answers.** [`Claim::commit`] returns when the store has the effects. Until then the ledger is
//!   ahead of the store: what reads it must not act on it towards the outside.
//!
//! # Cancellation
//!
//! Dropping the future of a commit that was begun does not undo it, nor does dropping the claim: the channel can be claimed
//! again when the commit is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};

use super::committer::{Committer, Request, Writes};
use super::store::{Lease, Lost, Outcome, Store};
use super::{Commit, Key, Ledger, Proof, Refusal, StateError};
use crate::event::ChannelId;

/// The proofs that one process remembers, all channels together.
pub const PROOFS: usize = 100_000;

/// The proofs that each channel remembers at least.
pub const PROOFS_OF_A_CHANNEL: usize = 1_000;

/// Why a commit is not durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The ledger refuses it. A defect.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another owns the channel now. What was not recorded, the other delivers.
    #[error("another instance owns the channel")]
    Lost,
    /// The state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The ledgers of a process.
#[derive(Debug)]
pub struct Ledgers {
    store: Arc<dyn Store>,
    /// Locked by the claim of each channel.
    owners: Mutex<HashMap<ChannelId, Arc<tokio::sync::Mutex<()>>>>,
    committer: Committer,
}

/// A channel that this process owns, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    lease: Lease,
    ledger: Arc<Mutex<Ledger>>,
    store: Arc<dyn Store>,
    commits: mpsc::Sender<Request>,
    /// Counts the commits, so that what waits for room can look again.
    changed: watch::Sender<u64>,
    owner: Arc<OwnedMutexGuard<()>>,
}

impl Ledgers {
    /// Over a store. Commits are written by a task of the runtime that this is called in.
    #[must_use]
    pub fn over(store: Arc<dyn Store>) -> Self {
        let committer = Committer::start(store.clone());
        Self { store, owners: Mutex::default(), committer }
    }

    /// Claims a channel, of which so many proofs are to be remembered; with the proofs that are, oldest first. Where this
    /// process has claimed it already, it waits for that claim to end. `None` where another process owns it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn claim(&self, channel: ChannelId, proofs: usize) -> Result<Option<(Claim, Vec<Proof>)>, StateError> {
        let owner = self.owner(channel).lock_owned().await;
        self.claim_as(owner, channel, proofs).await
    }

    /// As [`claim`](Self::claim), and `None` too where this process has claimed the channel already.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn try_claim(
        &self,
        channel: ChannelId,
        proofs: usize,
    ) -> Result<Option<(Claim, Vec<Proof>)>, StateError> {
        match self.owner(channel).try_lock_owned() {
            Ok(owner) => self.claim_as(owner, channel, proofs).await,
            Err(_) => Ok(None),
        }
    }

    fn owner(&self, channel: ChannelId) -> Arc<tokio::sync::Mutex<()>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).entry(channel).or_default().clone()
    }

    async fn claim_as(
        &self,
        owner: OwnedMutexGuard<()>,
        channel: ChannelId,
        proofs: usize,
    ) -> Result<Option<(Claim, Vec<Proof>)>, StateError> {
        let Some((lease, entries)) = self.store.claim(channel).await? else { return Ok(None) };
        let (ledger, delivered) = Ledger::load(entries, proofs)?;
        let claim = Claim {
            lease,
            ledger: Arc::new(Mutex::new(ledger)),
            store: self.store.clone(),
            commits: self.committer.commits(),
            changed: watch::Sender::default(),
            owner: Arc::new(owner),
        };
        Ok(Some((claim, delivered)))
    }

    /// Gives a claim up.
    pub async fn release(&self, claim: Claim) {
        self.store.release(claim.lease.clone()).await;
    }

    /// Ends the writing. Claims can commit nothing any more.
    pub async fn close(self) {
        self.committer.close().await;
    }

    /// The channels of which anything is kept.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        self.store.channels().await
    }

    /// The body of a late, quarantined or dead event.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError> {
        self.store.body(channel, key).await
    }

    /// How the writing goes.
    #[must_use]
    pub fn writes(&self) -> Arc<Writes> {
        self.committer.writes()
    }

    /// Why the state cannot be written; `None` where it can, as far as is known.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.committer.writes().trouble()
    }

    /// What was lost to a damaged store and no operator has acknowledged.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        self.store.lost()
    }

    /// An operator has seen what was lost: what that was.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn acknowledge_lost(&self) -> Result<Option<Lost>, StateError> {
        self.store.acknowledge_lost().await
    }
}

/// How many proofs each of so many channels remembers.
#[must_use]
pub fn proofs_each(channels: usize) -> usize {
    (PROOFS / channels.max(1)).max(PROOFS_OF_A_CHANNEL)
}

impl Claim {
    /// The channel.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.lease.channel
    }

    /// The right to work the channel.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The ledger, as commits that were applied have left it. Not to be held across an await.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same ledger, to be read where the claim is not.
    #[must_use]
    pub fn shared_ledger(&self) -> Arc<Mutex<Ledger>> {
        self.ledger.clone()
    }

    /// Applies a commit, and answers when it is durable. While the store cannot be reached, it waits.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn commit(&self, commit: Commit) -> Result<(), CommitError> {
        if self.lease.lost.is_cancelled() {
            return Err(CommitError::Lost);
        }
        let room = self.commits.reserve().await.map_err(|_| StateError::Closed)?;
        let done = {
            // Sent while the ledger is locked: the store sees commits in the order in which they were applied.
            let mut ledger = self.ledger();
            let effects = ledger.apply(commit)?;
            let (done, answer) = oneshot::channel();
            room.send(Request { owner: self.owner.clone(), lease: self.lease.clone(), effects, done });
            answer
        };
        let outcome = done.await.map_err(|_| StateError::Closed)?;
        self.changed.send_modify(|changes| *changes += 1);
        match outcome {
            Outcome::Ok => Ok(()),
            Outcome::Lost => {
                self.lease.lost.cancel();
                Err(CommitError::Lost)
            }
            Outcome::Unavailable(error) | Outcome::Fatal(error) => Err(error.into()),
        }
    }

    /// Waits until the ledger is as it has to be.
    pub async fn until(&self, mut holds: impl FnMut(&Ledger) -> bool) {
        let mut changed = self.changed.subscribe();
        while !holds(&self.ledger()) {
            if changed.changed().await.is_err() {
                // The sender is in `self`.
                return;
            }
        }
    }

    /// The body of a late, quarantined or dead event.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn body(&self, key: Key) -> Result<Option<Bytes>, StateError> {
        self.store.body(self.lease.channel, key).await
    }
}

#[cfg(test)]
mod tests;
