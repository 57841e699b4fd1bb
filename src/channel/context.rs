//! The state that the parts of one channel run share, and the plan of reading, which can change during the run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channel::Channel;
use crate::controls::Owned;
use crate::deliver::hub::Hub;
use crate::error::ChannelError;
use crate::late::queue::LateQueue;
use crate::read::gaps::Gaps;
use crate::read::source::Source;
use crate::settings::{Plan, Settings};
use crate::verify::{Checked, RejectionReason};
use ledger::{Change, Commit, History, Ledger};
use net::tasks::lock;
use proof::event::{Offset, RawEvent};

/// The state that the parts of one run share.
#[derive(Debug)]
pub(super) struct RunContext {
    pub(super) channel: Arc<Channel>,
    pub(super) owned: Arc<Owned>,
    pub(super) late: LateQueue,
    pub(super) gaps: Arc<Gaps>,
    /// The newest events that were read. Some of them may not be recorded yet.
    pub(super) read: Mutex<History>,
    asked: AskedClock,
    pub(super) hub: Arc<Hub>,
    read_plan: Mutex<Arc<ReadPlan>>,
}

/// How long the channel has run and requested events, over all of its runs. Unlike the time of day, it never jumps.
#[derive(Clone, Copy, Debug)]
struct AskedClock {
    /// The seconds of earlier runs, as far as they were recorded.
    before: u64,
    began: Instant,
}

/// How events are read and verified. Events that an earlier plan verified stay verified.
#[derive(Debug)]
pub(super) struct ReadPlan {
    pub(super) channel: Arc<Channel>,
    pub(super) settings: Arc<Settings>,
    /// The source of the events.
    pub(super) source: Arc<dyn Source>,
    /// The offsets of rejected events that have been logged. Some are read and rejected repeatedly.
    pub(super) logged: Mutex<BTreeSet<Offset>>,
    /// Cancelled when another plan replaces this one. A token wakes its waiters in order, but a `watch` channel wakes them
    /// in random order, and a test history must repeat exactly.
    pub(super) over: CancellationToken,
}

impl RunContext {
    /// Begins a run under `plan`, without lanes.
    pub(super) fn new(channel: &Arc<Channel>, owned: &Arc<Owned>, plan: &Plan) -> Self {
        let gaps = Arc::<Gaps>::default();
        channel.handle.board().gaps = Arc::downgrade(&gaps);
        let (read, before) = {
            let ledger = owned.claim.ledger();
            (ledger.history().clone(), ledger.asked())
        };
        Self {
            channel: channel.clone(),
            owned: owned.clone(),
            late: LateQueue::new(channel.parts.machine.clone()),
            gaps,
            read: Mutex::new(read),
            asked: AskedClock { before, began: Instant::now() },
            hub: Arc::new(Hub::new(channel.identity.clone())),
            read_plan: Mutex::new(ReadPlan::begin(channel, plan)),
        }
    }

    /// Changes the ledger, and returns when the change is durable. Events that become late are then requested. This is
    /// also the case if the future is dropped, because a started commit is not undone.
    pub(super) async fn commit(&self, changes: Vec<Change>) -> Result<(), ChannelError> {
        let _added = self.late.add_after(&changes);
        Ok(self.owned.claim.commit(Commit(changes)).await?)
    }

    /// Reads the ledger.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.owned.claim.ledger())
    }

    /// Returns how long the channel has requested events, in seconds.
    pub(super) fn asked(&self) -> u64 {
        self.asked.before + self.asked.began.elapsed().as_secs()
    }

    /// Returns how long the channel has requested events since `asked_at`. An event from a version 0.1 state has no such
    /// time, and begins to wait with this run.
    pub(super) fn asked_since(&self, asked_at: Option<u64>) -> Duration {
        Duration::from_secs(self.asked().saturating_sub(asked_at.unwrap_or(self.asked.before)))
    }

    /// Returns the current plan.
    pub(super) fn read_plan(&self) -> Arc<ReadPlan> {
        lock(&self.read_plan).clone()
    }

    /// Runs `work` with the current plan. If another plan replaces it first, runs `work` again with the new plan.
    pub(super) async fn by_plan<T, F: Future<Output = T>>(&self, work: impl Fn(Arc<ReadPlan>) -> F) -> T {
        loop {
            let read_plan = self.read_plan();
            tokio::select! {
                biased;
                done = work(read_plan.clone()) => return done,
                () = read_plan.over.cancelled() => {}
            }
        }
    }

    /// Adopts a newer plan. If it changes how to read, each reading part restarts at its current position.
    pub(super) fn follow(&self, newer: &Plan) {
        let older = self.read_plan();
        let reads_alike = Arc::ptr_eq(&newer.source, &older.source)
            || newer.source.client().is_some_and(|client| Some(client) == older.source.client());
        if newer.settings != older.settings || !reads_alike {
            *lock(&self.read_plan) = ReadPlan::begin(&self.channel, newer);
            older.over.cancel();
        }
    }

    /// Requests the late events that a lane has yet to deliver, unless they are already requested.
    pub(super) fn ask_for_owed(&self, sink: &str) {
        let owed: Vec<_> = self.look(|ledger| ledger.owed(sink).map(|(key, _)| *key).collect());
        self.late.insert(owed);
    }
}

impl ReadPlan {
    fn begin(channel: &Arc<Channel>, Plan { settings, source, .. }: &Plan) -> Arc<Self> {
        channel.handle.board().begin_plan(settings);
        channel.metrics.may_reject(RejectionReason::current().map(RejectionReason::name));
        let (settings, source, logged) = (settings.clone(), source.clone(), Mutex::default());
        Arc::new(Self { channel: channel.clone(), settings, source, logged, over: CancellationToken::new() })
    }

    /// Checks consecutive events that were first read at `received`. The results have the same order.
    pub(super) async fn check(&self, received: Timestamp, events: Vec<RawEvent>) -> Result<Vec<Checked>, ChannelError> {
        let Channel { parts, handle, .. } = &*self.channel;
        parts.machine.check(&self.settings, received, events, &handle.memory).await
    }

    /// Returns whether an event has waited for its proof for the maximum time that the configuration allows.
    pub(crate) fn is_timed_out(&self, waited: Duration) -> bool {
        waited >= self.settings.verification.proof_timeout
    }
}
