//! Strategies for drawing histories. The first alternative of each draw is the plain case, because proptest shrinks to the
//! first alternative.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use ledger::HISTORY;
use ledger::testing::Write;
use record::Confidence;

use super::history::{
    Damage, End, Event, EventKind, Forgery, HasMore, History, Paused, PlannedFault, Reload, ReplayPlan, Restored, Run,
    SameId, SinkPlan, SinkTrouble,
};

/// The step or request at which something happens is drawn below this limit, because a short history has at most this many
/// steps and requests.
const EARLY: usize = 100;

pub(super) fn histories() -> impl Strategy<Value = History> {
    let service = ((weighted_flag(0.4), any::<bool>()), has_more(), 1_u16..12, first(), any::<bool>());
    let events = (events(), 0_usize..25, arrivals(), delays(400), faults());
    let reading = (weighted(0.1, 0_usize..10), weighted_flag(0.25), weighted_flag(0.25), 30_u64..900);
    let outside = (
        vec(sink(), 1..=3),
        vec(run(), 0..4),
        clock(),
        pauses(),
        (reloads(), hidden(), losses(), restored(), replays()),
    );
    (service, events, reading, outside).prop_map(|(service, events, reading, outside)| {
        let ((newest, inclusive), has_more, page, first, sparse) = service;
        let (mut events, backlog, arrivals, delays, faults) = events;
        let (mut start, strict, drop_notices, proof_timeout) = reading;
        let (sinks, runs, clock, pauses, (reloads, mut hidden, mut losses, mut restored, mut replays)) = outside;
        fit(&mut replays, runs.len(), sinks.len());
        if !replays.is_empty() {
            for event in &mut events {
                event.kind = if event.kind == EventKind::Notice { EventKind::Notice } else { EventKind::Proved };
                event.damaged = None;
            }
            hidden.clear();
            losses.clear();
            restored = None;
        }
        if restored.is_some() {
            for event in &mut events {
                (event.kind, event.damaged) = (EventKind::Proved, None);
            }
            hidden.clear();
            losses.clear();
            start = None;
        }
        // An event is hidden only under three conditions. First, polling must reach it. Pages of the newest events do not
        // reach down to a hidden event, and the events of a history have no time for a search by time. Second, the recorded
        // history must contain every gap. Third, the model must define the result.
        hidden
            .retain(|(at, _)| !newest && events.len() <= HISTORY && events.get(*at).is_some_and(Event::can_be_hidden));
        // If the service excludes the event at the requested offset, no request by offset can return an event at the offset
        // 0, so this event is not hidden.
        hidden.retain(|(at, _)| *at > 0 || first > 0);
        let has_duplicates = |event: &Event| matches!(event.kind, EventKind::Duplicate(..));
        if events.iter().any(has_duplicates) {
            hidden.clear();
        }
        let start = start.filter(|start| *start < events.len());
        let pauses = pauses.into_iter().filter(|(_, what, _)| is_there(*what, sinks.len())).collect();
        let reloads = reloads.into_iter().filter(|(_, what)| is_known(*what, sinks.len())).collect();
        History {
            newest,
            inclusive,
            has_more,
            page,
            first,
            sparse,
            events,
            backlog,
            arrivals,
            delays,
            faults,
            start,
            strict,
            drop_notices,
            proof_timeout,
            sinks,
            hidden,
            restored,
            losses,
            runs,
            clock,
            pauses,
            reloads,
            replays,
        }
    })
}

/// Fits replays into a history with this number of runs and sinks. A history has one more run than was drawn, because the
/// last run continues until everything is settled.
fn fit(replays: &mut Vec<ReplayPlan>, runs: usize, sinks: usize) {
    if runs == 0 {
        replays.clear();
    }
    for replay in replays {
        (replay.run, replay.sink) = (1 + replay.run % runs, replay.sink % sinks);
    }
}

fn is_there(what: Paused, sinks: usize) -> bool {
    match what {
        Paused::Channel => true,
        Paused::Sink(number) => number < sinks,
    }
}

fn is_known(what: Reload, sinks: usize) -> bool {
    match what {
        Reload::Page(_) => true,
        Reload::Anew(number) | Reload::Without(number, _) => number < sinks,
    }
}

fn weighted_flag(share: f64) -> impl Strategy<Value = bool> {
    prop::bool::weighted(share)
}

fn has_more() -> impl Strategy<Value = HasMore> {
    prop_oneof![Just(HasMore::Rest), Just(HasMore::Older), Just(HasMore::Newer), Just(HasMore::OlderAtAll)]
}

fn first() -> impl Strategy<Value = i64> {
    prop_oneof![8 => Just(1_i64), 1 => Just(0_i64), 1 => 2_i64..20]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop_oneof![200 => vec(event(), 0..16), 100 => vec(event(), 12..40), 1 => vec(event(), 200..230)]
}

fn event() -> impl Strategy<Value = Event> {
    let gap = prop_oneof![3 => Just(1_i64), 2 => 1_i64..5];
    let pace = prop_oneof![1 => Just(0_i64), 2 => 1_i64..30];
    let skew = prop_oneof![4 => Just(0_i64), 2 => 0_i64..4, 1 => 0_i64..=60];
    (gap, pace, skew, kind(), weighted(0.06, damage())).prop_map(|(gap, pace, skew, kind, damaged)| Event {
        gap,
        pace,
        skew,
        kind,
        damaged,
    })
}

