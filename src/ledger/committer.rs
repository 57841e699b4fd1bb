//! The task that hands effects to the store: commits that arrive while others are being written are written together.
//!
//! # Invariants
//!
//! * **In order.** A channel's effects are written in the order in which they came, those that had to wait first.
//! * **Nothing after a fatal write.** Every later commit is answered with the same error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::Histogram;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::store::{Lease, Outcome, Store};
use super::{Effects, StateError};
use crate::event::ChannelId;
use crate::metrics;
use crate::telemetry::Chain;

/// Commits that are written together at most.
const GROUP: usize = 64;

/// Commits that may wait for those being written.
const QUEUE: usize = 256;

/// The wait before a store that could not be reached is tried again.
const UNAVAILABLE_WAIT: Duration = Duration::from_secs(1);

/// Between two looks whether the store is still where it was.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A commit's effects, and where to answer.
#[derive(Debug)]
pub(super) struct Request {
    /// Keeps the channel claimed in this process until its effects are written: the next claim reads them.
    pub(super) owner: Arc<OwnedMutexGuard<()>>,
    pub(super) lease: Lease,
    pub(super) effects: Effects,
    pub(super) done: oneshot::Sender<Outcome>,
}

/// The running task. It ends with this.
#[derive(Debug)]
pub(super) struct Committer {
    commits: mpsc::Sender<Request>,
    writes: Arc<Writes>,
    tasks: JoinSet<()>,
}

/// One channel's effects that are to be written, and where to answer.
#[derive(Debug)]
struct Waiting {
    _owner: Arc<OwnedMutexGuard<()>>,
    lease: Lease,
    effects: Effects,
    done: Vec<oneshot::Sender<Outcome>>,
}

type Group = BTreeMap<ChannelId, Waiting>;

impl Committer {
    pub(super) fn start(store: Arc<dyn Store>) -> Self {
        let (commits, requests) = mpsc::channel(QUEUE);
        let (writes, mut tasks) = (Arc::<Writes>::default(), JoinSet::new());
        tasks.spawn(serve(store.clone(), requests, writes.clone()));
        tasks.spawn(check(store, writes.clone()));
        Self { commits, writes, tasks }
    }

    /// Ends when what is being written has been.
    pub(super) async fn close(self) {
        let Self { commits, mut tasks, .. } = self;
        drop(commits);
        tasks.shutdown().await;
    }

    pub(super) fn commits(&self) -> mpsc::Sender<Request> {
        self.commits.clone()
    }

    pub(super) fn writes(&self) -> Arc<Writes> {
        self.writes.clone()
    }
}

async fn serve(store: Arc<dyn Store>, mut requests: mpsc::Receiver<Request>, writes: Arc<Writes>) {
    let mut waiting = Group::new();
    loop {
        if waiting.is_empty() {
            let Some(first) = requests.recv().await else { return };
            add(&mut waiting, first);
        }
        let mut taken = 1;
        while taken < GROUP
            && let Ok(next) = requests.try_recv()
        {
            add(&mut waiting, next);
            taken += 1;
        }
        let outcomes = write(&*store, &waiting, &writes).await;
        let fatal = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Fatal(error) => Some(error.clone()),
            _ => None,
        });
        waiting = answer(waiting, outcomes);
        if let Some(error) = fatal {
            return refuse(waiting, requests, error).await;
        }
        if !waiting.is_empty() {
            sleep(UNAVAILABLE_WAIT).await;
        }
    }
}

fn add(waiting: &mut Group, Request { owner, lease, effects, done }: Request) {
    let channel = waiting.entry(lease.channel).or_insert_with(|| Waiting {
        _owner: owner,
        lease,
        effects: Effects::default(),
        done: Vec::new(),
    });
    channel.effects.changes.extend(effects.changes);
    channel.effects.summary = effects.summary;
    channel.done.push(done);
}

async fn write(store: &dyn Store, waiting: &Group, writes: &Writes) -> Vec<Outcome> {
    let group = waiting.values().map(|waiting| (waiting.lease.clone(), waiting.effects.clone())).collect();
    let began = writes.begin();
    let outcomes = store.commit(group).await;
    writes.end(began);
    outcomes
}

/// Answers what has an outcome; what has to wait is left.
fn answer(waiting: Group, outcomes: Vec<Outcome>) -> Group {
    let mut left = Group::new();
    for ((channel, waiting), outcome) in waiting.into_iter().zip(outcomes) {
        match outcome {
            Outcome::Unavailable(_) if !waiting.lease.lost.is_cancelled() => drop(left.insert(channel, waiting)),
            outcome => waiting.answer(&outcome),
        }
    }
    left
}

/// Answers everything that still comes with the error that was fatal.
async fn refuse(waiting: Group, mut requests: mpsc::Receiver<Request>, error: StateError) {
    let fatal = Outcome::Fatal(error);
    for waiting in waiting.into_values() {
        waiting.answer(&fatal);
    }
    while let Some(Request { done, .. }) = requests.recv().await {
        tell(done, &fatal);
    }
}

async fn check(store: Arc<dyn Store>, writes: Arc<Writes>) {
    loop {
        let trouble = store.check().await.err();
        writes.set_trouble(trouble.map(|error| Chain(&error).to_string()));
        sleep(CHECK_INTERVAL).await;
    }
}

impl Waiting {
    fn answer(self, outcome: &Outcome) {
        self.done.into_iter().for_each(|done| tell(done, outcome));
    }
}

fn tell(done: oneshot::Sender<Outcome>, outcome: &Outcome) {
    // A lane that was stopped waits no more; the commit stands all the same.
    let _ = done.send(outcome.clone());
}

/// The writes of a store: how long they take, whether one hangs, and whether there can be any.
#[derive(Debug)]
pub struct Writes {
    began: Mutex<Option<Instant>>,
    took: Histogram,
    trouble: Mutex<Option<String>>,
}

impl Default for Writes {
    fn default() -> Self {
        Self { began: Mutex::default(), took: metrics::commit_duration(), trouble: Mutex::default() }
    }
}

impl Writes {
    /// For how long the write in hand has been under way; `None` between writes.
    pub fn under_way(&self) -> Option<Duration> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner).map(|began| began.elapsed())
    }

    /// How long they took.
    #[must_use]
    pub fn durations(&self) -> Histogram {
        self.took.clone()
    }

    /// Why nothing can be written; `None` where it can, as far as is known.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    pub(crate) fn begin(&self) -> Instant {
        let began = Instant::now();
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
        began
    }

    pub(crate) fn end(&self, began: Instant) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.took.observe(began.elapsed().as_secs_f64());
    }
}
