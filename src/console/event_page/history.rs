//! The history of an event, step by step, with the recorded times. A time that is not recorded is not guessed.

use jiff::Timestamp;
use maud::{Markup, Render, html};

use crate::page::{segment, time};
use crate::text::text;
use channel::{LaneStatus, Problem, counted, span};
use operator::api::{DeadLetter, Journey};

#[cfg(test)]
mod tests;

/// How many seconds the clocks of the network and of this machine may differ.
const SKEW: i64 = 5;

#[derive(Debug)]
pub(super) struct HistoryStep {
    when: StepTime,
    what: Markup,
    detail: Markup,
    is_good: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepTime {
    At(Timestamp),
    NotRecorded,
    /// The current state, or something that has not happened yet.
    Now,
}

impl From<Option<Timestamp>> for StepTime {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::NotRecorded, Self::At)
    }
}

impl HistoryStep {
    pub(super) fn new(when: impl Into<StepTime>, what: impl Render, detail: impl Render) -> Self {
        Self { when: when.into(), what: what.render(), detail: detail.render(), is_good: true }
    }

    /// Marks the step as one that needs an operator's attention.
    pub(super) fn bad(self) -> Self {
        Self { is_good: false, ..self }
    }
}

pub(super) fn show(steps: &[HistoryStep]) -> Markup {
    let mut before = None;
    html! {
        ol.history {
            @for (index, step) in steps.iter().enumerate() {
                li.bad[!step.is_good] {
                    span.when {
                        @match step.when {
                            StepTime::At(at) => {
                                (moment(at, is_exact(at, &steps[index + 1..]))) @if let Some(after) = before.replace(at).and_then(|before| after(before, at)) { " " span.after { (after) } }
                            }
                            StepTime::NotRecorded => span.none { "time not recorded" },
                            StepTime::Now => "now",
                        }
                    }
                    div { strong { (step.what) } " " span.sub { (step.detail) } }
                }
            }
        }
    }
}

/// Whether a time is shown with milliseconds. It is not if a later step of the same second is recorded in whole seconds:
/// with milliseconds, the later step would seem to be the earlier one.
fn is_exact(at: Timestamp, later: &[HistoryStep]) -> bool {
    let is_whole = |time: Timestamp| time.subsec_nanosecond() == 0;
    let has_whole_in_second = later
        .iter()
        .any(|step| matches!(step.when, StepTime::At(later) if is_whole(later) && later.as_second() == at.as_second()));
    !is_whole(at) && !has_whole_in_second
}

/// A time in UTC, with or without milliseconds.
fn moment(at: Timestamp, is_exact: bool) -> Markup {
    if !is_exact {
        return time(Some(at));
    }
    html! { time datetime=(format!("{at:.3}")) title=(format!("{at} (UTC)")) { (at.strftime("%Y-%m-%d %H:%M:%S%.3f")) } }
}

/// How long after the step before, such as `+320 ms`. If one of the times has no milliseconds, only whole seconds are
/// shown. `None` if the difference is not known, or is negative because the clocks differ.
fn after(before: Timestamp, at: Timestamp) -> Option<String> {
    let milliseconds = u64::try_from(at.as_millisecond() - before.as_millisecond()).ok()?;
    let is_exact = [before, at].iter().all(|time| time.subsec_nanosecond() != 0);
    match (milliseconds, is_exact) {
        (0..1_000, true) => Some(format!("+{milliseconds} ms")),
        (1_000..10_000, true) => Some(format!("+{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100)),
        (0..1_000, false) => None,
        _ => Some(format!("+{}", span(milliseconds / 1_000))),
    }
}

/// When the event was created, when it was read, and when its proof was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventOrigin {
    /// The time that the event itself states.
    pub(super) created: Option<Timestamp>,
    /// When channeld first read the event. `None` if channeld has not read it, or if the time is not recorded.
    pub(super) received: Option<Timestamp>,
    pub(super) was_read: bool,
    /// When the network made the proof, if the proof is valid.
    pub(super) proved: Option<Timestamp>,
}

impl EventOrigin {
    /// The steps, in the order of their times.
    pub(super) fn steps(self) -> Vec<HistoryStep> {
        let Self { created, received, was_read, proved } = self;
        let mut steps = vec![HistoryStep::new(created, "Created", "according to the event's timestamp")];
        if was_read {
            steps.push(HistoryStep::new(received, "Received", "by channeld, from the service"));
        }
        if let Some(proved) = proved {
            let made = HistoryStep::new(Some(proved), "Proof made", "by the network, according to its report");
            let is_before_reading = received.is_none_or(|received| proved <= received);
            steps.insert(if is_before_reading { 1 } else { steps.len() }, made);
        }
        steps
    }

    /// The step for a late delivery; `None` if the event was delivered in time. `delivered` is the time at which this event
    /// was delivered, and `followed` the time at which the first later event was delivered.
    pub(super) fn wait(self, delivered: Option<Timestamp>, followed: Option<Timestamp>) -> Option<HistoryStep> {
        let after = self.proved.zip(self.received).map(|(proved, read)| proved.as_second() - read.as_second());
        let after = after.filter(|seconds| *seconds > 0).and_then(|seconds| u64::try_from(seconds).ok());
        let passed = followed.filter(|followed| delivered.is_some_and(|delivered| *followed < delivered));
        let later = html! {
            @if let Some(passed) = passed { " Later events were delivered first, starting at " (time(Some(passed))) " UTC." }
        };
        match (after, passed) {
            (Some(after), passed) if passed.is_some() || after > SKEW.unsigned_abs() => Some(HistoryStep::new(
                StepTime::NotRecorded,
                "Pending until the proof arrived",
                html! { "The network made the proof " (span(after)) " after the event was read." (later) },
            )),
            (_, Some(passed)) => Some(HistoryStep::new(
                StepTime::At(passed),
                "Late delivery: later events were delivered first",
                "The proof arrived late, the event was retried from the quarantine, or an operator replayed it. The cause is \
                 not recorded.",
            )),
            _ => None,
        }
    }
}

/// The steps that the ledger records: the event is pending, due for a late delivery, or quarantined.
pub(super) fn ledger_steps(channel: &str, offset: i64, journey: &Journey, is_pending: bool) -> Vec<HistoryStep> {
    let mut steps = Vec::new();
    if let Some(late) = &journey.late {
        let began = Timestamp::from_second(late.first_seen).ok();
        let sinks = late.owed.iter().map(|sink| &**sink).collect::<Vec<_>>().join(", ");
        steps.push(if is_pending {
            let detail =
                html! { "The daemon requests the event by its id until the proof arrives. Not delivered to " (text(&sinks)) "." };
            HistoryStep::new(began, "Proof pending", detail).bad()
        } else {
            let detail = html! { "to " (text(&sinks)) ", after events with higher offsets." };
            HistoryStep::new(began, "Late delivery queued", detail)
        });
    }
    if let Some(facts) = &journey.quarantined {
        let detail = html! {
            (text(&facts.reason)) ". " a href={ "/held/quarantine/" (segment(channel)) "/" (offset) } { "Show the reason" }
        };
        steps.push(HistoryStep::new(Timestamp::from_second(facts.at).ok(), "Quarantined", detail).bad());
    }
    steps
}

pub(super) fn sink_steps<'l>(
    lanes: impl Iterator<Item = &'l LaneStatus>,
    channel: &str,
    offset: i64,
    journey: &Journey,
) -> Vec<HistoryStep> {
    lanes.flat_map(|lane| at_sink(lane, channel, offset, journey)).collect()
}

