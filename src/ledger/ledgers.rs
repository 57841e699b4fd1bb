//! The ledgers of the channels whose leases this process has. A ledger can only be changed through a [`LeasedLedger`].
//!
//! # Invariants
//!
//! * **One lease per channel.** A second [`claim`](Ledgers::claim) of a channel waits until the first lease has ended and
//!   its commits are written.
//! * **In order.** The effects of a channel reach the store in the order in which its commits were applied.
//! * **Durable before it answers.** [`LeasedLedger::commit`] returns only after the store has persisted the effects.
//!   Until then the ledger is ahead of the store, and code that reads the ledger must not cause effects outside the
//!   process.
//!
//! # Cancellation
//!
//! Dropping the future of a started commit does not undo the commit. Dropping the [`LeasedLedger`] does not undo it either:
//! the channel can be claimed again only after the commit has been written.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use prometheus::IntCounter;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::rules::{Changes, MovedEntry, rekey};
use crate::store::{CommitOutcome, Lease, Loss, Store};
use crate::{Commit, Digest, Entries, EventLocation, Key, Ledger, Proof, StateError};
use net::Chain;
use net::tasks::lock;
use proof::event::ChannelId;
use telemetry::metrics;

mod committer;
mod queue;
#[cfg(test)]
mod tests;

pub use committer::Writes;
pub use queue::CommitError;

use committer::UNAVAILABLE_WAIT;
use queue::{CommitWaiter, Owner, Request};

/// The number of proofs that one process remembers for all channels together.
pub const PROOFS: usize = 100_000;

/// The minimum number of proofs that each channel remembers.
pub const PROOFS_OF_A_CHANNEL: usize = 1_000;

/// The approximate size in bytes of the bodies that one commit of a migration moves.
const MOVED_BYTES: usize = 8 << 20;

/// The ledgers of a process.
#[derive(Debug)]
pub struct Ledgers {
    /// The store, for access that needs no lease: bodies, channels, and losses.
    pub store: Arc<dyn Store>,
    /// One lock per channel. It is locked while this process has the channel's lease.
    owners: Mutex<HashMap<ChannelId, Arc<tokio::sync::Mutex<()>>>>,
    commits: mpsc::Sender<Request>,
    releases: mpsc::UnboundedSender<Lease>,
    /// The progress of writes.
    pub writes: Arc<Writes>,
    /// Leases that this process has acquired.
    pub leases_taken: IntCounter,
    /// Leases that this process has lost.
    pub leases_lost: IntCounter,
    /// The tasks that write to the store and release leases. The tasks end when this value is dropped.
    tasks: JoinSet<()>,
}

/// A leased ledger, and the remembered proofs of its channel, oldest first.
pub type LedgerAndProofs = (LeasedLedger, Vec<Proof>);

/// The ledger and the lease of a channel. The lease is released after this value has been dropped.
#[derive(Debug)]
pub struct LeasedLedger {
    /// The right to run the channel.
    pub lease: Lease,
    /// Shared, so that code without the lease can read the ledger.
    pub ledger: Arc<Mutex<Ledger>>,
    store: Arc<dyn Store>,
    commits: mpsc::Sender<Request>,
    /// Wakes the tasks that wait for a change of the ledger, in the order in which they began to wait. The fixed order
    /// makes test runs reproducible.
    changed: Notify,
    owner: Arc<Owner>,
}

impl Ledgers {
    /// Creates the ledgers of a store. Commits are written by a task that is spawned on the current runtime.
    pub fn over(store: Arc<dyn Store>) -> Self {
        let (writes, mut tasks) = (Arc::default(), JoinSet::new());
        let (commits, releases) = committer::start(&store, &writes, &mut tasks);
        let leases_taken = metrics::counter("channeld_leases_taken_total");
        let leases_lost = metrics::counter("channeld_leases_lost_total");
        Self { store, owners: Mutex::default(), commits, releases, writes, leases_taken, leases_lost, tasks }
    }

