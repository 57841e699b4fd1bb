//! One channel with its current plan, and the parts that all channels of a process share. Both outlive the channel's runs.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::read::service::Service;
use crate::run::machine::{Machine, Processors, ThisMachine};
use crate::verify::recent::RecentEvents;
use api::Client;
use controls::{Handle, Handles};
use ledger::{Ledgers, Pending};
use proof::event::RawEvent;
use record::ChannelRef;
use settings::{LaneSettings, Plan, Settings};
use sink::OpenFiles;
use telemetry::metrics::{ChannelMetrics, Metrics};
use telemetry::trace::Traces;

pub(crate) mod account_turns;
pub(crate) mod controls;
pub(crate) mod settings;

/// One channel, ready to run.
#[derive(Debug)]
pub struct Channel {
    /// The channel's name and id.
    pub identity: ChannelRef,
    pub(crate) plan: watch::Sender<Plan>,
    pub(crate) handle: Arc<Handle>,
    /// The channel's metrics.
    pub metrics: Arc<ChannelMetrics>,
    pub(crate) parts: SharedParts,
}

/// The parts that exist once in a process, for all channels.
#[derive(Clone, Debug)]
pub struct SharedParts {
    /// The channels' ledgers.
    pub ledgers: Arc<Ledgers>,
    /// The channels' controls and status boards.
    pub handles: Arc<Handles>,
    /// The process's metrics.
    pub metrics: Metrics,
    /// Starts the traces of batches.
    pub traces: Traces,
    /// Recent events, which reveal duplicates and contradictions.
    pub recent: Arc<RecentEvents>,
    /// The files that sinks have open.
    pub open_files: OpenFiles,
    pub(crate) machine: Arc<dyn Machine>,
}

impl Channel {
    /// Creates a channel. The channel does nothing before [`run`](Self::run) is called.
    pub fn new(settings: Settings, api: Client, lanes: Vec<LaneSettings>, parts: &SharedParts) -> Self {
        let handle = parts.handles.of(settings.channel.id);
        let metrics = Arc::new(parts.metrics.channel(&settings.channel));
        let turns = handle.take_part_in(&parts.handles.turns.of(api.account()));
        let (channel, api) = (settings.channel.id, api.counted_by(handle.memory.clone(), turns));
        let source = Arc::new(Service { api, channel, handle: handle.clone(), metrics: metrics.clone() });
        let plan = Plan { settings: Arc::new(settings), source, lanes };
        Self::with_plan(plan, handle, metrics, parts.clone())
    }

    pub(crate) fn with_plan(plan: Plan, handle: Arc<Handle>, metrics: Arc<ChannelMetrics>, parts: SharedParts) -> Self {
        Self { identity: plan.settings.channel.clone(), plan: watch::Sender::new(plan), handle, metrics, parts }
    }

    /// Returns the event as a pending event that was first seen now. The event's bytes are copied, because a slice would keep
    /// the whole page in memory.
    pub(crate) fn pending(&self, event: &RawEvent, received: Timestamp, appeared: bool) -> Pending {
        let (first_seen, json) = (self.parts.machine.now(), self.handle.memory.copy(&event.json));
        Pending { offset: event.offset, event_id: event.id, first_seen, received: Some(received), appeared, json }
    }

    /// Adopts the plan of `newer`. Both must describe the same channel. Only the parts whose settings change restart.
    pub fn become_like(&self, newer: &Self) {
        self.plan.send_replace(newer.plan.borrow().clone());
    }
}

impl SharedParts {
    /// Creates shared parts with these ledgers and processors, and without recent events.
    pub fn new(ledgers: Arc<Ledgers>, processors: Arc<Processors>, metrics: Metrics, traces: Traces) -> Self {
        let parts = Self::on(Arc::new(ThisMachine::new(processors)), ledgers);
        Self { metrics, traces, ..parts }
    }

    pub(crate) fn on(machine: Arc<dyn Machine>, ledgers: Arc<Ledgers>) -> Self {
        let (handles, recent) = (Arc::default(), Arc::default());
        let (metrics, traces, open_files) = (Metrics::default(), Traces::default(), OpenFiles::default());
        Self { ledgers, handles, metrics, traces, recent, open_files, machine }
    }
}
