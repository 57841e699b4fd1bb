//! What the parts of one run of a channel share, and the plan of reading, which can change during the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::channel::Channel;
use crate::channel::controls::Handle;
use crate::channel::deliver::hub::Hub;
use crate::channel::late::LateQueue;
use crate::channel::machine::Machine;
use crate::channel::owned::Owned;
use crate::channel::read::reader::Reader;
use crate::channel::settings::{Plan, Settings};
use crate::channel::verify::{Awaited, Counters, VerifyStage};
use crate::ledger::{Claim, Ledger};
use crate::metrics::ChannelMetrics;
use crate::record::ChannelRef;
use crate::telemetry::trace::Traces;

/// Shared by the parts of one run.
#[derive(Debug)]
pub(super) struct RunContext {
    pub(super) channel: ChannelRef,
    pub(super) owned: Arc<Owned>,
    pub(super) late: LateQueue,
    pub(super) hub: Arc<Hub>,
    pub(super) handle: Arc<Handle>,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) metrics: Arc<ChannelMetrics>,
    pub(super) traces: Traces,
    read_plan: Mutex<Arc<ReadPlan>>,
}

/// How events are read: where they come from, and what verifies them. What an earlier plan has verified holds.
#[derive(Debug)]
pub(super) struct ReadPlan {
    pub(super) settings: Settings,
    pub(super) stage: VerifyStage,
    /// Fires when another plan replaces this one.
    over: CancellationToken,
}

impl RunContext {
    /// Begins a run by `plan`, which has no lanes yet.
    pub(super) fn new(channel: &Channel, owned: &Arc<Owned>, plan: &Plan) -> Self {
        let Channel { handle, machine, metrics, traces, .. } = channel;
        let read_plan = ReadPlan::new(plan, owned, handle, machine, metrics);
        let channel = plan.settings.channel.clone();
        let earlier = Awaited::all(&owned.claim.ledger());
        Self {
            owned: owned.clone(),
            late: LateQueue::new(machine.clone(), earlier),
            hub: Arc::new(Hub::new(channel.clone())),
            channel,
            handle: handle.clone(),
            machine: machine.clone(),
            metrics: metrics.clone(),
            traces: traces.clone(),
            read_plan: Mutex::new(Arc::new(read_plan)),
        }
    }

    /// The channel's claim.
    pub(super) fn claim(&self) -> &Claim {
        &self.owned.claim
    }

    /// Reads the ledger.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.owned.claim.ledger())
    }

    /// The plan in force.
    pub(super) fn read_plan(&self) -> Arc<ReadPlan> {
        self.lock_read_plan().clone()
    }

    /// Follows a newer plan. Where it reads differently, each part that reads begins anew where it is.
    pub(super) fn follow(&self, plan: &mut Plan, newer: Plan) {
        if !newer.reads_like(plan) {
            let Self { owned, handle, machine, metrics, .. } = self;
            let read_plan = Arc::new(ReadPlan::new(&newer, owned, handle, machine, metrics));
            let older = std::mem::replace(&mut *self.lock_read_plan(), read_plan);
            older.over.cancel();
        }
        *plan = newer;
    }

    /// Has the late events that a lane is owed asked for, unless they are asked for already.
    pub(super) fn ask_for_owed(&self, sink: &str) {
        let owed: Vec<_> = self.look(|ledger| ledger.owed(sink).map(Awaited::from).collect());
        self.late.insert(owed);
    }

    fn lock_read_plan(&self) -> MutexGuard<'_, Arc<ReadPlan>> {
        self.read_plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadPlan {
    /// Waits until another plan is in force. A token wakes its waiters in order, a `watch` channel in random order: a test
    /// history must repeat exactly.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// A new reader.
    pub(super) fn reader(&self) -> Reader {
        Reader::new(self.stage.source(), self.settings.page_limit)
    }

    fn new(
        plan: &Plan,
        owned: &Owned,
        handle: &Arc<Handle>,
        machine: &Arc<dyn Machine>,
        metrics: &Arc<ChannelMetrics>,
    ) -> Self {
        handle.board.update(|board| board.answers_within = plan.answers_within);
        handle.board.begin_signers(plan.settings.verifier.signers());
        let counters = Counters::new(metrics.clone(), handle.clone());
        let recent = owned.recent.clone();
        let stage = VerifyStage::new(&plan.settings, plan.source.clone(), recent, machine.clone(), counters);
        Self { settings: plan.settings.clone(), stage, over: CancellationToken::new() }
    }
}
