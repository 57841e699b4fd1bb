//! By when a part of the loop must have made progress: this tells a part that hangs from one that waits.
//!
//! Some waits have no bound of the loop's own: for an operator, a sink, a proof, room in the quarantine. What the loop itself
//! bounds, a request or the wait between two of them, must be over in time.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::channel::status::Activity;

/// The pace of one part that reads.
#[derive(Debug, Default)]
pub(super) struct Pace {
    step: Option<Step>,
}

#[derive(Debug)]
struct Step {
    doing: &'static str,
    began: Instant,
    /// It must have made progress by then.
    due: Instant,
}

/// A part that should have made progress and has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standstill {
    /// Which part of which channel.
    pub part: String,
    /// What it reported to be doing.
    pub doing: &'static str,
    /// For how long it has made no progress.
    pub lasted: Duration,
}

impl Pace {
    /// Begins an activity, after a wait. A request is answered, or times out, within `answers_within`.
    pub(super) fn begin(&mut self, activity: &Activity, wait: Duration, answers_within: Duration) {
        let began = Instant::now();
        let due = began + wait + answers_within;
        self.step = is_bounded(activity).then(|| Step { doing: activity.name(), began, due });
    }

    /// Notes progress.
    pub(super) fn moved(&mut self, answers_within: Duration) {
        if let Some(step) = &mut self.step {
            step.began = Instant::now();
            step.due = step.due.max(step.began + answers_within);
        }
    }

    /// Expects no progress from now on.
    pub(super) fn rest(&mut self) {
        self.step = None;
    }

    /// The standstill, where the part is late by more than `allowance`.
    pub(super) fn standstill(&self, allowance: Duration, part: impl FnOnce() -> String) -> Option<Standstill> {
        let step = self.step.as_ref().filter(|step| step.due.elapsed() > allowance)?;
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

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has stood still for {} s ({})", self.part, self.lasted.as_secs(), self.doing)
    }
}

#[cfg(test)]
mod tests;
