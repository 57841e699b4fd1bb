//! The lanes of one run of a channel: one for each sink of the plan in force.
//!
//! # Invariants
//!
//! * **What did not change goes on.** A new plan ends only the lanes whose sink it uses differently, or not at all.
//! * **One at a time.** A lane that replaces another at the same sink begins when that one has ended, from its cursor.
//!
//! # Cancellation
//!
//! A lane that is told to leave has [`Settings::grace`](crate::channel::Settings::grace) for the batch in hand. Then it is
//! dropped, and the lane that replaces it offers again what was not recorded.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::channel::context::RunContext;
use crate::channel::deliver::lane::Lane;
use crate::channel::read::start;
use crate::channel::settings::{Outlet, Plan};
use crate::channel::{ChannelError, next_ended};
use crate::ledger::Cursor;
use crate::tasks::within_grace;
use crate::telemetry::Chain;

pub(in crate::channel) struct Lanes {
    shared: Arc<RunContext>,
    tasks: JoinSet<Result<(), ChannelError>>,
    /// In the order in which they were spawned.
    running: Vec<(Id, Running)>,
    /// The outlets of the plan in force.
    outlets: Vec<Outlet>,
    grace: Duration,
    stop: CancellationToken,
}

/// A lane that has not ended.
struct Running {
    outlet: Outlet,
    /// Tells the lane to leave.
    leave: CancellationToken,
}

impl Lanes {
    /// No lanes yet. They end when `stop` fires.
    pub(in crate::channel) fn new(shared: Arc<RunContext>, stop: CancellationToken) -> Self {
        let (tasks, running) = (JoinSet::new(), Vec::new());
        Self { shared, tasks, running, outlets: Vec::new(), grace: Duration::ZERO, stop }
    }

    /// Begins the lanes of a plan, each from its position.
    pub(in crate::channel) fn begin(&mut self, plan: &Plan, positions: Vec<Cursor>) {
        (self.outlets, self.grace) = (plan.outlets.clone(), plan.settings.grace);
        for (outlet, position) in plan.outlets.iter().cloned().zip(positions) {
            let leave = self.stop.child_token();
            let lane = Lane::new(self.shared.clone(), outlet.clone(), position);
            self.spawn(outlet, leave.clone(), lane.run(leave));
        }
    }

    /// Follows a new plan: ends lanes that it no longer has, and begins new ones.
    pub(in crate::channel) fn follow(&mut self, plan: &Plan) {
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
        // The change may have repaired a sink that was gone.
        self.shared.handle.controls.sink_is_another(&outlet.name);
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
        // Boxed first: otherwise each future around it would reserve its size again.
        let lane = within_grace(Box::pin(lane), leave.clone(), self.stop.clone(), self.grace);
        let task = self.tasks.spawn(async move {
            let ended = lane.await.unwrap_or_else(|| {
                let channel = &shared.channel.name;
                warn!(%channel, %sink, "lane did not end in time: what it had in hand is offered again");
                Ok(())
            });
            shared.handle.board.update(|board| board.lane_ends(&sink));
            ended
        });
        self.running.push((task.id(), Running { outlet, leave }));
    }

    /// Waits until a lane has ended by itself, and says how. A lane that was told to leave is replaced.
    pub(in crate::channel) async fn ended(&mut self) -> Result<(), ChannelError> {
        while let Some((id, ended)) = next_ended(&mut self.tasks).await {
            let Some(at) = self.running.iter().position(|(running, _)| *running == id) else { continue };
            let (_, Running { outlet, leave }) = self.running.remove(at);
            ended?;
            if !leave.is_cancelled() || self.stop.is_cancelled() {
                return Ok(());
            }
            let sink = outlet.name;
            info!(channel = %self.shared.channel.name, %sink, "lane ended: the configuration has it no more");
            self.shared.handle.board.update(|board| board.lanes.remove(&sink));
            if let Some(next) = self.outlets.iter().find(|outlet| outlet.name == sink).cloned() {
                self.enter(next);
            }
        }
        // A later plan brings lanes again.
        std::future::pending().await
    }

    /// Waits for every lane to end. Of several errors the gravest is returned.
    pub(in crate::channel) async fn drain(mut self, mut ended: Result<(), ChannelError>) -> Result<(), ChannelError> {
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
async fn enter(shared: Arc<RunContext>, outlet: Outlet, stop: CancellationToken) -> Result<(), ChannelError> {
    let Some(position) = start::position(&shared, &outlet.name, &stop).await? else { return Ok(()) };
    // Late events that were proved while there was no lane went to other lanes only.
    shared.ask_for_owed(&outlet.name);
    Lane::new(shared, outlet, position).run(stop).await
}

/// An error is graver, the more parts of the daemon it concerns.
fn gravity(ended: &Result<(), ChannelError>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(ChannelError::Gone) => 1,
        Err(ChannelError::Lost) => 2,
        Err(ChannelError::Panicked(_) | ChannelError::Refused(_)) => 3,
        Err(ChannelError::SinkClosed { .. }) => 4,
        Err(ChannelError::State(_)) => 5,
    }
}
