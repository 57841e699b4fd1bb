//! A lane that has fallen behind reads for itself, until it has caught up.

use tokio_util::sync::CancellationToken;

use crate::channel::deliver::lane::{Halt, Lane};
use crate::channel::read::intake::Intake;
use crate::channel::reporter::{Part, StatusReporter};
use crate::channel::{late, pause};

impl Lane {
    /// Reads and delivers from the lane's own cursor until it can rejoin the others.
    pub(super) async fn catch_up(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let sink = self.outlet.name.clone();
        let reporter = StatusReporter::new(&self.shared.handle, Part::Lane(sink.clone()));
        'plan: loop {
            let read_plan = self.shared.read_plan();
            let mut intake = Intake::new(self.shared.clone(), read_plan.clone(), self.through, reporter.clone());
            while !self.shared.hub.rejoin(&sink, self.through) {
                let reading = async {
                    late::room(&self.shared, &reporter).await;
                    intake.next().await
                };
                let batch = tokio::select! {
                    biased;
                    () = stop.cancelled() => return Err(None),
                    batch = reading => batch?,
                    () = read_plan.over() => continue 'plan,
                };
                match batch {
                    Some(batch) => self.batch(&batch, stop).await?,
                    None => drop(pause(read_plan.settings.idle_wait, stop).await),
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
