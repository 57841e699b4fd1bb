//! The state that all parts of a channel's run share. It includes the read plan, which can change during the run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channel::Channel;
use crate::channel::controls::{Handle, LeasedChannel};
use crate::channel::settings::{Plan, Settings};
use crate::deliver::hub::Hub;
use crate::error::ChannelError;
use crate::late::queue::LateQueue;
use crate::read::gaps::Gaps;
use crate::read::service::Service;
use crate::read::source::Source;
use crate::status::unknown::UnknownReporter;
use crate::verify::checked::{CheckParameters, Checked};
use ledger::{Change, Commit, History, Ledger};
use net::tasks::lock;
use proof::event::{Offset, RawEvent};

#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) channel: Arc<Channel>,
    pub(crate) owned: Arc<LeasedChannel>,
    pub(crate) late: LateQueue,
    pub(crate) gaps: Arc<Gaps>,
    /// The newest events that were read. Some of these events may not be recorded yet.
    pub(crate) read: Mutex<History>,
    /// The total time of the earlier runs in seconds, according to the ledger.
    asked_before: u64,
    began: Instant,
    pub(crate) hub: Arc<Hub>,
    read_plan: Mutex<Arc<ReadPlan>>,
}

/// How events are read and verified. Events that an earlier plan verified stay verified.
#[derive(Debug)]
pub(crate) struct ReadPlan {
    pub(crate) channel: Arc<Channel>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) source: Arc<dyn Source>,
    /// The offsets of the rejected events that were logged. Some events are read and rejected repeatedly, but each of them is
    /// logged only once.
    pub(crate) logged: Mutex<BTreeSet<Offset>>,
    /// Cancelled when another plan replaces this one. A token is used because it wakes its waiters in a fixed order, so that
    /// a test history repeats exactly. A `watch` channel would wake them in a random order.
    pub(crate) over: CancellationToken,
}

impl RunContext {
    /// Creates the context of a run under `plan`, without lanes.
    pub(crate) fn new(channel: &Arc<Channel>, owned: &Arc<LeasedChannel>, plan: &Plan) -> Self {
        let gaps = Arc::<Gaps>::default();
        channel.handle.board().gaps = Arc::downgrade(&gaps);
        let (read, asked_before) = {
            let ledger = owned.leased.ledger();
            (ledger.history().clone(), ledger.asked())
        };
        Self {
            channel: channel.clone(),
            owned: owned.clone(),
            late: LateQueue::new(channel.parts.machine.clone()),
            gaps,
            read: Mutex::new(read),
            asked_before,
            began: Instant::now(),
            hub: Arc::new(Hub::new(channel.identity.clone())),
            read_plan: Mutex::new(ReadPlan::begin(channel, plan)),
        }
    }

    /// Changes the ledger, and returns when the change is durable. Then queues the events that the change makes late. If the
    /// future is dropped, these events are queued too, because a commit that has started is not undone.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<(), ChannelError> {
        self.commit_with(|| changes).await
    }

    /// Like [`commit`](Self::commit), but calls `make` only when the commit starts. If the future is dropped before,
    /// everything that `make` changes stays unchanged.
    pub(crate) async fn commit_with(&self, make: impl FnOnce() -> Vec<Change>) -> Result<(), ChannelError> {
        let mut added = None;
        let make = || {
            let changes = make();
            added = Some(self.late.add_after(&changes));
            Commit(changes)
        };
        Ok(self.owned.leased.commit_with(make).await?)
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.owned.leased.ledger())
    }

    /// Returns the total time of all runs of the channel, in seconds. Unlike the time of day, this time never jumps.
    pub(crate) fn asked(&self) -> u64 {
        self.asked_before + self.began.elapsed().as_secs()
    }

    /// Returns whether an event has waited for its proof as long as the plan allows. The wait begins at `asked_at`, in the
    /// time of [`asked`](Self::asked). If an event comes from a state of version 0.1, its `asked_at` is unknown. Its wait
    /// then begins with this run.
    pub(crate) fn is_timed_out(&self, read_plan: &ReadPlan, asked_at: Option<u64>) -> bool {
        let waited = self.asked().saturating_sub(asked_at.unwrap_or(self.asked_before));
        Duration::from_secs(waited) >= read_plan.settings.verification.proof_timeout
    }

    pub(crate) fn read_plan(&self) -> Arc<ReadPlan> {
        lock(&self.read_plan).clone()
    }

    /// Runs `work` with the current plan. If another plan replaces the plan before `work` ends, runs `work` again with the
    /// new plan.
    pub(crate) async fn by_plan<T, F: Future<Output = T>>(&self, work: impl Fn(Arc<ReadPlan>) -> F) -> T {
        loop {
            let read_plan = self.read_plan();
            tokio::select! {
                biased;
                done = work(read_plan.clone()) => return done,
                () = read_plan.over.cancelled() => {}
            }
        }
    }

    /// Adopts a newer plan. If the newer plan reads in another way, each part that reads restarts at its current position.
    pub(crate) fn follow(&self, newer: &Plan) {
        let older = self.read_plan();
        let reads_alike = Arc::ptr_eq(&newer.source, &older.source)
            || newer.source.client().is_some_and(|client| Some(client) == older.source.client());
        if newer.settings != older.settings || !reads_alike {
            *lock(&self.read_plan) = ReadPlan::begin(&self.channel, newer);
            older.over.cancel();
        }
    }

    /// Queues the late events that a lane has yet to deliver, unless they are already queued.
    pub(crate) fn ask_for_owed(&self, sink: &str) {
        let owed: Vec<_> =
            self.look(|ledger| ledger.owed(sink).map(|(key, late)| (*key, late.appeared || late.replayed)).collect());
        self.late.add(owed);
    }
}

impl ReadPlan {
    fn begin(channel: &Arc<Channel>, Plan { settings, source, .. }: &Plan) -> Arc<Self> {
        channel.handle.board().begin_plan(settings);
        let (settings, source, logged) = (settings.clone(), source.clone(), Mutex::default());
        Arc::new(Self { channel: channel.clone(), settings, source, logged, over: CancellationToken::new() })
    }

    /// Returns a source that sends the same requests as the channel's source, but does not report the answers on the board,
    /// because they concern past events.
    pub(crate) fn quiet_source(&self) -> Arc<dyn Source> {
        let Some(client) = self.source.client() else { return self.source.clone() };
        let own = &self.channel.handle;
        let handle = Arc::new(Handle::of(own.memory.clone(), own.turns()));
        let (channel, metrics) = (self.settings.channel.id, self.channel.metrics.clone());
        Arc::new(Service { api: client.clone(), channel, handle, metrics })
    }

    pub(crate) async fn check(&self, received: Timestamp, events: Vec<RawEvent>) -> Vec<Checked> {
        let Channel { parts, handle, metrics, .. } = &*self.channel;
        let (settings, memory) = (self.settings.clone(), handle.memory.clone());
        let unknown = Some(UnknownReporter { handle: handle.clone(), metrics: metrics.clone() });
        parts.machine.check(CheckParameters { settings, received, memory, unknown }, events).await
    }
}