    /// Acquires the lease of a channel and loads its ledger, which remembers up to `proofs` delivered proofs. If this
    /// process already has the lease, this method first waits until that lease ends. Returns `None` if another process
    /// owns the channel.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn claim(&self, channel: ChannelId, proofs: usize) -> Result<Option<LedgerAndProofs>, StateError> {
        let owner = self.owner(channel).lock_owned().await;
        self.claim_as(owner, channel, proofs).await
    }

    /// Like [`claim`](Self::claim), but also returns `None` if this process already has the lease.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn try_claim(&self, channel: ChannelId, proofs: usize) -> Result<Option<LedgerAndProofs>, StateError> {
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
        alone: OwnedMutexGuard<()>,
        channel: ChannelId,
        proofs: usize,
    ) -> Result<Option<LedgerAndProofs>, StateError> {
        let Some((lease, entries)) = self.store.claim(channel).await? else { return Ok(None) };
        note_unknown(channel, &entries);
        // If the ledger is unreadable, nothing is written under the lease. The lease is not released: otherwise the
        // instances would claim the channel one after another, and each would find that it is unreadable.
        let (mut ledger, delivered, moves) = load(entries, proofs).inspect_err(|_| lease.lost.cancel())?;
        if !self.migrate(&lease, &mut ledger, moves).await? {
            return Ok(None);
        }
        self.leases_taken.inc();
        let (releases, lost) = (self.releases.clone(), self.leases_lost.clone());
        let owner = Owner { lease: lease.clone(), releases, lost, _alone: alone };
        let leased = LeasedLedger {
            lease,
            ledger: Arc::new(Mutex::new(ledger)),
            store: self.store.clone(),
            commits: self.commits.clone(),
            changed: Notify::new(),
            owner: Arc::new(owner),
        };
        Ok(Some((leased, delivered)))
    }

    /// Moves entries of version 0.1 to their new keys. Returns `false` if another process has taken over the channel.
    /// Each commit moves whole entries, so an interrupted migration continues with the next lease.
    async fn migrate(&self, lease: &Lease, ledger: &mut Ledger, moves: Vec<MovedEntry>) -> Result<bool, StateError> {
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
                Some(CommitOutcome::Ok) => {}
                Some(CommitOutcome::Unavailable(error) | CommitOutcome::Fatal(error)) => return Err(error),
                Some(CommitOutcome::Lost(_)) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The recorded ledger of a channel, no matter which instance runs the channel.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read(&self, channel: ChannelId) -> Result<Ledger, StateError> {
        Ok(load(self.store.entries(channel).await?, 0)?.0)
    }

    /// Records that these proofs appeared in a channel. Returns the proofs that appeared in another channel first. See
    /// [`Store::show`]. Waits while the store cannot do this, because an event must not be delivered before its proof is
    /// recorded. Calls `failed` after each failed attempt, with the time since the first attempt began.
    pub async fn show(
        &self,
        channel: ChannelId,
        proofs: &[Proof],
        mut failed: impl FnMut(Duration, &StateError),
    ) -> Vec<(Digest, EventLocation)> {
        let began = Instant::now();
        loop {
            match self.store.show(channel, proofs).await {
                Ok(shown) => return shown,
                Err(error) => {
                    debug!(%channel, error = %Chain(&error), "it is not known yet whether another channel has shown the same proofs");
                    failed(began.elapsed(), &error);
                    sleep(UNAVAILABLE_WAIT).await;
                }
            }
        }
    }

    /// Stops writing. Leased ledgers can no longer commit.
    pub async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Returns the ledger of a channel, its delivered proofs, and the entries of version 0.1 that must be moved.
fn load(mut entries: Entries, proofs: usize) -> Result<(Ledger, Vec<Proof>, Vec<MovedEntry>), StateError> {
    let moves = rekey(&mut entries)?;
    let (ledger, delivered) = Ledger::load(entries, proofs)?;
    Ok((ledger, delivered, moves))
}

/// Logs the entries that this version does not know.
fn note_unknown(channel: ChannelId, entries: &Entries) {
    let kinds: BTreeSet<_> = entries.keys().filter(|key| matches!(key, Key::Other(_))).map(Key::kind).collect();
    if !kinds.is_empty() {
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        warn!(%channel, kinds, "the state of the channel has entries of unknown kinds, which a newer version wrote: they are kept and have no effect");
    }
}

/// The number of proofs that each channel remembers if `channels` channels share the total.
pub fn proofs_each(channels: usize) -> usize {
    (PROOFS / channels.max(1)).max(PROOFS_OF_A_CHANNEL)
}

impl LeasedLedger {
    /// The ledger after all applied commits. The guard must not be held across an await.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Applies a commit and returns when it is durable. Waits while the store cannot be reached.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn commit(&self, commit: Commit) -> Result<(), CommitError> {
        self.commit_with(|| commit).await
    }

    /// Like [`commit`](Self::commit), but builds the commit only when it can be applied. If the future is dropped while it
    /// waits for room in the queue of commits, `make` is not called. Use this if `make` also changes something outside the
    /// ledger.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn commit_with(&self, make: impl FnOnce() -> Commit) -> Result<(), CommitError> {
        if self.lease.is_lost() {
            return Err(Loss::Ended.into());
        }
        let room = self.commits.reserve().await.map_err(|_| StateError::Closed)?;
        let (done, written) = oneshot::channel();
        let commit = make();
        {
            // The request is sent while the ledger is locked, so that the store sees commits in the order in which they
            // were applied.
            let mut ledger = self.ledger();
            let effects = ledger.apply(commit)?;
            room.send((effects, CommitWaiter { owner: self.owner.clone(), done }));
        }
        self.changed.notify_waiters();
        written.await.map_err(|_| StateError::Closed)?
    }

    /// Waits until the ledger satisfies a condition.
    pub async fn until(&self, mut holds: impl FnMut(&Ledger) -> bool) {
        loop {
            // `changed` is created before the check, so that no later change is missed.
            let changed = self.changed.notified();
            if holds(&self.ledger()) {
                return;
            }
            changed.await;
        }
    }

    /// The body of a pending event, a quarantined event or a dead letter.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn body(&self, key: Key) -> Result<Option<Bytes>, StateError> {
        self.store.body(self.lease.channel, key).await
    }
}
