//! By when a part of the loop must have made progress: this tells a part that hangs from one that waits.
//!
//! Some waits have no bound of the loop's own: for an operator, a sink, a proof, room in the quarantine. What the loop itself
//! bounds, a request or the wait between two of them, must be over in time.

use std::time::Duration;

use tokio::time::Instant;

use crate::channel::status::Activity;

/// The pace of one part that reads; `None` while no progress is expected of it.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Step>);

#[derive(Debug)]
struct Step {
    doing: &'static str,
    began: Instant,
    /// The wait that it begins with is over. A request follows.
    waited: Instant,
}

/// A part that should have made progress and has not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} has stood still for {} s ({doing})", .lasted.as_secs())]
pub struct Standstill {
    /// Which part of which channel.
    pub part: String,
    /// What it reported to be doing.
    pub doing: &'static str,
    /// For how long it has made no progress.
    pub lasted: Duration,
}

impl Pace {
    /// Begins an activity, after a wait.
    pub(super) fn begin(&mut self, activity: &Activity, wait: Duration) {
        let began = Instant::now();
        let step = || Step { doing: activity.into(), began, waited: began + wait };
        self.0 = is_bounded(activity).then(step);
    }

    /// Notes progress.
    pub(super) fn moved(&mut self) {
        if let Some(step) = &mut self.0 {
            step.began = Instant::now();
            step.waited = step.waited.max(step.began);
        }
    }

    /// Expects no progress from now on.
    pub(super) fn rest(&mut self) {
        self.0 = None;
    }

    /// The standstill, where the part has made no progress for longer than `within` after its wait.
    pub(super) fn standstill(&self, within: Duration, part: impl FnOnce() -> String) -> Option<Standstill> {
        let step = self.0.as_ref().filter(|step| step.waited.elapsed() > within)?;
        Some(Standstill { part: part(), doing: step.doing, lasted: step.began.elapsed() })
    }
}

/// Whether the loop itself bounds the activity.
fn is_bounded(activity: &Activity) -> bool {
    match activity {
        Activity::Reading
        | Activity::Idle
        | Activity::Waiting { .. }
        | Activity::InDoubt { .. }
        | Activity::AwaitingProof { .. } => true,
        Activity::Stopped
        | Activity::Paused
        | Activity::Delivering
        | Activity::TooManyLate
        | Activity::QuarantineFull
        | Activity::Gone => false,
    }
}

#[cfg(test)]
mod tests;
