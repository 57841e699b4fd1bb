//! The journey of an event, step by step, with the recorded times. A time that is not recorded is not guessed.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::page::{ago, segment, time};
use crate::text::text;
use channel::{LaneStatus, span};
use operator::api::{DeadLetter, Journey};

#[cfg(test)]
mod tests;

/// How many seconds the clocks of the network and of this machine may differ.
const SKEW: i64 = 5;

/// A step: its time, its title and its details.
#[derive(Debug)]
pub(super) struct Step {
    when: When,
    what: Markup,
    detail: Markup,
    is_good: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    At(Timestamp),
    NotRecorded,
    /// Between the previous step and the next one.
    Between,
    /// The current state, or something that has not happened yet.
    Now,
}

impl From<Option<Timestamp>> for When {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::NotRecorded, Self::At)
    }
}

impl Step {
    pub(super) fn new(when: impl Into<When>, what: Markup, detail: Markup) -> Self {
        Self { when: when.into(), what, detail, is_good: true }
    }

    /// Marks the step as one that needs an operator's attention.
    pub(super) fn bad(self) -> Self {
        Self { is_good: false, ..self }
    }
}

pub(super) fn show(steps: &[Step]) -> Markup {
    html! {
        ol.journey {
            @for step in steps {
                li.bad[!step.is_good] {
                    span.when {
                        @match step.when {
                            When::At(at) => (time(Some(at))),
                            When::Between => span.none { "in between" },
                            When::NotRecorded => span.none { "time not recorded" },
                            When::Now => "now",
                        }
                    }
                    div { strong { (step.what) } " " span.sub { (step.detail) } }
                }
            }
        }
    }
}

/// How the event was created and read, and when its proof was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beginning {
    /// The event's own time.
    pub(super) created: Option<Timestamp>,
    /// When channeld first read the event, if it has read it.
    pub(super) received: Option<Timestamp>,
    pub(super) was_read: bool,
    /// When the network made the proof, if the proof is valid.
    pub(super) proved: Option<Timestamp>,
}

impl Beginning {
    /// The steps, in the order of their times.
    pub(super) fn steps(self) -> Vec<Step> {
        let Self { created, received, was_read, proved } = self;
        let mut steps = vec![Step::new(created, html! { "Created" }, html! { "by the event's own time" })];
        if was_read {
            steps.push(Step::new(received, html! { "Received" }, html! { "by channeld, from the service" }));
        }
        if let Some(proved) = proved {
            let made =
                Step::new(When::At(proved), html! { "Proof made" }, html! { "by the network, as its report says" });
            let is_before_reading = received.is_none_or(|received| proved <= received);
            steps.insert(if is_before_reading { 1 } else { steps.len() }, made);
        }
        steps
    }

    /// The wait for a late proof. `followed` is the earliest delivery of the later events, and `delivered` is the
    /// delivery of this event.
    pub(super) fn wait(self, delivered: Option<Timestamp>, followed: Option<Timestamp>) -> Option<Step> {
        let after = self.proved.zip(self.received).map(|(proved, read)| proved.as_second() - read.as_second());
        let after = after.filter(|seconds| *seconds > 0).and_then(|seconds| u64::try_from(seconds).ok());
        let passed = followed.filter(|followed| delivered.is_some_and(|delivered| *followed < delivered));
        let later = html! {
            @if let Some(passed) = passed { " Later events were delivered first, from " (time(Some(passed))) " UTC on." }
        };
        match (after, passed) {
            (Some(after), passed) if passed.is_some() || after > SKEW.unsigned_abs() => Some(Step::new(
                When::NotRecorded,
                html! { "Waited for its proof" },
                html! { "until the network had made it, " (span(after)) " after the event was read, or longer." (later) },
            )),
            (_, Some(passed)) => Some(Step::new(
                When::At(passed),
                html! { "Late: later events were delivered first" },
                html! { "Its proof came late, it was in the quarantine, or an operator had it delivered once more: which, and until \
                when, is not recorded." },
            )),
            _ => None,
        }
    }
}

