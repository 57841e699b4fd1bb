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
    /// By then the wait that it begins with is over. A request follows.
    waited: Instant,
}

impl Pace {
    /// Begins an activity, after a wait.
    pub(super) fn begin(&mut self, activity: &Activity, wait: Duration) {
        use Activity::{AwaitingProof, Idle, InDoubt, Reading, Waiting};
        let is_bounded = matches!(activity, Reading | Idle | Waiting { .. } | InDoubt { .. } | AwaitingProof { .. });
        let began = Instant::now();
        self.0 = is_bounded.then(|| Step { doing: activity.into(), began, waited: began + wait });
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

    /// Says that a part stands still, where it has made no progress for longer than `within` after its wait.
    pub(super) fn standstill(&self, within: Duration, part: impl FnOnce() -> String) -> Option<String> {
        let Step { doing, began, .. } = self.0.as_ref().filter(|step| step.waited.elapsed() > within)?;
        Some(format!("{} has stood still for {} s ({doing})", part(), began.elapsed().as_secs()))
    }
}

#[cfg(test)]
mod tests;
