//! The tasks that write effects to the store and release leases. Commits that arrive during a write are written
//! together by the next write.
//!
//! # Invariants
//!
//! * **In order.** A channel's effects are written in the order in which they arrived. Effects that could not be
//!   written yet come before newer effects. See [`Queue`].
//! * **Not the same again.** A write that was too large for the store's time limit would fail again and again. After a
//!   write that failed slowly, the next one has fewer commits, down to one, or to the commits of one channel that must be
//!   written together. See [`RequestSize`].
//! * **Nothing is written after a fatal error.** Every later commit is answered with the same error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::Histogram;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::queue::{GROUP_BYTES, Group, Queue, Request};
use crate::StateError;
use crate::store::{CommitOutcome, Lease, Store};
use net::Chain;
use net::request_size::RequestSize;
use telemetry::metrics;

/// The largest number of commits in a write.
const GROUP: usize = 64;

/// A write that fails after this time or later was perhaps too large. A refused connection and a locked row fail sooner.
const SLOW: Duration = Duration::from_secs(1);

/// After a slow failure, the next write has the number of its commits divided by this.
const SHRINK: usize = 4;

/// The number of commits that may wait while a write is running.
const QUEUE: usize = 256;

/// The wait before an unavailable store is tried again.
pub(super) const UNAVAILABLE_WAIT: Duration = Duration::from_secs(1);

/// How often to check that the store still exists at its location.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

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
    let (mut queue, mut size, mut fatal) = (Queue::default(), RequestSize::new(GROUP), None);
    loop {
        if queue.is_empty() {
            let Some(first) = requests.recv().await else { return };
            queue.add(first);
        }
        for _ in 1..GROUP {
            if queue.bytes_without_largest() >= GROUP_BYTES {
                break;
            }
            let Ok(next) = requests.try_recv() else { break };
            queue.add(next);
        }
        queue.end_lost();
        if queue.is_empty() {
            // Only `check` knows from now on whether the store is available: there may be no other commit for a long time.
            writes.note(None, false, false);
            continue;
        }
        let Group { effects, unanswered, commits } = queue.take(size.events());
        let (effects, began) = (Arc::new(effects), tokio::time::Instant::now());
        let outcomes = match &fatal {
            None => writes.during(store.commit(effects.clone())).await,
            Some(error) => vec![CommitOutcome::Fatal(StateError::clone(error)); effects.len()],
        };
        let refused = why_unavailable(&outcomes);
        // If only some channels could not be written, the others do not wait.
        let has_answered = outcomes.iter().any(|outcome| matches!(outcome, CommitOutcome::Ok | CommitOutcome::Lost(_)));
        let is_failed = refused.is_some() && !has_answered;
        if has_answered {
            size.succeeded(commits);
        } else if is_failed && began.elapsed() >= SLOW {
            size.shrink_to(commits.min(size.events()) / SHRINK);
        }
        fatal = queue.answer(Arc::unwrap_or_clone(effects), unanswered, outcomes).or(fatal);
        writes.note(refused, queue.has_unavailable(), has_answered);
        if is_failed && queue.is_next_unavailable() && fatal.is_none() {
            // Perhaps only this channel cannot be written, and the next one can.
            let is_alone = queue.channels() == 1;
            tokio::select! {
                () = sleep(UNAVAILABLE_WAIT) => {}
                Some(next) = requests.recv(), if is_alone => queue.add(next),
            }
        }
    }
}

/// Why the store was unavailable, if it was.
fn why_unavailable(outcomes: &[CommitOutcome]) -> Option<String> {
    outcomes.iter().find_map(|outcome| match outcome {
        CommitOutcome::Unavailable(error) => Some(Chain(error).to_string()),
        _ => None,
    })
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
    /// Why commits that wait could not be written. `None` if no such commits wait.
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

    /// Records whether commits can be written. Commits can fail even while [`Store::check`] succeeds. `refused` is the
    /// reason why the last write failed, if it failed, and `has_answered` says whether the store answered it. `is_waiting`
    /// says whether commits wait that could not be written, by this write or by an earlier one.
    fn note(&self, refused: Option<String>, is_waiting: bool, has_answered: bool) {
        let before = self.refused.borrow().clone();
        let refused = refused.or_else(|| before.clone()).filter(|_| is_waiting);
        match (&before, &refused) {
            (None, Some(error)) => warn!(error, "the state cannot be written: channels wait, retrying"),
            (Some(_), None) if has_answered => info!("the state is writable again"),
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