/// The ledger's entries for an event that is not delivered everywhere.
pub(super) fn kept(channel: &str, offset: i64, journey: &Journey, is_pending: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(late) = &journey.late {
        let began = Timestamp::from_second(late.first_seen).ok();
        let sinks = late.owed.iter().map(|sink| &**sink).collect::<Vec<_>>().join(", ");
        steps.push(if is_pending {
            let detail =
                html! { "It is set aside for " (text(&sinks)) ", and asked for by its id until its proof comes." };
            Step::new(began, html! { "Waits for its proof" }, detail).bad()
        } else {
            let detail = html! { "to " (text(&sinks)) ", after events with higher offsets." };
            Step::new(began, html! { "On its way" }, detail)
        });
    }
    if let Some(facts) = &journey.quarantined {
        let detail = html! {
            (text(&facts.reason)) ". " a href={ "/held/quarantine/" (segment(channel)) "/" (offset) } { "See why" }
        };
        steps.push(Step::new(Timestamp::from_second(facts.at).ok(), html! { "Quarantined" }, detail).bad());
    }
    steps
}

/// The state of the event at each sink.
pub(super) fn at_sinks<'l>(
    lanes: impl Iterator<Item = &'l LaneStatus>,
    channel: &str,
    offset: i64,
    journey: &Journey,
) -> Vec<Step> {
    lanes.flat_map(|lane| at_sink(lane, channel, offset, journey)).collect()
}

fn at_sink(lane: &LaneStatus, channel: &str, offset: i64, journey: &Journey) -> Vec<Step> {
    let steps = afterwards(lane, channel, offset, journey);
    if !steps.is_empty() {
        return steps;
    }
    let sink = &*lane.sink;
    let not_at = |what: &str, why| Step::new(When::Now, html! { (what) " " (text(sink)) }, why).bad();
    vec![match lane.cursor {
        Some(_) if journey.quarantined.is_some() => not_at("Not at", html! { "quarantined events are not delivered" }),
        Some(cursor) if cursor.get() >= offset => Step::new(
            When::NotRecorded,
            html! { "Dealt with by " (text(sink)) },
            html! { "everything up to offset " (cursor.get()) " was delivered to it, or left out by its filter" },
        ),
        Some(cursor) => not_at("Not yet at", html! { "it has everything up to offset " (cursor.get()) }),
        None => not_at("Not yet at", html! { "nothing was delivered to it yet" }),
    }]
}

/// The event's history at a sink after the sink's cursor passed it.
pub(super) fn afterwards(lane: &LaneStatus, channel: &str, offset: i64, journey: &Journey) -> Vec<Step> {
    let sink = &*lane.sink;
    let late = journey.delivered_late.iter().filter(|late| *late.sink == *sink);
    let mut steps: Vec<_> = late
        .map(|late| {
            let why = if late.is_asked_for { "as an operator asked" } else { "its proof came late" };
            Step::new(When::At(late.at), html! { "Delivered to " (text(sink)) }, html! { (why) })
        })
        .collect();
    if let Some(DeadLetter { facts, .. }) = journey.dead_letters.iter().find(|letter| letter.sink == *sink) {
        let detail = html! {
            "after " (facts.attempts) " attempts; its last answer: " (text(&facts.reason)) ". "
            a href={ "/held/dead/" (segment(channel)) "/" (segment(sink)) "/" (offset) } { "Its dead letter" }
        };
        let given_up = html! { "Given up by " (text(sink)) };
        steps.push(Step::new(Timestamp::from_second(facts.at).ok(), given_up, detail).bad());
    }
    if journey.late.as_ref().is_some_and(|late| late.owed.iter().any(|owed| **owed == *sink)) {
        let detail = html! {
            "later events were delivered first, and it is still pending"
            @if let Some(problem) = &lane.error { "; the sink's last answer: " (text(&problem.message)) }
        };
        steps.push(Step::new(When::Now, html! { "Not yet at " (text(sink)) }, detail).bad());
    }
    steps
}

/// How often a sink was tried, and since when.
pub(super) fn attempts(attempts: u32, since: Option<Timestamp>) -> String {
    let since = since.map_or_else(String::new, |since| format!(", the first {}", ago(since)));
    format!("{attempts} attempts{since}")
}
