//! The lanes of one run of a channel: one for each sink of the plan in force.
//!
//! # Invariants
//!
//! * **Who did not change goes on.** A lane is ended only where its sink is used differently, or not at all, by a new plan.
//! * **One at a time.** The lane that follows another at the same sink begins when that one has ended, from its cursor.
//!
//! # Cancellation
//!
//! A lane that leaves has [`Settings::grace`](super::Settings) for what it has in hand. Then it is dropped, and what it had
//! not recorded is offered again by the one that follows it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::grace::within_grace;
use crate::state::LaneState;
use crate::telemetry::Chain;

use super::lane::Lane;
use super::plan::{Outlet, Plan};
use super::shared::Shared;
use super::{ChannelError, next_ended, start};

pub(super) struct Lanes {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<(), ChannelError>>,
    /// In the order in which they began.
    running: Vec<(Id, Running)>,
    /// Those that the plan in force has.
    outlets: Vec<Outlet>,
    grace: Duration,
    stop: CancellationToken,
}

/// A lane that runs, or that leaves.
struct Running {
    outlet: Outlet,
    /// Fires when it is to leave.
    leave: CancellationToken,
}

impl Lanes {
    /// None yet. They end when `stop` fires.
    pub(super) fn new(shared: Arc<Shared>, stop: CancellationToken) -> Self {
        let (tasks, running) = (JoinSet::new(), Vec::new());
        Self { shared, tasks, running, outlets: Vec::new(), grace: Duration::ZERO, stop }
    }

    /// Begins with the lanes of a plan, which have come so far.
    pub(super) fn begin(&mut self, plan: &Plan, positions: Vec<LaneState>) {
        (self.outlets, self.grace) = (plan.outlets.clone(), plan.settings.grace);
        for (outlet, position) in plan.outlets.iter().cloned().zip(positions) {
            let leave = self.stop.child_token();
            let lane = Lane::new(self.shared.clone(), outlet.clone(), position);
            self.spawn(outlet, leave.clone(), lane.run(leave));
        }
    }

    /// From now on there are the lanes of this plan: those that are there already go on.
    pub(super) fn follow(&mut self, plan: &Plan) {
        (self.outlets, self.grace) = (plan.outlets.clone(), plan.settings.grace);
        for (_, running) in self.running.iter().filter(|(_, running)| !self.outlets.contains(&running.outlet)) {
            running.leave.cancel();
        }
        for outlet in self.outlets.clone() {
            if !self.running.iter().any(|(_, running)| running.outlet.name == outlet.name) {
                self.enter(outlet);
            }
        }
    }

    fn enter(&mut self, outlet: Outlet) {
        // Whatever made it want no more may be what was changed.
        self.shared.handle.sink_is_another(&outlet.name);
        let leave = self.stop.child_token();
        let lane = enter(self.shared.clone(), outlet.clone(), leave.clone());
        self.spawn(outlet, leave, lane);
    }

    fn spawn(
        &mut self,
        outlet: Outlet,
        leave: CancellationToken,
        lane: impl Future<Output = Result<(), ChannelError>> + Send + 'static,
    ) {
        let (shared, sink) = (self.shared.clone(), outlet.name.clone());
        // In a box before it is passed on: a future that is handed from one to the next has room in each.
        let lane = within_grace(Box::pin(lane), leave.clone(), self.stop.clone(), self.grace);
        let task = self.tasks.spawn(async move {
            let ended = lane.await.unwrap_or_else(|| {
                let channel = &shared.channel.name;
                warn!(%channel, %sink, "lane did not end in time: what it had in hand is offered again");
                Ok(())
            });
            shared.handle.observe(|seen| seen.lane_ends(&sink));
            ended
        });
        self.running.push((task.id(), Running { outlet, leave }));
    }

    /// Waits until a lane has ended by itself, and says how. Where one has left, the one that follows it begins.
    pub(super) async fn ended(&mut self) -> Result<(), ChannelError> {
        while let Some((id, ended)) = next_ended(&mut self.tasks).await {
            let Some(at) = self.running.iter().position(|(running, _)| *running == id) else { continue };
            let (_, Running { outlet, leave }) = self.running.remove(at);
            ended?;
            if !leave.is_cancelled() || self.stop.is_cancelled() {
                return Ok(());
            }
            let sink = outlet.name;
            info!(channel = %self.shared.channel.name, %sink, "lane ended: the configuration has it no more");
            self.shared.handle.forget_lane(&sink);
            if let Some(next) = self.outlets.iter().find(|outlet| outlet.name == sink).cloned() {
                self.enter(next);
            }
        }
        // There will be lanes again.
        std::future::pending().await
    }

    /// Waits for every lane to end. Of several errors the gravest counts.
    pub(super) async fn drain(mut self, mut ended: Result<(), ChannelError>) -> Result<(), ChannelError> {
        while let Some((_, lane)) = next_ended(&mut self.tasks).await {
            if let Err(error) = &lane
                && gravity(&lane) <= gravity(&ended)
            {
                error!(error = %Chain(error), "another lane failed too");
            }
            if gravity(&lane) > gravity(&ended) {
                ended = lane;
            }
        }
        ended
    }
}

/// Runs a lane that begins while others run.
async fn enter(shared: Arc<Shared>, outlet: Outlet, stop: CancellationToken) -> Result<(), ChannelError> {
    let Some(position) = start::position(&shared, &outlet.name, &stop).await? else { return Ok(()) };
    // What came while nobody took it was offered to nobody.
    shared.ask_for_owed(&outlet.name)?;
    Lane::new(shared, outlet, position).run(stop).await
}

/// The more parts of the daemon an end concerns, the graver it is.
fn gravity(ended: &Result<(), ChannelError>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(ChannelError::Gone) => 1,
        Err(ChannelError::Panicked(_)) => 2,
        Err(ChannelError::SinkClosed { .. }) => 3,
        Err(ChannelError::State(_)) => 4,
    }
}
