//! Lets a lane that has fallen behind read for itself until it has caught up.

use std::sync::Arc;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::deliver::lane::{Halt, Lane};
use crate::deliver::upcoming::Prepared;
use crate::late;
use crate::read::intake::Intake;
use crate::status::reporter::Part;

impl Lane {
    /// Reads and delivers, beginning at the lane's own cursor.
    pub(super) async fn catch_up(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let sink = self.outlet.name.clone();
        self.reads = true;
        'plan: loop {
            let read_plan = self.shared.read_plan();
            let part = Part::Lane(sink.clone());
            let mut intake = Intake::new(self.shared.clone(), read_plan.clone(), self.through, part);
            while !self.shared.hub.rejoin(&sink, self.through) {
                let reading = async {
                    late::room(&self.shared, &intake.reporter).await;
                    intake.next().await
                };
                let batch = tokio::select! {
                    biased;
                    () = stop.cancelled() => return Err(Halt::Stopped),
                    batch = reading => batch?,
                    () = read_plan.over.cancelled() => continue 'plan,
                };
                match batch {
                    Some(mut batch) => {
                        // Never read beyond the hub: its reader records the gaps in which events may appear for every lane.
                        let is_cut = self.shared.hub.position().is_some_and(|position| batch.end_at(position));
                        let mut prepared = Prepared::of(Arc::new(batch));
                        prepared.shape(&self.outlet, self.through).await;
                        match intake.during(self.batch(prepared, stop)).await {
                            Err(Halt::MovedBack) => continue 'plan,
                            done => done?,
                        }
                        if is_cut {
                            continue 'plan;
                        }
                    }
                    None => drop(stop.run_until_cancelled(sleep(read_plan.settings.idle_wait)).await),
                }
            }
            break;
        }
        self.reads = false;
        self.shared.channel.handle.board().lane_rejoins(&sink);
        // Proofs that arrived meanwhile were passed to attached lanes only.
        self.shared.ask_for_owed(&sink);
        Ok(())
    }
}
