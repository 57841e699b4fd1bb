//! The commits that wait to be written, and the choice of the commits for the next write.
//!
//! # Invariants
//!
//! * **In order.** A channel's commits are written in the order in which they arrived.
//! * **Together again.** Commits of one channel that were written together, without a final outcome, are written together
//!   again: the store may already have them, and would then refuse a write that contains only the first of them.
//! * **In turn.** A channel that could not be written waits behind the other channels, so it delays them but does not stop
//!   them.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use bytes::Bytes;
use prometheus::IntCounter;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tracing::{debug, error, warn};

use crate::store::{CommitOutcome, Lease, Loss};
use crate::{Effects, Refusal, StateError};

/// When a write has this many bytes, no more commits are added to it. This limits the memory, because the store keeps
/// several copies of the bytes while it writes.
pub(super) const GROUP_BYTES: usize = 8 << 20;

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

#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<ChannelQueue>);

/// The waiting commits of a channel.
#[derive(Debug)]
pub(super) struct ChannelQueue {
    lease: Lease,
    commits: VecDeque<MergedCommits>,
    /// Whether the first element of `commits` could not be written because the store was unavailable.
    is_unavailable: bool,
}

/// Commits of one channel that are written together.
#[derive(Debug)]
struct MergedCommits {
    effects: Effects,
    waiters: Vec<CommitWaiter>,
}

/// The commits of one write.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// One element per channel.
    pub(super) effects: Vec<(Lease, Effects)>,
    /// The code that waits for each element, and the commits that wait behind the element.
    pub(super) unanswered: Vec<(Vec<CommitWaiter>, ChannelQueue)>,
    /// The number of commits.
    pub(super) commits: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of channels whose commits wait.
    pub(super) fn channels(&self) -> usize {
        self.0.len()
    }

    /// The number of bytes that wait, except those of the channel with the most bytes. Otherwise one channel that cannot be
    /// written could keep the commits of all others out of the queue.
    pub(super) fn bytes_without_largest(&self) -> usize {
        let bytes = |channel: &ChannelQueue| channel.commits.iter().map(MergedCommits::bytes).sum::<usize>();
        let (all, largest) = self.0.iter().map(bytes).fold((0, 0), |(all, most), one| (all + one, one.max(most)));
        all - largest
    }

    /// Whether commits wait that could not be written because the store was unavailable.
    pub(super) fn has_unavailable(&self) -> bool {
        self.0.iter().any(|channel| channel.is_unavailable)
    }

    /// Whether the next write begins with such commits.
    pub(super) fn is_next_unavailable(&self) -> bool {
        self.0.front().is_some_and(|channel| channel.is_unavailable)
    }

    /// Answers the commits of lost leases without a write. After an outage, each of them would otherwise wait for its turn.
    pub(super) fn end_lost(&mut self) {
        for channel in take(&mut self.0) {
            if channel.lease.lost.is_cancelled() {
                channel.end(&Err(Loss::Ended.into()));
            } else {
                self.0.push_back(channel);
            }
        }
    }

    pub(super) fn add(&mut self, (effects, waiter): Request) {
        let lease = waiter.owner.lease.clone();
        let commit = MergedCommits { effects, waiters: vec![waiter] };
        match self.0.iter_mut().find(|channel| channel.lease.channel == lease.channel) {
            Some(channel) => channel.commits.push_back(commit),
            None => self.0.push_back(ChannelQueue { lease, commits: [commit].into(), is_unavailable: false }),
        }
    }

    /// Takes up to `most` commits for the next write. Takes more only if they were written together before.
    pub(super) fn take(&mut self, most: usize) -> Group {
        let (mut group, mut bytes) = (Group::default(), 0);
        let has_room = |commits: usize, bytes: usize, next: &MergedCommits| {
            commits == 0 || commits + next.waiters.len() <= most && bytes < GROUP_BYTES
        };
        while let Some(mut channel) = self.0.pop_front() {
            let mut taken: Option<MergedCommits> = None;
            while channel.commits.front().is_some_and(|next| has_room(group.commits, bytes, next))
                && let Some(next) = channel.commits.pop_front()
            {
                group.commits += next.waiters.len();
                bytes += next.bytes();
                match &mut taken {
                    Some(taken) => taken.append(next),
                    None => taken = Some(next),
                }
            }
            let Some(MergedCommits { effects, waiters }) = taken else {
                self.0.push_front(channel);
                break;
            };
            group.effects.push((channel.lease.clone(), effects));
            group.unanswered.push((waiters, channel));
        }
        group
    }

    /// Answers the commits of a group whose outcome is final. The commits that could not be written because the store was
    /// unavailable wait again. Returns the error of a fatal write, if any.
    pub(super) fn answer(
        &mut self,
        effects: Vec<(Lease, Effects)>,
        unanswered: Vec<(Vec<CommitWaiter>, ChannelQueue)>,
        outcomes: Vec<CommitOutcome>,
    ) -> Option<StateError> {
        let mut fatal = None;
        for (((lease, effects), (waiters, mut channel)), outcome) in effects.into_iter().zip(unanswered).zip(outcomes) {
            channel.is_unavailable = false;
            let written = match outcome {
                CommitOutcome::Unavailable(_) if !lease.lost.is_cancelled() => {
                    channel.commits.push_front(MergedCommits { effects, waiters });
                    channel.is_unavailable = true;
                    self.0.push_back(channel);
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
            answer(waiters, &written);
            if written.is_ok() && !channel.commits.is_empty() {
                self.0.push_back(channel);
            } else {
                // Without the commits before them, these commits must not be written.
                channel.end(&written);
            }
        }
        fatal
    }
}

impl ChannelQueue {
    /// Answers all commits that wait.
    fn end(self, written: &Result<(), CommitError>) {
        self.commits.into_iter().for_each(|commit| answer(commit.waiters, written));
    }
}

fn answer(waiters: Vec<CommitWaiter>, written: &Result<(), CommitError>) {
    for CommitWaiter { done, .. } in waiters {
        // A stopped lane no longer waits for the answer. The commit is valid anyway.
        let _ = done.send(written.clone());
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

impl MergedCommits {
    fn bytes(&self) -> usize {
        self.effects.changes.iter().filter_map(|(_, value)| value.as_ref()).map(Bytes::len).sum()
    }

    fn append(&mut self, next: Self) {
        self.effects.changes.extend(next.effects.changes);
        self.effects.summary = next.effects.summary;
        self.waiters.extend(next.waiters);
    }
}
