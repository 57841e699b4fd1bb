//! A lane that has fallen behind reads for itself, until it has caught up.

use tokio_util::sync::CancellationToken;

use crate::channel::deliver::lane::{Halt, Lane};
use crate::channel::pause;
use crate::channel::read::intake::{Intake, Taken};
use crate::channel::reporter::StatusReporter;
use crate::channel::verify::Awaited;

impl Lane {
    /// Reads and delivers from the lane's own cursor until it can rejoin the others.
    pub(super) async fn catch_up(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let sink = self.outlet.name.clone();
        let reporter = StatusReporter::lane(&self.shared.handle, &sink);
        'plan: loop {
            let read_plan = self.shared.read_plan();
            let mut intake = Intake::new(self.shared.clone(), read_plan.clone(), self.through, reporter.clone());
            while !self.shared.hub.rejoin(&sink, self.through) {
                let taken = tokio::select! {
                    biased;
                    taken = intake.next(stop) => taken?,
                    () = read_plan.over() => continue 'plan,
                };
                match taken {
                    Taken::Batch(batch) => {
                        self.batch(&batch, stop).await?;
                        self.shared.late.add(batch.pending.iter().map(Awaited::from).collect(), &reporter, stop).await;
                    }
                    Taken::Nothing => drop(pause(read_plan.settings.idle_wait, stop).await),
                    Taken::Stopped => return Err(None),
                }
            }
            break;
        }
        self.shared.handle.board.update(|board| board.lane_rejoins(&sink));
        // Late events that were proved meanwhile went to attached lanes only.
        self.shared.ask_for_owed(&sink);
        Ok(())
    }
}
