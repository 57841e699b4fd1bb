//! Finds the reasons why the daemon is not ready, in the parts of a report. A pause by an operator is not a reason.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::not_ready::{NotReady, NotReadyKind as Kind};
use super::shared_proofs;
use crate::ConfiguredChannel;
use crate::configured::by_id;
use channel::{
    Activity, ChannelStatus, LaneState, LaneStatus, NONE_VERIFIED, POLLS_IN_VAIN, Problem, Refill, StoredEvents,
    counted,
};
use cluster::ClusterState;
use ledger::store::shared::{ClusterView, Instance, InstanceId, Ownership, UnreadableRow};
use ledger::store::{LONG_WAIT, TableWait};
use ledger::{Contradiction, Cursor, LostEntries};

/// A channel that has had no owner for less than this time is regarded as moving from one owner to another.
const MAY_BE_ORPHANED: Duration = Duration::from_secs(10);

/// The number of differing keys that a reason names.
const MAX_KEYS: usize = 5;

pub(super) fn of_state(error: Option<&str>, lost: Option<&LostEntries>) -> Vec<NotReady> {
    let mut reasons = Vec::new();
    if let Some(error) = error {
        reasons.push(NotReady::new(Kind::StateNotWritable, format!("the state cannot be written: {error}")));
    }
    if let Some(LostEntries { quarantined, dead_letters, kept, .. }) = lost {
        let kept =
            kept.as_ref().map_or_else(String::new, |kept| format!(" (a copy of the damaged state is in {kept})"));
        let detail = format!(
            "{} and {} were lost because the state was damaged{kept}: examine the loss, and then run `channeld state acknowledge`",
            counted(*quarantined, "quarantined event"),
            counted(*dead_letters, "dead letter"),
        );
        reasons.push(NotReady::new(Kind::StateDamaged, detail));
    }
    reasons
}

/// Returns the long waits for tables that the instances share.
pub(super) fn of_waits(waits: &[TableWait]) -> Vec<NotReady> {
    let reason = |TableWait { tables, lasts, error }: &TableWait| {
        let why = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        let detail = format!(
            "the state's database has not executed a statement on `{tables}` for {} s{why}: find out whether a session locks a table",
            lasts.as_secs()
        );
        NotReady::new(Kind::StateWaiting, detail)
    };
    waits.iter().map(reason).collect()
}

/// Returns the reason for a write of a state directory that has lasted long.
pub(super) fn of_write(lasts: Option<Duration>) -> Option<NotReady> {
    let seconds = lasts.filter(|lasts| *lasts >= LONG_WAIT)?.as_secs();
    let detail = format!("a write to the state has lasted {seconds} s: check the disk of state.path");
    Some(NotReady::new(Kind::StateWaiting, detail))
}

/// Returns the reasons that concern a channel and its lanes.
pub(super) fn of_channel(channel: &ChannelStatus) -> Vec<NotReady> {
    let mut reasons = of_reading(channel);
    reasons.extend(of_kept(channel));
    for lane in &channel.lanes {
        let of_lane = of_lane(&channel.channel, lane).into_iter();
        reasons.extend(of_lane.map(|reason| NotReady { sink: Some(lane.sink.clone()), ..reason }));
    }
    for reason in &mut reasons {
        reason.channel = Some(channel.channel.clone());
    }
    reasons
}

/// Returns the problems with the sharing of channels.
pub(super) fn of_cluster(seen: &ClusterState, me: InstanceId, configured: &[ConfiguredChannel]) -> Vec<NotReady> {
    let mut reasons = Vec::new();
    if let Some(error) = &seen.trouble {
        reasons.push(NotReady::new(Kind::HeartbeatFailing, format!("no channel can be leased: {error}")));
    }
    reasons.extend(of_differences(&seen.view, me, configured));
    for UnreadableRow { channel, what } in &seen.view.unreadable {
        let channel = channel.map(|channel| by_id(configured, channel).name);
        reasons.push(NotReady { channel, ..NotReady::new(Kind::StateNotReadable, what) });
    }
    for ConfiguredChannel { channel, .. } in configured {
        if let Some(Ownership::Orphaned { since }) = seen.view.channels.get(&channel.id)
            && *since >= MAY_BE_ORPHANED
            && !seen.work.contains(&channel.id)
        {
            let reason = NotReady::new(Kind::NoOwner, format!("has had no owner for {} s", since.as_secs()));
            reasons.push(NotReady { channel: Some(channel.name.clone()), ..reason });
        }
    }
    reasons
}

