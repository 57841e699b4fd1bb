//! Determines the condition of each channel and each lane. Every view of the status shows this condition.

use super::not_ready::{NotReady, reasons_by_channel};
use channel::{Activity, ChannelStatus, Condition, LaneState, LaneStatus, NOTEWORTHY};

/// Sets the conditions of the channels and their lanes. `not_ready` are the reasons of the whole report.
pub(super) fn set(channels: &mut [ChannelStatus], not_ready: &[NotReady]) {
    let by_channel = reasons_by_channel(not_ready);
    for channel in channels {
        let reasons = by_channel.get(&*channel.channel).map_or(&[][..], |reasons| reasons);
        for lane in &mut channel.lanes {
            let has_reason = reasons.iter().any(|reason| reason.sink.as_ref() == Some(&lane.sink));
            lane.condition = of_lane(lane).max(least(has_reason));
        }
        channel.condition = of_channel(channel).max(least(!reasons.is_empty()));
    }
}

/// Returns the best condition that a channel or a lane can have, with or without a reason not to be ready.
fn least(has_reason: bool) -> Condition {
    if has_reason { Condition::NotReady } else { Condition::Ok }
}

/// Returns the worst condition of a channel and its lanes.
fn of_channel(channel: &ChannelStatus) -> Condition {
    let own = of_activity(&channel.activity);
    // If the channel does not run, or runs elsewhere, its lanes add nothing.
    if matches!(own, Condition::Stopped | Condition::Paused | Condition::Elsewhere) {
        return own;
    }
    let behind = if channel.seconds_left >= Some(NOTEWORTHY) { Condition::Behind } else { Condition::Ok };
    channel.lanes.iter().map(|lane| lane.condition).fold(own.max(behind), Condition::max)
}

fn of_lane(lane: &LaneStatus) -> Condition {
    match lane.state {
        LaneState::Stopped => Condition::SinkStopped,
        LaneState::Paused => Condition::SinkPaused,
        LaneState::Blocked => Condition::SinkBlocked,
        LaneState::GivingUp => Condition::SinkGivingUp,
        LaneState::Retrying => Condition::SinkRetrying,
        LaneState::Behind => lane.reading.as_ref().map_or(Condition::Behind, of_activity).max(Condition::Behind),
        LaneState::Ok if is_behind(lane) => Condition::Behind,
        LaneState::Ok => Condition::Ok,
    }
}

/// Returns whether a lane needs more than a moment to catch up. If its rate is unknown, the age of its oldest event decides.
fn is_behind(lane: &LaneStatus) -> bool {
    let by_age = || lane.lag_events > Some(0) && lane.oldest_undelivered_seconds >= Some(NOTEWORTHY);
    lane.seconds_left.map_or_else(by_age, |seconds| seconds >= NOTEWORTHY)
}

fn of_activity(activity: &Activity) -> Condition {
    match activity {
        Activity::Reading | Activity::Delivering | Activity::Idle => Condition::Ok,
        Activity::Paused => Condition::Paused,
        Activity::Elsewhere { .. } => Condition::Elsewhere,
        Activity::AwaitingMemory => Condition::AwaitingMemory,
        Activity::AwaitingTurn => Condition::AwaitingTurn,
        Activity::AwaitingProof { .. } => Condition::AwaitingProof,
        Activity::Waiting { error } if error.needs_attention => Condition::Blocked,
        Activity::Waiting { .. } => Condition::Waiting,
        Activity::TooManyLate => Condition::TooManyPending,
        Activity::QuarantineFull => Condition::QuarantineFull,
        Activity::InDoubt { .. } => Condition::InDoubt,
        Activity::Gone => Condition::Gone,
        Activity::Stopped => Condition::Stopped,
    }
}
