//! The tasks that write effects to the store and release leases. Commits that arrive during a write are written
//! together by the next write.
//!
//! # Invariants
//!
//! * **In order.** A channel's effects are written in the order in which they arrived. Effects that could not be
//!   written yet come before newer effects.
//! * **Nothing is written after a fatal error.** Every later commit is answered with the same error.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prometheus::{Histogram, IntCounter};
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use crate::store::{CommitOutcome, Lease, Loss, Store};
use crate::{Effects, Refusal, StateError};
use net::Chain;
use telemetry::metrics;

/// The largest number of commits that are added to a write.
const GROUP: usize = 64;

/// When a write has this many bytes, no more commits are added to it. This limits the memory, because the store keeps
/// several copies of the bytes while it writes.
const GROUP_BYTES: usize = 8 << 20;

/// The number of commits that may wait while a write is running.
const QUEUE: usize = 256;

/// The wait before an unavailable store is tried again.
pub(super) const UNAVAILABLE_WAIT: Duration = Duration::from_secs(1);

/// How often to check that the store still exists at its location.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Why a commit is not durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The ledger refuses the commit. This is a defect.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The lease is lost. Events that were not recorded are delivered by the next owner.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// The state cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The effects of a commit, and the code that waits for the commit.
pub(super) type Request = (Effects, CommitWaiter);

#[derive(Debug)]
pub(super) struct CommitWaiter {
    /// Keeps the channel claimed in this process until the effects are written, because the next claim must read these
    /// effects.
    pub(super) owner: Arc<Owner>,
    pub(super) done: oneshot::Sender<Result<(), CommitError>>,
}

/// Keeps a channel claimed in this process. This value is dropped after the last commit of the lease has been written.
/// The lease is then released in the store.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) lease: Lease,
    pub(super) releases: mpsc::UnboundedSender<Lease>,
    pub(super) lost: IntCounter,
    pub(super) _alone: OwnedMutexGuard<()>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.lease.is_lost() {
            self.lost.inc();
        }
        // Sending fails only if the process is ending. In that case, the leases are not released one by one.
        let _ = self.releases.send(self.lease.clone());
    }
}

/// The effects to write, merged into one element per channel, and the commits to answer for each element.
#[derive(Debug, Default)]
struct Group {
    effects: Vec<(Lease, Effects)>,
    answers: Vec<Vec<CommitWaiter>>,
}

/// Starts the tasks that write to a store, check it, and release the leases of owners that have ended. The tasks end when
/// `tasks` is dropped.
pub(super) fn start(
    store: &Arc<dyn Store>,
    writes: &Arc<Writes>,
    tasks: &mut JoinSet<()>,
) -> (mpsc::Sender<Request>, mpsc::UnboundedSender<Lease>) {
    let (commits, requests) = mpsc::channel(QUEUE);
    let (releases, released) = mpsc::unbounded_channel();
    tasks.spawn(serve(store.clone(), requests, writes.clone()));
    tasks.spawn(check(store.clone(), writes.clone()));
    tasks.spawn(release(store.clone(), released));
    (commits, releases)
}

async fn serve(store: Arc<dyn Store>, mut requests: mpsc::Receiver<Request>, writes: Arc<Writes>) {
    let (mut group, mut fatal) = (Group::default(), None);
    loop {
        if group.effects.is_empty() {
            let Some(first) = requests.recv().await else { return };
            group.add(first);
        }
        for _ in 1..GROUP {
            if group.bytes() >= GROUP_BYTES {
                break;
            }
            let Ok(next) = requests.try_recv() else { break };
            group.add(next);
        }
        let effects = Arc::new(take(&mut group.effects));
        let outcomes = match &fatal {
            None => writes.during(store.commit(effects.clone())).await,
            Some(error) => vec![CommitOutcome::Fatal(StateError::clone(error)); effects.len()],
        };
        writes.note(&outcomes);
        // If only some channels could not be written, the others do not wait.
        let is_any_written = outcomes.iter().any(|outcome| matches!(outcome, CommitOutcome::Ok));
        fatal = group.answer(Arc::unwrap_or_clone(effects), outcomes).or(fatal);
        if group.effects.is_empty() {
            // The commits that could not be written have lost their leases. Only `check` knows from now on whether the store is
            // available: there may be no other commit for a long time.
            writes.refused.send_replace(None);
        } else if !is_any_written && fatal.is_none() {
            // Perhaps only this channel cannot be written, and the next one can.
            let is_alone = group.effects.len() == 1;
            tokio::select! {
                () = sleep(UNAVAILABLE_WAIT) => {}
                Some(next) = requests.recv(), if is_alone => group.add(next),
            }
        }
    }
}

impl Group {
    fn bytes(&self) -> usize {
        let changes = self.effects.iter().flat_map(|(_, effects)| &effects.changes);
        changes.filter_map(|(_, value)| value.as_ref()).map(Bytes::len).sum()
    }

