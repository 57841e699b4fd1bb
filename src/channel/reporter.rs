//! How each part of a channel's loop reports what it does to the status board.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::channel::board::BoardState;
use crate::channel::controls::Handle;
use crate::channel::status::Activity;
use crate::event::Offset;

/// One part's way to the board.
#[derive(Clone, Debug)]
pub(super) struct StatusReporter {
    handle: Arc<Handle>,
    part: Part,
}

#[derive(Clone, Debug)]
enum Part {
    /// The intake of every lane that keeps up.
    Channel,
    /// The intake of one lane that has fallen behind, by its sink.
    Lane(Arc<str>),
    /// The requests for late proofs.
    Late,
}

impl StatusReporter {
    pub(super) fn channel(handle: &Arc<Handle>) -> Self {
        Self { handle: handle.clone(), part: Part::Channel }
    }

    pub(super) fn lane(handle: &Arc<Handle>, sink: &Arc<str>) -> Self {
        Self { handle: handle.clone(), part: Part::Lane(sink.clone()) }
    }

    pub(super) fn late(handle: &Arc<Handle>) -> Self {
        Self { handle: handle.clone(), part: Part::Late }
    }

    /// Reports what the part does from now on.
    pub(super) fn says(&self, activity: Activity) {
        self.waits(activity, Duration::ZERO);
    }

    /// Reports what the part does from now on, beginning with a wait.
    pub(super) fn waits(&self, activity: Activity, wait: Duration) {
        match &self.part {
            Part::Channel => self.handle.board.update(|board| board.says(activity, wait)),
            Part::Lane(sink) => self.handle.board.update(|board| board.lane_says(sink, activity, wait)),
            Part::Late => self.handle.board.update(|board| {
                board.late_proofs = match activity {
                    Activity::Waiting { error } | Activity::InDoubt { error, .. } => Some(error),
                    _ => None,
                };
            }),
        }
    }

    /// Reports progress in what the part does.
    pub(super) fn moves(&self) {
        match &self.part {
            Part::Channel => self.handle.board.update(BoardState::moves),
            Part::Lane(sink) => self.handle.board.update(|board| board.lane_moves(sink)),
            Part::Late => {}
        }
    }

    /// Whether the part reads events first, and not again for a lane that is behind.
    pub(super) fn reads_first(&self) -> bool {
        matches!(self.part, Part::Channel)
    }

    /// The service confirmed an event at this offset.
    pub(super) fn placed(&self, offset: Offset) {
        self.handle.board.update(|board| board.newest.placed(offset, Timestamp::now()));
    }

    /// The service does not confirm what it shows at this offset.
    pub(super) fn unconfirmed(&self, offset: Offset) {
        self.handle.board.update(|board| board.newest.unconfirmed(offset));
    }

    /// Reports that everything the service shows has been read.
    pub(super) fn has_read_all(&self) {
        if self.reads_first() {
            self.handle.board.update(|board| board.newest.nothing_above());
        }
    }
}
