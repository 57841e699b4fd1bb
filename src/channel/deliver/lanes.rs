//! The lanes of one run of a channel: one for each sink of the current plan.
//!
//! If a new configuration replaces a lane, the old lane is told to leave. It has the time
//! [`Settings::grace`](crate::Settings::grace) to finish its current batch, and is dropped after that. The new lane begins
//! when the old lane has ended, from the recorded cursor, and offers the unrecorded events again, except the events that
//! [`AcceptedBeyond`](crate::deliver::beyond::AcceptedBeyond) keeps.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::channel::settings::{LaneSettings, Plan};
use crate::deliver::lane::Lane;
use crate::error::ChannelError;
use crate::read::start;
use crate::run::context::RunContext;
use crate::run::tasks::{Task, Tasks};
use ledger::Cursor;
use net::Chain;

pub(crate) struct Lanes {
    shared: Arc<RunContext>,
    tasks: Tasks<LaneSettings>,
    plan: Plan,
    stop: CancellationToken,
}

impl Lanes {
    /// Starts the lanes of a plan, each at its position. The lanes end when `stop` fires.
    pub(crate) fn begin(
        shared: Arc<RunContext>,
        plan: Plan,
        positions: Vec<Option<Cursor>>,
        stop: CancellationToken,
    ) -> Self {
        let mut lanes = Self { shared, tasks: Tasks::new(stop.clone()), plan, stop };
        for (lane_settings, position) in lanes.plan.lanes.clone().into_iter().zip(positions) {
            let Some(position) = position else {
                lanes.enter(lane_settings);
                continue;
            };
            let (lane, upcoming) = Lane::new(lanes.shared.clone(), lane_settings.clone(), position);
            lanes.tasks.spawn(lane_settings, lanes.plan.settings.grace, |leave| lane.run(upcoming, leave));
        }
        lanes
    }

    /// Follows a new plan: tells the lanes to leave that the new plan does not contain, and starts lanes for new sinks.
    pub(crate) fn follow(&mut self, newer: Plan) {
        self.shared.follow(&newer);
        self.plan = newer;
        for lane in self.tasks.running().filter(|lane| !self.plan.lanes.contains(&lane.on)) {
            lane.leave.cancel();
        }
        for lane_settings in self.plan.lanes.clone() {
            if !self.tasks.running().any(|lane| lane.on.name == lane_settings.name) {
                self.enter(lane_settings);
            }
        }
    }

    fn enter(&mut self, lane_settings: LaneSettings) {
        // If the sink was gone, the change of its configuration may have repaired it.
        self.shared.channel.handle.sink_is_another(&lane_settings.name);
        let shared = self.shared.clone();
        self.tasks.spawn(lane_settings.clone(), self.plan.settings.grace, async move |leave| {
            let position = start::position(&shared, &lane_settings);
            let Some(position) = leave.run_until_cancelled(position).await.transpose()? else { return Ok(()) };
            let sink = lane_settings.name.clone();
            let (lane, upcoming) = Lane::new(shared.clone(), lane_settings, position);
            // Late events whose proofs arrived while this sink had no lane were offered only to other lanes.
            shared.ask_for_owed(&sink);
            lane.run(upcoming, leave).await
        });
    }

    /// Waits until a lane ends that was not told to leave, and returns its result. Meanwhile, replaces each lane that was
    /// told to leave and has ended.
    pub(crate) async fn ended(&mut self) -> Result<(), ChannelError> {
        while let Some((Task { on: lane_settings, leave }, ended)) = self.next_ended().await {
            ended?;
            if !leave.is_cancelled() || self.stop.is_cancelled() {
                return Ok(());
            }
            let sink = lane_settings.name;
            let channel = &self.shared.channel.identity.name;
            self.shared.channel.handle.board().lanes.remove(&sink);
            if let Some(next) = self.plan.lanes.iter().find(|lane_settings| lane_settings.name == sink).cloned() {
                info!(%channel, %sink, "lane restarts: the configuration of its sink, or a secret, has changed");
                self.enter(next);
            } else {
                info!(%channel, %sink, "lane ended: it was removed from the configuration");
            }
        }
        // A later plan can add lanes again.
        std::future::pending().await
    }

    /// Waits for every lane to end. If several lanes fail, returns the most severe error.
    pub(crate) async fn drain(mut self, mut ended: Result<(), ChannelError>) -> Result<(), ChannelError> {
        while let Some((_, lane)) = self.next_ended().await {
            if gravity(&lane) > gravity(&ended) {
                ended = lane;
            } else if let Err(error) = &lane {
                error!(error = %Chain(error), "another lane failed too");
            }
        }
        ended
    }

    async fn next_ended(&mut self) -> Option<(Task<LaneSettings>, Result<(), ChannelError>)> {
        let (lane, ended) = self.tasks.next_ended().await?;
        let (channel, sink) = (&self.shared.channel.identity.name, &lane.on.name);
        let ended = ended.unwrap_or_else(|| {
            warn!(%channel, %sink, "lane did not end in time: its current batch is offered again");
            Ok(())
        });
        Some((lane, ended))
    }
}

/// Returns the severity of a result. An error that affects more of the daemon is more severe.
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