    fn add(&mut self, (effects, waiter): Request) {
        let lease = &waiter.owner.lease;
        if let Some(at) = self.effects.iter().position(|(known, _)| known.channel == lease.channel) {
            let known = &mut self.effects[at].1;
            known.changes.extend(effects.changes);
            known.summary = effects.summary;
            self.answers[at].push(waiter);
        } else {
            self.effects.push((lease.clone(), effects));
            self.answers.push(vec![waiter]);
        }
    }

    /// Answers the commits whose outcome is final. Keeps the commits that could not be written because the store was
    /// unavailable: they are tried again. Returns the error of a fatal write, if any.
    fn answer(&mut self, effects: Vec<(Lease, Effects)>, outcomes: Vec<CommitOutcome>) -> Option<StateError> {
        let mut fatal = None;
        for (((lease, effects), answers), outcome) in effects.into_iter().zip(take(&mut self.answers)).zip(outcomes) {
            let written = match outcome {
                CommitOutcome::Unavailable(_) if !lease.lost.is_cancelled() => {
                    self.effects.push((lease, effects));
                    self.answers.push(answers);
                    continue;
                }
                CommitOutcome::Ok => Ok(()),
                CommitOutcome::Lost(loss) => {
                    report(&lease, loss);
                    lease.lost.cancel();
                    Err(loss.into())
                }
                CommitOutcome::Unavailable(_) => Err(Loss::Ended.into()),
                CommitOutcome::Fatal(error) => Err(fatal.insert(error).clone().into()),
            };
            for CommitWaiter { done, .. } in answers {
                // A stopped lane no longer waits for the answer. The commit is valid anyway.
                let _ = done.send(written.clone());
            }
        }
        fatal
    }
}

/// Logs why a lease was lost. A takeover by another instance is normal. It is not normal that a store's
/// state differs from the state that it acknowledged.
fn report(lease: &Lease, loss: Loss) {
    let channel = lease.channel;
    match loss {
        Loss::Ended | Loss::Overtaken => debug!(%channel, reason = %loss, "a commit is refused"),
        Loss::Behind { .. } => {
            warn!(%channel, reason = %loss, "the channel is loaded again: events after its recorded cursors are delivered again");
        }
        Loss::Ahead { .. } => {
            error!(%channel, reason = %loss, "the channel is loaded again: find out which other program writes to the state");
        }
    }
}

async fn release(store: Arc<dyn Store>, mut released: mpsc::UnboundedReceiver<Lease>) {
    while let Some(lease) = released.recv().await {
        store.release(lease).await;
    }
}

async fn check(store: Arc<dyn Store>, writes: Arc<Writes>) {
    loop {
        let trouble = store.check().await.err();
        writes.trouble.send_replace(trouble.map(|error| Chain(&error).to_string()));
        sleep(CHECK_INTERVAL).await;
    }
}

/// The writes of a store: how long they take, whether one hangs, and whether writing is possible.
#[derive(Debug)]
pub struct Writes {
    began: watch::Sender<Option<Instant>>,
    /// The durations of writes.
    pub took: Histogram,
    trouble: watch::Sender<Option<String>>,
    /// Why the store was unavailable for the last write. `None` if the store was available.
    refused: watch::Sender<Option<String>>,
}

impl Default for Writes {
    fn default() -> Self {
        Self {
            began: watch::Sender::default(),
            took: metrics::commit_duration(),
            trouble: watch::Sender::default(),
            refused: watch::Sender::default(),
        }
    }
}

impl Writes {
    /// How long the current write has been running. `None` between writes.
    pub fn under_way(&self) -> Option<Duration> {
        self.began.borrow().map(|began| began.elapsed())
    }

    /// Why nothing can be written, or `None` if no problem is known.
    pub fn trouble(&self) -> Option<String> {
        self.refused.borrow().clone().or_else(|| self.trouble.borrow().clone())
    }

    /// Records whether commits can be written. Commits can fail even while [`Store::check`] succeeds.
    fn note(&self, outcomes: &[CommitOutcome]) {
        let refused = outcomes.iter().find_map(|outcome| match outcome {
            CommitOutcome::Unavailable(error) => Some(Chain(error).to_string()),
            _ => None,
        });
        match &refused {
            Some(error) if self.refused.borrow().is_none() => {
                warn!(error, "the state cannot be written: channels wait, retrying");
            }
            None if self.refused.borrow().is_some() => info!("the state is writable again"),
            _ => {}
        }
        self.refused.send_replace(refused);
    }

    /// Records when a write begins and ends, so that a hanging write can be detected.
    pub async fn during<T>(&self, write: impl Future<Output = T>) -> T {
        let began = Instant::now();
        self.began.send_replace(Some(began));
        let written = write.await;
        self.began.send_replace(None);
        self.took.observe(began.elapsed().as_secs_f64());
        written
    }
}
