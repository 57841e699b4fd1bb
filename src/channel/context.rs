//! What the parts of one run of a channel share, and the plan of reading, which can change during the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::channel::controls::Handle;
use crate::channel::deliver::hub::Hub;
use crate::channel::late::LateQueue;
use crate::channel::machine::Machine;
use crate::channel::owned::Owned;
use crate::channel::settings::{Plan, Settings};
use crate::channel::verify::{Rejection, VerifyStage};
use crate::channel::{Channel, ChannelError};
use crate::ledger::{Change, Claim, Commit, Ledger};
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
    pub(super) settings: Arc<Settings>,
    pub(super) stage: VerifyStage,
    /// Fires when another plan replaces this one.
    over: CancellationToken,
}

impl RunContext {
    /// Begins a run by `plan`, which has no lanes yet.
    pub(super) fn new(channel: &Channel, owned: &Arc<Owned>, plan: &Plan) -> Self {
        let Channel { identity, parts, handle, metrics, .. } = channel;
        let read_plan = ReadPlan::new(plan, owned, handle, &parts.machine, metrics);
        Self {
            channel: identity.clone(),
            owned: owned.clone(),
            late: LateQueue::new(parts.machine.clone()),
            hub: Arc::new(Hub::new(identity.clone())),
            handle: handle.clone(),
            machine: parts.machine.clone(),
            metrics: metrics.clone(),
            traces: parts.traces.clone(),
            read_plan: Mutex::new(Arc::new(read_plan)),
        }
    }

    /// The channel's claim.
    pub(super) fn claim(&self) -> &Claim {
        &self.owned.claim
    }

    /// Changes the ledger, and returns once that is durable.
    pub(super) async fn commit(&self, changes: Vec<Change>) -> Result<(), ChannelError> {
        Ok(self.claim().commit(Commit(changes)).await?)
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
        if newer.settings != plan.settings || !newer.source.equals(&*plan.source) {
            let Self { owned, handle, machine, metrics, .. } = self;
            let read_plan = Arc::new(ReadPlan::new(&newer, owned, handle, machine, metrics));
            let older = std::mem::replace(&mut *self.lock_read_plan(), read_plan);
            older.over.cancel();
        }
        *plan = newer;
    }

    /// Has the late events that a lane is owed asked for, unless they are asked for already.
    pub(super) fn ask_for_owed(&self, sink: &str) {
        let owed: Vec<_> = self.look(|ledger| ledger.owed(sink).map(|(offset, _)| *offset).collect());
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

    fn new(
        plan: &Plan,
        owned: &Owned,
        handle: &Arc<Handle>,
        machine: &Arc<dyn Machine>,
        metrics: &Arc<ChannelMetrics>,
    ) -> Self {
        handle.board.update(|board| board.answers_within = plan.answers_within);
        handle.board.begin_signers(plan.settings.verification.verifier.signers());
        metrics.may_reject(Rejection::reasons());
        let settings = Arc::new(plan.settings.clone());
        let stage = VerifyStage {
            source: plan.source.clone(),
            machine: machine.clone(),
            settings: settings.clone(),
            recent: owned.recent.clone(),
            metrics: metrics.clone(),
            handle: handle.clone(),
            logged: Mutex::default(),
        };
        Self { settings, stage, over: CancellationToken::new() }
    }
}
