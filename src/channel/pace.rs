//! By when a part of the loop has to do the next thing, so that one that hangs is told from one that waits.
//!
//! A wait counts as such where somebody else decides how long it lasts: an operator, a sink, a proof, room in the
//! quarantine. Whatever the loop itself bounds, a request, a wait between two of them, has to be over in time.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::status::Activity;

/// The pace of one part that reads.
#[derive(Debug, Default)]
pub(super) struct Pace {
    step: Option<Step>,
}

#[derive(Debug)]
struct Step {
    doing: &'static str,
    began: Instant,
    /// It has to have moved by then.
    due: Instant,
}

/// Something that should have moved and has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standstill {
    /// Which part of which channel.
    pub part: String,
    /// What it said it was doing.
    pub doing: &'static str,
    /// For how long nothing has come of it.
    pub lasted: Duration,
}

impl Pace {
    /// It begins to do that, after a wait, where a request is answered, or given up, within `answers_within`.
    pub(super) fn begin(&mut self, activity: &Activity, wait: Duration, answers_within: Duration) {
        let began = Instant::now();
        let due = began + wait + answers_within;
        self.step = is_bounded(activity).then(|| Step { doing: activity.name(), began, due });
    }

    /// It has done a part of it.
    pub(super) fn moved(&mut self, answers_within: Duration) {
        if let Some(step) = &mut self.step {
            step.began = Instant::now();
            step.due = step.due.max(step.began + answers_within);
        }
    }

    /// It has nothing to do any more.
    pub(super) fn rest(&mut self) {
        self.step = None;
    }

    /// Whether it is late by more than `allowance`.
    pub(super) fn standstill(&self, allowance: Duration, part: impl FnOnce() -> String) -> Option<Standstill> {
        let step = self.step.as_ref().filter(|step| step.due.elapsed() > allowance)?;
        Some(Standstill { part: part(), doing: step.doing, lasted: step.began.elapsed() })
    }
}

/// Whether the loop itself says how long it may last.
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
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    fn is_late(pace: &Pace) -> bool {
        std::thread::sleep(Duration::from_millis(2));
        pace.standstill(AT_ONCE, String::new).is_some()
    }

    #[test]
    fn what_the_loop_bounds_has_to_be_over_in_time_and_what_others_decide_has_not() {
        let mut pace = Pace::default();
        assert!(!is_late(&pace));
        pace.begin(&Activity::Reading, AT_ONCE, AT_ONCE);
        assert!(is_late(&pace));
        for waits in [Activity::Delivering, Activity::TooManyLate, Activity::QuarantineFull, Activity::Paused] {
            pace.begin(&waits, AT_ONCE, AT_ONCE);
            assert!(!is_late(&pace), "{waits:?}");
        }
        pace.begin(&Activity::Idle, Duration::from_secs(3600), AT_ONCE);
        assert!(!is_late(&pace), "it waits as long as it said");
        pace.begin(&Activity::Idle, AT_ONCE, AT_ONCE);
        assert!(is_late(&pace));
        pace.moved(Duration::from_secs(3600));
        assert!(!is_late(&pace), "it has moved");
        pace.begin(&Activity::Reading, AT_ONCE, AT_ONCE);
        pace.rest();
        assert!(!is_late(&pace));
    }
}
