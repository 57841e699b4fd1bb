//! One channel with its current plan, and the parts that outlive its runs.

use std::sync::Arc;

use tokio::sync::watch;

use crate::controls::Handle;
use crate::parts::SharedParts;
use crate::read::service::Service;
use crate::settings::{Outlet, Plan, Settings};
use api::Client;
use record::ChannelRef;
use telemetry::metrics::ChannelMetrics;

/// One channel, ready to run.
#[derive(Debug)]
pub struct Channel {
    /// Its name and id.
    pub identity: ChannelRef,
    pub(super) plan: watch::Sender<Plan>,
    pub(super) handle: Arc<Handle>,
    /// The channel's metrics.
    pub metrics: Arc<ChannelMetrics>,
    pub(super) parts: SharedParts,
}

impl Channel {
    /// Creates a channel. It does nothing before [`run`](Self::run).
    pub fn new(settings: Settings, api: Client, outlets: Vec<Outlet>, parts: &SharedParts) -> Self {
        let handle = parts.handles.of(settings.channel.id);
        let metrics = Arc::new(parts.metrics.channel(&settings.channel));
        let (channel, board, counts) = (settings.channel.id, handle.clone(), metrics.clone());
        let api = api.counted_by(handle.memory.clone());
        let source = Arc::new(Service { api, channel, handle: board, metrics: counts });
        let plan = Plan { settings: Arc::new(settings), source, outlets };
        Self::with_plan(plan, handle, metrics, parts.clone())
    }

    pub(super) fn with_plan(plan: Plan, handle: Arc<Handle>, metrics: Arc<ChannelMetrics>, parts: SharedParts) -> Self {
        Self { identity: plan.settings.channel.clone(), plan: watch::Sender::new(plan), handle, metrics, parts }
    }

    /// Adopts the plan of `newer`, which describes the same channel. Reading and lanes restart if the plan changes them. The
    /// others keep running.
    pub fn become_like(&self, newer: &Self) {
        self.plan.send_replace(newer.plan.borrow().clone());
    }
}
