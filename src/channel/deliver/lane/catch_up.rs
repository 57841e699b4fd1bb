//! A lane that has fallen behind reads for itself, until it has caught up.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::channel::context::ReadPlan;
use crate::channel::deliver::lane::{Flow, Lane};
use crate::channel::read::intake::{Intake, Taken};
use crate::channel::reporter::{Part, StatusReporter};
use crate::channel::verify::Awaited;
use crate::channel::{ChannelError, pause};

impl Lane {
    /// Reads and delivers from the lane's own cursor until it can rejoin the others.
    pub(super) async fn catch_up(&mut self, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let reporter = StatusReporter::new(&self.shared.handle, Part::Lane(self.outlet.name.clone()));
        let mut read_plan = self.shared.read_plan();
        let mut intake = self.intake(read_plan.clone(), &reporter);
        while !self.shared.hub.rejoin(&self.input, self.through) {
            let taken = tokio::select! {
                biased;
                taken = intake.next(stop) => taken?,
                () = read_plan.over() => {
                    read_plan = self.shared.read_plan();
                    intake = self.intake(read_plan.clone(), &reporter);
                    continue;
                }
            };
            match taken {
                Taken::Batch(batch) => {
                    if self.batch(&batch, stop).await? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                    self.shared.late.add(batch.pending.iter().map(Awaited::from).collect(), &reporter, stop).await;
                }
                Taken::Nothing => {
                    pause(read_plan.settings.idle_wait, stop).await;
                }
                Taken::Stopped => return Ok(Flow::Stop),
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
