//! How each part of a channel's loop says what it does, without knowing who else does.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::handle::Handle;
use super::seen::Seen;
use super::status::Activity;
use crate::event::Offset;

/// The part of a channel's loop that tells what it does.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    handle: Arc<Handle>,
    part: Part,
}

#[derive(Clone, Debug)]
enum Part {
    /// What reads for every lane that keeps up.
    Channel,
    /// What reads for one lane, the one of this sink.
    Lane(Arc<str>),
    /// What asks for late proofs.
    Late,
}

impl Teller {
    pub(super) fn channel(handle: &Arc<Handle>) -> Self {
        Self { handle: handle.clone(), part: Part::Channel }
    }

    pub(super) fn lane(handle: &Arc<Handle>, sink: &Arc<str>) -> Self {
        Self { handle: handle.clone(), part: Part::Lane(sink.clone()) }
    }

    pub(super) fn late(handle: &Arc<Handle>) -> Self {
        Self { handle: handle.clone(), part: Part::Late }
    }

    /// What is done from now on.
    pub(super) fn says(&self, activity: Activity) {
        self.waits(activity, Duration::ZERO);
    }

    /// What is done from now on, beginning with a wait.
    pub(super) fn waits(&self, activity: Activity, wait: Duration) {
        match &self.part {
            Part::Channel => self.handle.observe(|seen| seen.says(activity, wait)),
            Part::Lane(sink) => self.handle.observe(|seen| seen.lane_says(sink, activity, wait)),
            Part::Late => self.handle.observe(|seen| {
                seen.late_proofs = match activity {
                    Activity::Waiting { error } | Activity::InDoubt { error, .. } => Some(error),
                    _ => None,
                };
            }),
        }
    }

    /// Something of what is being done has been done.
    pub(super) fn moves(&self) {
        match &self.part {
            Part::Channel => self.handle.observe(Seen::moves),
            Part::Lane(sink) => self.handle.observe(|seen| seen.lane_moves(sink)),
            Part::Late => {}
        }
    }

    /// Whether it reads for all, and not for one that reads again what the others have.
    pub(super) fn reads_first(&self) -> bool {
        matches!(self.part, Part::Channel)
    }

    /// An event was found in its place.
    pub(super) fn placed(&self, offset: Offset) {
        self.handle.observe(|seen| seen.newest.placed(offset, Timestamp::now()));
    }

    /// The service does not confirm what it shows at this offset.
    pub(super) fn disbelieves(&self, offset: Offset) {
        self.handle.observe(|seen| seen.newest.disbelieve(offset));
    }

    /// Everything that the service shows has been read.
    pub(super) fn has_read_all(&self) {
        if self.reads_first() {
            self.handle.observe(|seen| seen.newest.nothing_above());
        }
    }
}