fn at_sink(lane: &LaneStatus, channel: &str, offset: i64, journey: &Journey) -> Vec<HistoryStep> {
    let steps = steps_after_cursor(lane, channel, offset, journey);
    if !steps.is_empty() {
        return steps;
    }
    let sink = &*lane.sink;
    let not_at = |what: &str, why| HistoryStep::new(StepTime::Now, html! { (what) " " (text(sink)) }, why).bad();
    vec![match lane.cursor {
        Some(_) if journey.quarantined.is_some() => {
            not_at("Not delivered to", html! { "quarantined events are not delivered" })
        }
        Some(cursor) if cursor.get() >= offset && has_lost_data(lane) => not_at(
            "Unknown at",
            html! { "the cursor is " (cursor.get()) ", but the sink's data was dropped, purged or replaced since" },
        ),
        Some(cursor) if cursor.get() >= offset => HistoryStep::new(
            StepTime::NotRecorded,
            html! { "Processed by " (text(sink)) },
            html! { "the cursor is " (cursor.get()) ": the event was delivered, or the filter of the sink excludes it" },
        ),
        Some(cursor) => not_at("Not yet delivered to", html! { "the cursor is " (cursor.get()) }),
        None => not_at("Not yet delivered to", html! { "no event was delivered to this sink yet" }),
    }]
}

fn has_lost_data(lane: &LaneStatus) -> bool {
    lane.error.as_ref().is_some_and(|error| error.kind == Problem::POSITION_MISSING)
}

/// The event's history at a sink after the sink's cursor passed the event.
pub(super) fn steps_after_cursor(lane: &LaneStatus, channel: &str, offset: i64, journey: &Journey) -> Vec<HistoryStep> {
    let sink = &*lane.sink;
    let late = journey.delivered_late.iter().filter(|late| *late.sink == *sink);
    let mut steps: Vec<_> = late
        .map(|late| {
            let why = if late.is_asked_for { "requested by an operator" } else { "late delivery" };
            HistoryStep::new(StepTime::At(late.at), html! { "Delivered to " (text(sink)) }, why)
        })
        .collect();
    if let Some(DeadLetter { facts, .. }) = journey.dead_letters.iter().find(|letter| letter.sink == *sink) {
        let detail = html! {
            "after " (counted(facts.attempts.into(), "attempt")) "; last response: " (text(&facts.reason)) ". "
            a href={ "/held/dead/" (segment(channel)) "/" (segment(sink)) "/" (offset) } { "Show the dead letter" }
        };
        let given_up = html! { "Dead letter at " (text(sink)) };
        steps.push(HistoryStep::new(Timestamp::from_second(facts.at).ok(), given_up, detail).bad());
    }
    if journey.late.as_ref().is_some_and(|late| late.owed.iter().any(|owed| **owed == *sink)) {
        let detail = html! {
            "later events were delivered first, and this event is still pending"
            @if let Some(problem) = &lane.error { "; last response of the sink: " (text(&problem.message)) }
        };
        steps.push(HistoryStep::new(StepTime::Now, html! { "Not yet delivered to " (text(sink)) }, detail).bad());
    }
    steps
}
