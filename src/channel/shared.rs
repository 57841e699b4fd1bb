//! What the parts of one run of a channel share, and the way of reading, which can change while it lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::metrics::ChannelMetrics;
use crate::record::ChannelRef;
use crate::state::State;

use super::handle::Handle;
use super::hub::Hub;
use super::judge::{Awaited, Judge, Notes};
use super::late::LateBook;
use super::machine::Machine;
use super::plan::{Plan, Settings};
use super::reader::Reader;
use super::replay::RecentEvents;
use super::{Channel, ChannelError};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) channel: ChannelRef,
    pub(super) state: Arc<State>,
    pub(super) book: LateBook,
    pub(super) hub: Arc<Hub>,
    pub(super) handle: Arc<Handle>,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) metrics: Arc<ChannelMetrics>,
    recent: Arc<RecentEvents>,
    way: Mutex<Arc<Way>>,
}

/// A way of reading: where events come from, and what is held of them. What was judged by an earlier one stands.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) settings: Settings,
    pub(super) judge: Judge,
    over: CancellationToken,
}

impl Shared {
    /// What a run by `plan` shares, before it has lanes.
    pub(super) fn new(channel: &Channel, plan: &Plan) -> Result<Self, ChannelError> {
        let Channel { state, recent, handle, machine, metrics, .. } = channel;
        let way = Way::new(plan, handle, recent, machine, metrics);
        let channel = plan.settings.channel.clone();
        let earlier = state.late(channel.id)?.into_iter().map(Awaited::from);
        Ok(Self {
            state: state.clone(),
            book: LateBook::new(machine.clone(), earlier),
            hub: Arc::new(Hub::new(channel.clone())),
            channel,
            handle: handle.clone(),
            machine: machine.clone(),
            recent: recent.clone(),
            metrics: metrics.clone(),
            way: Mutex::new(Arc::new(way)),
        })
    }

    /// How events are read now.
    pub(super) fn way(&self) -> Arc<Way> {
        self.lock_way().clone()
    }

    /// From now on, events are read by `newer`. Where that is another way, whoever reads begins anew where it is.
    pub(super) fn follow(&self, plan: &mut Plan, newer: Plan) {
        if !newer.reads_like(plan) {
            let Self { handle, recent, machine, metrics, .. } = self;
            let way = Arc::new(Way::new(&newer, handle, recent, machine, metrics));
            let older = std::mem::replace(&mut *self.lock_way(), way);
            older.over.cancel();
        }
        *plan = newer;
    }

    /// Has asked for what a lane is owed, as far as it is not asked for already.
    pub(super) fn ask_for_owed(&self, sink: &str) -> Result<(), ChannelError> {
        let late = self.state.late(self.channel.id)?.into_iter();
        self.book.insert(late.filter(|(_, late)| late.owed.contains(sink)).map(Awaited::from));
        Ok(())
    }

    fn lock_way(&self) -> MutexGuard<'_, Arc<Way>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Way {
    /// Waits until events are read in another way. Who waits for it is woken in turn, and not in a random order as by a
    /// `watch` channel: the same history goes the same way twice.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Reads the channel, from nothing that was read before.
    pub(super) fn reader(&self) -> Reader {
        Reader::new(self.judge.source(), self.settings.page_limit)
    }

    fn new(
        plan: &Plan,
        handle: &Handle,
        recent: &Arc<RecentEvents>,
        machine: &Arc<dyn Machine>,
        metrics: &Arc<ChannelMetrics>,
    ) -> Self {
        handle.observe(|seen| seen.answers_within = plan.answers_within);
        let notes = Notes::new(metrics.clone(), handle.sightings(plan.settings.verifier.signers()));
        let judge = Judge::new(&plan.settings, plan.source.clone(), recent.clone(), machine.clone(), notes);
        Self { settings: plan.settings.clone(), judge, over: CancellationToken::new() }
    }
}