/// Returns a reason for each living instance whose configuration differs from the configuration of this instance.
fn of_differences(view: &ClusterView, me: InstanceId, configured: &[ConfiguredChannel]) -> Vec<NotReady> {
    let Some(own) = view.instances.get(&me) else { return Vec::new() };
    let others = view.instances.iter().filter(|(id, other)| **id != me && other.shares());
    let differs = |(_, other): (&InstanceId, &Instance)| {
        // Usually the configurations are equal and share one value.
        if Arc::ptr_eq(&own.configured, &other.configured) {
            return None;
        }
        let differences = own.configured.differences(&other.configured);
        let keys = differences.iter().map(|(channel, key)| match channel {
            Some(channel) => format!("channels.{}.{key}", by_id(configured, *channel).name),
            None => key.clone(),
        });
        let keys: BTreeSet<_> = keys.collect();
        let more = keys.len().saturating_sub(MAX_KEYS);
        let keys = keys.into_iter().take(MAX_KEYS).collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let detail = format!(
            "instance {} has other values than this instance for {keys}{more}: what is verified and delivered depends on the instance that runs a channel; give all instances the same configuration",
            other.name
        );
        (!differences.is_empty()).then(|| NotReady::new(Kind::InstancesDiffer, detail))
    };
    others.filter_map(differs).collect()
}

/// Returns the problems with reading a channel and with the content of its events.
fn of_reading(channel: &ChannelStatus) -> Vec<NotReady> {
    let ChannelStatus { activity, last_poll, .. } = channel;
    let mut reasons = Vec::from_iter(of_activity(activity));
    let mut because = |kind, detail: String| reasons.push(NotReady::new(kind, detail));
    let runs_here = !matches!(activity, Activity::Paused | Activity::Elsewhere { .. });
    // Skipped if the activity itself is a reason.
    if of_activity(activity).is_none() {
        if last_poll.is_none() && runs_here {
            because(Kind::NotReadYet, "has not been read yet".to_owned());
        } else if let Some(seconds) = channel.unanswered_seconds {
            let why = activity.problem().map_or_else(String::new, |problem| format!(": {}", problem.message));
            because(Kind::Unanswered, format!("the service has not answered a poll for {seconds} s{why}"));
        }
    }
    if let Some(cursor) = channel.newest_below {
        let detail = format!(
            "the service's newest event is below the cursor {cursor}: the service may have been restored; examine the service's newest events, then pause the channel and run `channeld cursor set --back-to`"
        );
        because(Kind::NewestBelowCursor, detail);
    }
    if let Some(Contradiction { offset, agrees_through, .. }) = channel.contradiction {
        let through = agrees_through.map_or_else(|| "earliest".to_owned(), |offset| offset.to_string());
        let name = &channel.channel;
        let detail = format!(
            "the service has a different event at offset {offset} than before: the service was probably restored from a backup; new events are quarantined; to accept the service's history and read again from the last common event: `channeld pause \
             {name}`, `channeld cursor set {name} --back-to {through} --yes`, `channeld resume {name}`"
        );
        because(Kind::HistoryDiffers, detail);
    }
    for shared in &channel.shared_proofs {
        because(Kind::ProofInTwoChannels, shared_proofs::reason(&channel.channel, shared));
    }
    if channel.polls_in_vain >= POLLS_IN_VAIN {
        let detail = format!(
            "the last {POLLS_IN_VAIN} answers announce more events but contain no new one ({}): no progress is possible; ask the service's operator",
            channel.shown_in_vain
        );
        because(Kind::PollsInVain, detail);
    }
    if let Some(last) = channel.last_rejection.filter(|_| channel.rejected_in_a_row >= NONE_VERIFIED) {
        let (last, check) = (last.name(), last.what_to_check());
        let detail =
            format!("{NONE_VERIFIED} of the last {NONE_VERIFIED} events were rejected ({last}): check {check}");
        because(Kind::RejectedInARow, detail);
    }
    reasons
}