fn kind() -> impl Strategy<Value = EventKind> {
    let same_id = prop_oneof![Just(SameId::No), Just(SameId::Yes)];
    let late = prop_oneof![2 => 1_u64..60, 1 => 60_u64..1200];
    let forgery = prop_oneof![
        3 => Just(Forgery::Confirmed),
        1 => Just(Forgery::Unknown),
        1 => Just(Forgery::Elsewhere),
        1 => Just(Forgery::Nameless),
    ];
    prop_oneof![
        55 => Just(EventKind::Proved),
        20 => Just(EventKind::Notice),
        10 => late.clone().prop_map(EventKind::Late),
        2 => late.prop_map(EventKind::LateForged),
        2 => Just(EventKind::Never),
        2 => Just(EventKind::Nameless),
        6 => forgery.prop_map(EventKind::Forged),
        2 => (0_usize..6, same_id).prop_map(|(back, same_id)| EventKind::Duplicate(back, same_id)),
    ]
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    (0_usize..4, prop_oneof![Just(Damage::Altered), Just(Damage::Unreadable), Just(Damage::Stripped)])
}

fn arrivals() -> impl Strategy<Value = Vec<(usize, usize)>> {
    vec((1_usize..8, 1_usize..12), 0..8)
}

fn delays(longest: u64) -> impl Strategy<Value = Vec<u64>> {
    let delay = prop_oneof![3 => Just(0_u64), 2 => 1_u64..20, 1 => 20..longest];
    prop_oneof![Just(Vec::new()), vec(delay, 1..6)]
}

fn faults() -> impl Strategy<Value = Vec<(usize, PlannedFault)>> {
    let fault = prop_oneof![
        2 => Just(PlannedFault::Unavailable),
        1 => Just(PlannedFault::NotFound),
        1 => Just(PlannedFault::Refused),
        1 => weighted(0.5, 1_u64..90).prop_map(PlannedFault::RateLimited),
        1 => Just(PlannedFault::Timeout),
        2 => Just(PlannedFault::Malformed),
    ];
    prop_oneof![1 => Just(Vec::new()), 1 => vec((0..EARLY, fault), 0..10)]
}

fn sink() -> impl Strategy<Value = SinkPlan> {
    let at_once = prop_oneof![2 => Just(usize::MAX), 1 => 1_usize..8];
    let trouble = prop_oneof![
        3 => (0_usize..8).prop_map(SinkTrouble::Takes),
        1 => (1_u64..300).prop_map(SinkTrouble::Refuses),
        1 => (1_u64..300).prop_map(SinkTrouble::Hangs),
    ];
    let unusable = prop_oneof![6 => Just(0_usize), 1 => 1_usize..4];
    (at_once, delays(3000), vec((0_usize..20, trouble), 0..4), unusable, any::<bool>(), min_confidence()).prop_map(
        |(at_once, delays, troubles, unusable, keeps, min_confidence)| SinkPlan {
            at_once,
            delays,
            troubles,
            unusable,
            keeps,
            min_confidence,
        },
    )
}

fn min_confidence() -> impl Strategy<Value = Option<Confidence>> {
    let some = prop_oneof![Just(Confidence::Latest), Just(Confidence::Safe), Just(Confidence::Finalized)];
    weighted(0.4, some)
}

fn hidden() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop_oneof![2 => Just(Vec::new()), 1 => vec((0_usize..40, 1_u64..20), 1..5)]
}

fn losses() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop_oneof![2 => Just(Vec::new()), 1 => vec((1_usize..4, 0_usize..3, 1_usize..6), 1..4)]
}

fn restored() -> impl Strategy<Value = Option<Restored>> {
    let restored = (0..EARLY, 1_usize..8, prop_oneof![2 => Just(0_u64), 1 => 1_u64..60]);
    weighted(0.1, restored.prop_map(|(request, events, seconds)| Restored { request, events, seconds }))
}

fn replays() -> impl Strategy<Value = Vec<ReplayPlan>> {
    let replay = (0_usize..4, 0_usize..3, 0_usize..12, 0_usize..40);
    let replay = replay.prop_map(|(run, sink, from, to)| ReplayPlan { run, sink, from, to });
    prop_oneof![5 => Just(Vec::new()), 1 => vec(replay, 1..3)]
}

fn run() -> impl Strategy<Value = Run> {
    let ends = prop_oneof![
        2 => Just(End::Stop),
        5 => Just(End::Crash),
        1 => (1_usize..12).prop_map(End::CrashWhileStopping),
        1 => Just(End::WriteFails(Write::Lost)),
        1 => Just(End::WriteFails(Write::Unsynced)),
        1 => Just(End::WriteFails(Write::Unavailable)),
        1 => Just(End::WriteFails(Write::Late)),
        1 => Just(End::Overtaken),
    ];
    let step = prop_oneof![2 => 1..40_usize, 1 => 1..EARLY];
    (step, ends).prop_map(|(step, ends)| Run { step, ends })
}

fn clock() -> impl Strategy<Value = Vec<(usize, i64)>> {
    prop_oneof![6 => Just(Vec::new()), 1 => vec((1..EARLY, -3000_i64..3000), 1..4)]
}

fn pauses() -> impl Strategy<Value = Vec<(usize, Paused, u64)>> {
    let what = prop_oneof![Just(Paused::Channel), (0_usize..3).prop_map(Paused::Sink)];
    prop_oneof![6 => Just(Vec::new()), 1 => vec((1..EARLY, what, 1_u64..200), 1..3)]
}

fn reloads() -> impl Strategy<Value = Vec<(usize, Reload)>> {
    let what = prop_oneof![
        3 => (0_usize..3).prop_map(Reload::Anew),
        2 => (0_usize..3, 1_u64..200).prop_map(|(sink, seconds)| Reload::Without(sink, seconds)),
        2 => (1_u16..12).prop_map(Reload::Page),
    ];
    prop_oneof![3 => Just(Vec::new()), 2 => vec((1..EARLY, what), 1..6)]
}
