//! How each part of a channel's loop reports what it does to the status board.

use std::sync::Arc;
use std::time::Duration;

use crate::channel::controls::Handle;
use crate::channel::status::Activity;

/// One part's way to the board.
#[derive(Clone, Debug)]
pub(super) struct StatusReporter {
    handle: Arc<Handle>,
    part: Part,
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The intake of every lane that keeps up.
    Channel,
    /// The intake of one lane that has fallen behind, by its sink.
    Lane(Arc<str>),
    /// The requests for late proofs.
    Late,
}

impl StatusReporter {
    pub(super) fn new(handle: &Arc<Handle>, part: Part) -> Self {
        Self { handle: handle.clone(), part }
    }

    /// Reports what the part does from now on.
    pub(super) fn says(&self, activity: Activity) {
        self.waits(activity, Duration::ZERO);
    }

    /// Reports what the part does from now on, beginning with a wait.
    pub(super) fn waits(&self, activity: Activity, wait: Duration) {
        self.handle.board.update(|board| match &self.part {
            Part::Channel => board.says(activity, wait),
            Part::Lane(sink) => {
                let lane = board.lane(sink);
                lane.pace.begin(&activity, wait);
                lane.status.reading = Some(activity);
            }
            Part::Late => board.status.late_error = activity.problem().cloned(),
        });
    }

    /// Reports progress in what the part does.
    pub(super) fn moves(&self) {
        self.handle.board.update(|board| match &self.part {
            Part::Channel => board.pace.moved(),
            Part::Lane(sink) => board.lane(sink).pace.moved(),
            Part::Late => {}
        });
    }

    /// Whether the part reads events first, and not again for a lane that is behind.
    pub(super) fn reads_first(&self) -> bool {
        matches!(self.part, Part::Channel)
    }

    /// Reports that everything the service shows has been read.
    pub(super) fn has_read_all(&self) {
        if self.reads_first() {
            self.handle.board.update(|board| board.newest.nothing_above());
        }
    }
}