/// Returns the problems with the stored events of a channel: its quarantine, its dead letters and its pending events.
fn of_kept(channel: &ChannelStatus) -> Vec<NotReady> {
    let ChannelStatus { quarantine, dead_letters, .. } = channel;
    let mut reasons = Vec::new();
    let mut because = |kind, detail: String| reasons.push(NotReady::new(kind, detail));
    let numbers = |kept: &StoredEvents| format!("({}, {})", counted(kept.events, "event"), counted(kept.bytes, "byte"));
    if quarantine.full {
        let numbers = numbers(quarantine);
        let follows = "reading stops before the next event that would be rejected";
        because(Kind::QuarantineFull, format!("its quarantine is full {numbers}: {follows}"));
    }
    if dead_letters.full {
        let numbers = numbers(dead_letters);
        let follows = "no event becomes a dead letter until some are delivered or dropped";
        because(Kind::DeadLettersFull, format!("its dead letters are full {numbers}: {follows}"));
    }
    if channel.pending_full {
        because(Kind::LateEventsFull, "its pending events are full: reading waits for their proofs".to_owned());
    }
    if let Some(error) = channel.pending_error.as_ref().filter(|error| error.needs_attention) {
        because(Kind::LateProofsBlocked, format!("pending events cannot be requested: {}", error.message));
    }
    reasons
}

fn of_lane(channel: &str, lane: &LaneStatus) -> Vec<NotReady> {
    let stopped = match (&lane.error, &lane.reading) {
        (Some(error), _) if lane.state == LaneState::Blocked => Some(of_problem(error, Kind::SinkBlocked)),
        (Some(error), _) if lane.state == LaneState::GivingUp => Some(of_dead_letters(channel, lane, error)),
        (_, Some(reading)) => of_activity(reading),
        _ => None,
    };
    stopped.into_iter().chain(of_position(lane)).chain(of_comparison(channel, lane)).collect()
}

/// Describes a sink that refuses one event after another.
fn of_dead_letters(channel: &str, lane: &LaneStatus, error: &Problem) -> NotReady {
    let events = match lane.dead_letters_in_a_row {
        1 => "the last event was refused and is a dead letter".to_owned(),
        events => format!("the last {events} events were refused and are dead letters"),
    };
    let (sink, message) = (&lane.sink, error.message.trim_end_matches('.'));
    let detail = format!(
        "{events}: {message}. Correct the cause, then `channeld dead-letters replay {channel} --sink {sink} --all` delivers them; `channeld pause {channel} --sink {sink}` makes the next events wait"
    );
    NotReady::new(Kind::SinkGivingUp, detail)
}

/// Describes the difference between a sink's own position and the recorded cursor.
fn of_position(lane: &LaneStatus) -> Option<NotReady> {
    if let Some(Refill { above, to }) = lane.refill {
        let above = Cursor { through: above };
        let detail = format!("the sink lost data: events above {above} up to offset {to} are delivered again");
        return Some(NotReady::new(Kind::SinkLostData, detail));
    }
    let ahead = lane.ahead?;
    let cursor = Cursor { through: lane.cursor };
    let detail = format!(
        "the sink contains events up to offset {ahead}, but the state knows only {cursor}: the state is older than the sink; events that the sink already has are skipped"
    );
    Some(NotReady::new(Kind::SinkAhead, detail))
}

/// Describes the events that the last comparison with the service did not find in the sink.
fn of_comparison(channel: &str, lane: &LaneStatus) -> Option<NotReady> {
    let compared = lane.compared.as_ref()?;
    let (missing, first) = (compared.missing, compared.first_missing.first()?);
    let what = match missing {
        0 => return None,
        1 => format!("an event of the service is missing, at offset {first}"),
        _ => format!("{missing} events of the service are missing, the first at offset {first}"),
    };
    let detail = format!("{what}: `channeld check --history {channel}` lists them and shows how to deliver them");
    Some(NotReady::new(Kind::EventsMissing, detail))
}

/// Returns a reason if the activity is a problem that an operator must solve.
fn of_activity(activity: &Activity) -> Option<NotReady> {
    match activity {
        Activity::Stopped => Some(NotReady::new(Kind::NotRunning, "does not run")),
        Activity::Gone => Some(NotReady::new(Kind::ChannelGone, "does not exist or is archived")),
        Activity::InDoubt { error, .. } => Some(NotReady::new(Kind::InDoubt, &*error.message)),
        Activity::Waiting { error } if error.needs_attention => Some(of_problem(error, Kind::ReadingBlocked)),
        // Some of these activities are no problem. `of_reading` and `of_kept` report the others, with their numbers.
        Activity::QuarantineFull
        | Activity::TooManyLate
        | Activity::Waiting { .. }
        | Activity::Paused
        | Activity::Reading
        | Activity::AwaitingMemory
        | Activity::AwaitingTurn
        | Activity::Delivering
        | Activity::Idle
        | Activity::Elsewhere { .. }
        | Activity::AwaitingProof { .. } => None,
    }
}

