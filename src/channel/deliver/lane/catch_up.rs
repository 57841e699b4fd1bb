//! A lane that has fallen behind reads for itself, until it has caught up.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::channel::context::ReadPlan;
use crate::channel::deliver::lane::{Flow, Lane};
use crate::channel::read::intake::Intake;
use crate::channel::reporter::StatusReporter;
use crate::channel::{ChannelError, late, pause};

impl Lane {
    /// Reads and delivers from the lane's own cursor until it can rejoin the others.
    pub(super) async fn catch_up(&mut self, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let reporter = StatusReporter::lane(&self.shared.handle, &self.outlet.name);
        let mut read_plan = self.shared.read_plan();
        let mut intake = self.intake(read_plan.clone(), &reporter);
        while !self.shared.hub.rejoin(&self.input, self.through) {
            let reading = async {
                late::room(&self.shared, &reporter).await;
                intake.next().await
            };
            let batch = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(Flow::Stop),
                batch = reading => batch?,
                () = read_plan.over() => {
                    read_plan = self.shared.read_plan();
                    intake = self.intake(read_plan.clone(), &reporter);
                    continue;
                }
            };
            match batch {
                Some(batch) => {
                    if self.batch(&batch, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                None => {
                    pause(read_plan.settings.idle_wait, stop).await;
                }
            }
        }
        self.shared.handle.board.update(|board| board.lane_rejoins(&self.outlet.name));
        // Late events that were proved meanwhile went to attached lanes only.
        self.shared.ask_for_owed(&self.identity.sink);
        Ok(Flow::On)
    }

    fn intake(&self, read_plan: Arc<ReadPlan>, reporter: &StatusReporter) -> Intake {
        Intake::new(self.shared.clone(), read_plan, self.through, reporter.clone())
    }
}
