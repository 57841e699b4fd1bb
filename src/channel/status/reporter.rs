//! Reports the activity of each part of a channel's loop to the status board.

use std::sync::Arc;
use std::time::Instant;

use crate::controls::Handle;
use crate::status::Activity;

/// The connection of one part to the board.
#[derive(Clone, Debug)]
pub(crate) struct StatusReporter {
    handle: Arc<Handle>,
    part: Part,
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// The intake for all lanes that keep up.
    Channel,
    /// The intake of a lane that has fallen behind, identified by its sink.
    Lane(Arc<str>),
    /// The requests for late proofs.
    Late,
}

impl StatusReporter {
    pub(crate) fn new(handle: &Arc<Handle>, part: Part) -> Self {
        Self { handle: handle.clone(), part }
    }

    /// Reports the current activity of the part.
    pub(crate) fn says(&self, activity: Activity) {
        let mut board = self.handle.board();
        match &self.part {
            Part::Channel => board.says(activity),
            Part::Lane(sink) => board.lane(sink).status.reading = Some(activity),
            Part::Late => board.status.late_error = activity.problem().cloned(),
        }
    }

    /// Returns whether the part reads events for the first time, and not again for a lane that is behind.
    pub(crate) fn reads_first(&self) -> bool {
        matches!(self.part, Part::Channel)
    }

    /// Reports that everything the service shows has been read.
    pub(crate) fn has_read_all(&self) {
        if self.reads_first() {
            self.handle.board().newest.nothing_above();
        }
    }
}

/// A poll in progress, on the board until it is dropped.
pub(crate) struct Polling<'a> {
    handle: &'a Handle,
    pub(crate) asked: Instant,
}

impl<'a> Polling<'a> {
    pub(crate) fn begin(handle: &'a Handle) -> Self {
        let asked = Instant::now();
        handle.board().poll_begins(asked);
        Self { handle, asked }
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.handle.board().poll_ends(self.asked);
    }
}

/// A run of a channel. When it is dropped, the board shows that the run has ended.
pub(crate) struct RunOnBoard<'a>(&'a Handle);

impl<'a> RunOnBoard<'a> {
    /// Begins a run of the channel `name`.
    pub(crate) fn begin(handle: &'a Handle, name: &Arc<str>) -> Self {
        handle.board().run_begins(name);
        Self(handle)
    }
}

impl Drop for RunOnBoard<'_> {
    fn drop(&mut self) {
        self.0.board().run_ends();
    }
}
