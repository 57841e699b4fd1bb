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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use prometheus::IntCounter;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::debug;

use super::committer::{self, Answer, Request, UNAVAILABLE_WAIT, Writes};
use super::migrate::{self, Moved};
use super::store::{Lease, Loss, Outcome, Store};
use super::{Changes, Commit, Digest, Key, Ledger, Place, Proof, Refusal, StateError};
use net::Chain;
use net::tasks::lock;
use proof::event::ChannelId;
use telemetry::metrics;

/// The proofs that one process remembers, all channels together.
pub const PROOFS: usize = 100_000;

/// The proofs that each channel remembers at least.
pub const PROOFS_OF_A_CHANNEL: usize = 1_000;

/// The bodies that one commit of a migration moves take about so many bytes.
const MOVED_BYTES: usize = 8 << 20;

/// Why a commit is not durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The ledger refuses it. A defect.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The lease is lost. What was not recorded is delivered by the next owner.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// The state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The ledgers of a process.
#[derive(Debug)]
pub struct Ledgers {
    /// Where they are kept, for what needs no claim: bodies, channels, and what was lost.
    pub store: Arc<dyn Store>,
    /// Locked by the owner of each channel.
    owners: Mutex<HashMap<ChannelId, Arc<tokio::sync::Mutex<()>>>>,
    commits: mpsc::Sender<Request>,
    releases: mpsc::UnboundedSender<Lease>,
    /// How the writing goes.
    pub writes: Arc<Writes>,
    /// How often channels were claimed.
    pub claims: Claims,
    /// They write, as long as this lives.
    tasks: JoinSet<()>,
}

/// How often channels were claimed.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Claims that this process has made.
    pub made: IntCounter,
    /// Those that another has ended.
    pub lost: IntCounter,
}

/// A claim, and the proofs that are remembered of its channel, oldest first.
pub type Claimed = (Claim, Vec<Proof>);

/// A channel that this process owns, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The right to work the channel.
    pub lease: Lease,
    /// Shared so that it can be read where the claim is not.
    pub ledger: Arc<Mutex<Ledger>>,
    store: Arc<dyn Store>,
    commits: mpsc::Sender<Request>,
    /// Wakes what waits for room, in the order in which it began to wait: a test history must repeat exactly.
    changed: Notify,
    owner: Arc<Owner>,
}

/// Keeps a channel claimed in this process, and gives it up at the store when its last commit is written.
#[derive(Debug)]
pub(super) struct Owner {
    lease: Lease,
    releases: mpsc::UnboundedSender<Lease>,
    lost: IntCounter,
    _alone: OwnedMutexGuard<()>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.lease.is_lost() {
            self.lost.inc();
        }
        // At the end of the process nothing is given up one by one any more.
        let _ = self.releases.send(self.lease.clone());
    }
}

impl Ledgers {
    /// Over a store. Commits are written by a task of the runtime that this is called in.
    pub fn over(store: Arc<dyn Store>) -> Self {
        let (writes, mut tasks) = (Arc::default(), JoinSet::new());
        let commits = committer::start(&store, &writes, &mut tasks);
        let (releases, released) = mpsc::unbounded_channel();
        tasks.spawn(release(store.clone(), released));
        let claims = Claims {
            made: metrics::counter("channeld_claims_total"),
            lost: metrics::counter("channeld_claims_lost_total"),
        };
        Self { store, owners: Mutex::default(), commits, releases, writes, claims, tasks }
    }