/// Returns a problem of reading or of a sink as a reason. `kind` applies to the problems that have no kind of their own.
fn of_problem(problem: &Problem, kind: Kind) -> NotReady {
    let kind = match &*problem.kind {
        Problem::POSITION_MISSING => Kind::SinkPositionMissing,
        Problem::NONE_VERIFIED => Kind::NoneVerified,
        Problem::FAR_ABOVE => Kind::FarAbove,
        Problem::TOO_LONG => Kind::AnswerTooLong,
        Problem::STATE_NOT_READABLE => Kind::StateNotReadable,
        _ => kind,
    };
    NotReady::new(kind, &*problem.message)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use channel::{Compared, RejectionReason};
    use proof::event::Offset;

    type Change<'a> = &'a dyn Fn(&mut ChannelStatus);

    fn problem(kind: &str, needs_attention: bool) -> Problem {
        let since = Timestamp::UNIX_EPOCH;
        Problem { kind: kind.to_owned(), message: "why".to_owned(), since, times: 1, needs_attention }
    }

    fn in_order() -> ChannelStatus {
        let lane = LaneStatus { sink: "s".into(), state: LaneState::Ok, ..LaneStatus::default() };
        ChannelStatus {
            channel: "c".into(),
            activity: Activity::Idle,
            last_poll: Some(Timestamp::UNIX_EPOCH),
            lanes: vec![lane],
            ..ChannelStatus::default()
        }
    }

    #[test]
    fn each_problem_has_a_kind_and_a_message() {
        let offset = Offset::new(7).unwrap();
        let full = StoredEvents { events: 3, bytes: 5, full: true };
        let waits = |it: &mut ChannelStatus, kind| it.activity = Activity::Waiting { error: problem(kind, true) };
        let blocks = |it: &mut ChannelStatus, kind| {
            (it.lanes[0].state, it.lanes[0].error) = (LaneState::Blocked, Some(problem(kind, true)));
        };
        let gives_up = |it: &mut ChannelStatus, events| {
            (it.lanes[0].state, it.lanes[0].dead_letters_in_a_row) = (LaneState::GivingUp, events);
            it.lanes[0].error = Some(problem("refused", true));
        };
        let compared = Compared { at: Timestamp::UNIX_EPOCH, events: 9, missing: 1, first_missing: vec![offset] };
        let cases: [(Change<'_>, Kind, &str); 25] = [
            (&|it| it.activity = Activity::Stopped, Kind::NotRunning, "channel c: does not run"),
            (&|it| it.activity = Activity::Gone, Kind::ChannelGone, "channel c: does not exist or is archived"),
            (&|it| it.last_poll = None, Kind::NotReadYet, "channel c: has not been read yet"),
            (&|it| waits(it, "refused"), Kind::ReadingBlocked, "channel c: why"),
            (&|it| waits(it, Problem::NONE_VERIFIED), Kind::NoneVerified, "channel c: why"),
            (&|it| waits(it, Problem::FAR_ABOVE), Kind::FarAbove, "channel c: why"),
            (&|it| waits(it, Problem::TOO_LONG), Kind::AnswerTooLong, "channel c: why"),
            (&|it| waits(it, Problem::STATE_NOT_READABLE), Kind::StateNotReadable, "channel c: why"),
            (
                &|it| it.activity = Activity::InDoubt { above: None, below: offset, error: problem("", true) },
                Kind::InDoubt,
                "channel c: why",
            ),
            (
                &|it| it.unanswered_seconds = Some(9),
                Kind::Unanswered,
                "channel c: the service has not answered a poll for 9 s",
            ),
            (
                &|it| it.newest_below = Some(offset),
                Kind::NewestBelowCursor,
                "channel c: the service's newest event is below",
            ),
            (&|it| it.polls_in_vain = 15, Kind::PollsInVain, "channel c: the last 15 answers announce more events"),
            (
                &|it| (it.rejected_in_a_row, it.last_rejection) = (15, Some(RejectionReason::OtherChannel)),
                Kind::RejectedInARow,
                "channel c: 15 of the last 15 events were rejected (other-channel): check the channel's id and its `expect`",
            ),
            (
                &|it| it.quarantine = full,
                Kind::QuarantineFull,
                "channel c: its quarantine is full (3 events, 5 bytes): ",
            ),
            (
                &|it| it.dead_letters = full,
                Kind::DeadLettersFull,
                "channel c: its dead letters are full (3 events, 5 bytes)",
            ),
            (
                &|it| it.pending_full = true,
                Kind::LateEventsFull,
                "channel c: its pending events are full: reading waits",
            ),
            (
                &|it| it.pending_error = Some(problem("", true)),
                Kind::LateProofsBlocked,
                "channel c: pending events cannot be requested: why",
            ),
            (&|it| blocks(it, "refused"), Kind::SinkBlocked, "channel c, sink s: why"),
            (&|it| gives_up(it, 1), Kind::SinkGivingUp, "channel c, sink s: the last event was refused"),
            (&|it| gives_up(it, 7), Kind::SinkGivingUp, "channel c, sink s: the last 7 events were"),
            (&|it| blocks(it, Problem::POSITION_MISSING), Kind::SinkPositionMissing, "channel c, sink s: why"),
            (
                &|it| it.lanes[0].refill = Some(Refill { above: None, to: offset }),
                Kind::SinkLostData,
                "channel c, sink s: the sink lost data: events above ",
            ),
            (
                &|it| it.lanes[0].ahead = Some(offset),
                Kind::SinkAhead,
                "channel c, sink s: the sink contains events up to offset 7",
            ),
            (
                &|it| it.lanes[0].compared = Some(compared.clone()),
                Kind::EventsMissing,
                "channel c, sink s: an event of the service is missing, at offset 7: ",
            ),
            (
                &|it| it.lanes[0].reading = Some(Activity::Waiting { error: problem("refused", true) }),
                Kind::ReadingBlocked,
                "channel c, sink s: why",
            ),
        ];
        for (change, kind, sentence) in cases {
            let mut channel = in_order();
            assert_eq!(of_channel(&channel), []);
            change(&mut channel);
            let reasons = of_channel(&channel);
            let [reason] = &reasons[..] else { panic!("{kind:?}: {reasons:?}") };
            assert_eq!(reason.kind, kind);
            assert!(reason.to_string().starts_with(sentence), "{reason}");
        }
    }

    #[test]
    fn a_wait_for_a_table_names_the_table_and_how_long_it_has_lasted() {
        let wait = |error| TableWait { tables: "proofs".to_owned(), lasts: Duration::from_secs(12), error };
        let reasons = of_waits(&[wait(None), wait(Some("permission denied".to_owned()))]);
        assert!(reasons.iter().all(|reason| reason.kind == Kind::StateWaiting && reason.channel.is_none()));
        let [first, second] = [0, 1].map(|at| reasons[at].to_string());
        assert!(
            first.starts_with("the state's database has not executed a statement on `proofs` for 12 s: find"),
            "{first}"
        );
        assert!(second.contains("for 12 s: permission denied: find"), "{second}");
    }

    #[test]
    fn momentary_problems_and_pauses_stay_ready() {
        for activity in [Activity::Paused, Activity::Waiting { error: problem("transient", false) }] {
            let mut channel = ChannelStatus { activity, ..in_order() };
            channel.lanes[0].state = LaneState::Retrying;
            channel.lanes[0].error = Some(problem("refused", false));
            assert_eq!(of_channel(&channel), []);
        }
    }

    #[test]
    fn a_reason_round_trips_and_an_unknown_kind_keeps_its_message() {
        let sent =
            NotReady { channel: Some("c".into()), sink: Some("s".into()), ..NotReady::new(Kind::SinkBlocked, "why") };
        let json = serde_json::to_value(&sent).unwrap();
        assert_eq!(json, serde_json::json!({"kind": "sink_blocked", "channel": "c", "sink": "s", "detail": "why"}));
        assert_eq!(serde_json::from_value::<NotReady>(json).unwrap(), sent);
        let other = serde_json::json!({"kind": "of_tomorrow", "instance": "b", "channel": "c", "detail": "why"});
        let other: NotReady = serde_json::from_value(other).unwrap();
        assert_eq!((other.kind, other.to_string().as_str()), (Kind::Unknown, "instance b: channel c: why"));
    }
}