    /// Claims a channel, of which so many proofs are to be remembered. Where this process has claimed it already, it waits
    /// for that claim to end. `None` where another process owns it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn claim(&self, channel: ChannelId, proofs: usize) -> Result<Option<Claimed>, StateError> {
        let owner = self.owner(channel).lock_owned().await;
        self.claim_as(owner, channel, proofs).await
    }

    /// As [`claim`](Self::claim), and `None` too where this process has claimed the channel already.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn try_claim(&self, channel: ChannelId, proofs: usize) -> Result<Option<Claimed>, StateError> {
        match self.owner(channel).try_lock_owned() {
            Ok(owner) => self.claim_as(owner, channel, proofs).await,
            Err(_) => Ok(None),
        }
    }

    fn owner(&self, channel: ChannelId) -> Arc<tokio::sync::Mutex<()>> {
        lock(&self.owners).entry(channel).or_default().clone()
    }

    async fn claim_as(
        &self,
        owner: OwnedMutexGuard<()>,
        channel: ChannelId,
        proofs: usize,
    ) -> Result<Option<Claimed>, StateError> {
        let Some((lease, mut entries)) = self.store.claim(channel).await? else { return Ok(None) };
        let moves = migrate::rekey(&mut entries)?;
        let (mut ledger, delivered) = Ledger::load(entries, proofs)?;
        if !self.migrate(&lease, &mut ledger, moves).await? {
            return Ok(None);
        }
        self.claims.made.inc();
        let (releases, lost) = (self.releases.clone(), self.claims.lost.clone());
        let owner = Owner { lease: lease.clone(), releases, lost, _alone: owner };
        let claim = Claim {
            lease,
            ledger: Arc::new(Mutex::new(ledger)),
            store: self.store.clone(),
            commits: self.commits.clone(),
            changed: Notify::new(),
            owner: Arc::new(owner),
        };
        Ok(Some((claim, delivered)))
    }

    /// Moves entries of version 0.1 to their new keys; `false` if another process owns the channel by now. Each commit moves
    /// whole entries, so an interrupted migration continues with the next claim.
    async fn migrate(&self, lease: &Lease, ledger: &mut Ledger, moves: Vec<Moved>) -> Result<bool, StateError> {
        let mut moves = moves.into_iter().peekable();
        while moves.peek().is_some() {
            let (mut changes, mut bytes) = (Changes::new(), 0);
            while bytes < MOVED_BYTES
                && let Some(moved) = moves.next()
            {
                let json = self.store.body(lease.channel, moved.body.0.clone()).await?;
                bytes += json.as_ref().map_or(0, Bytes::len);
                changes.extend(moved.changes(json));
            }
            let effects = ledger.effects(changes);
            let outcomes = self.store.commit(Arc::new(vec![(lease.clone(), effects)])).await;
            match outcomes.into_iter().next() {
                Some(Outcome::Ok) => {}
                Some(Outcome::Unavailable(error) | Outcome::Fatal(error)) => return Err(error),
                Some(Outcome::Lost(_)) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The ledger of a channel as it is recorded, in whichever instance it runs.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read(&self, channel: ChannelId) -> Result<Ledger, StateError> {
        let mut entries = self.store.entries(channel).await?;
        migrate::rekey(&mut entries)?;
        Ok(Ledger::load(entries, 0)?.0)
    }

    /// Notes that a channel shows these proofs, and gives those that another channel showed before, as [`Store::show`] does.
    /// While the store cannot be reached, it waits: nothing could be recorded either.
    pub async fn show(&self, channel: ChannelId, proofs: &[Proof]) -> Vec<(Digest, Place)> {
        loop {
            match self.store.show(channel, proofs).await {
                Ok(shown) => return shown,
                Err(error) => {
                    debug!(%channel, error = %Chain(&error), "whether another channel has shown the same proofs is not known yet");
                    sleep(UNAVAILABLE_WAIT).await;
                }
            }
        }
    }

    /// Ends the writing. Claims can commit nothing any more.
    pub async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn release(store: Arc<dyn Store>, mut released: mpsc::UnboundedReceiver<Lease>) {
    while let Some(lease) = released.recv().await {
        store.release(lease).await;
    }
}

/// How many proofs each of so many channels remembers.
pub fn proofs_each(channels: usize) -> usize {
    (PROOFS / channels.max(1)).max(PROOFS_OF_A_CHANNEL)
}

impl Claim {
    /// The ledger, as commits that were applied have left it. Not to be held across an await.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Applies a commit, and answers when it is durable. While the store cannot be reached, it waits.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn commit(&self, commit: Commit) -> Result<(), CommitError> {
        if self.lease.is_lost() {
            return Err(Loss::Ended.into());
        }
        let room = self.commits.reserve().await.map_err(|_| StateError::Closed)?;
        let (done, written) = oneshot::channel();
        {
            // Sent while the ledger is locked: the store sees commits in the order in which they were applied.
            let mut ledger = self.ledger();
            let effects = ledger.apply(commit)?;
            let answer = Answer { _owner: self.owner.clone(), done };
            room.send(Request { lease: self.lease.clone(), effects, answer });
        }
        self.changed.notify_waiters();
        written.await.map_err(|_| StateError::Closed)?
    }

    /// Waits until the ledger is as it has to be.
    pub async fn until(&self, mut holds: impl FnMut(&Ledger) -> bool) {
        loop {
            // Before the look, so that no change after it is missed.
            let changed = self.changed.notified();
            if holds(&self.ledger()) {
                return;
            }
            changed.await;
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
