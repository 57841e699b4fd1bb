//! Histories in which the model has found a defect.

use std::sync::Arc;

use ledger::testing::Write;

use super::history::{
    Damage, End, Event, EventKind, Forgery, History, Paused, PlannedFault, Reload, ReplayPlan, Restored, Run, SinkPlan,
    SinkTrouble,
};
use super::live;
use super::totals::Totals;

fn events(count: usize) -> Vec<Event> {
    vec![Event::plain(); count]
}

fn of_kind(mut events: Vec<Event>, kinds: &[(usize, EventKind)]) -> Vec<Event> {
    for (at, kind) in kinds {
        events[*at].kind = *kind;
    }
    events
}

fn passes(history: History) -> Totals {
    let history = Arc::new(history);
    live(&history, true).unwrap_or_else(|(problem, trace)| panic!("{history:?}\n{trace}\n\n{problem}"))
}

#[test]
fn an_event_whose_proof_arrives_after_the_timeout_stays_quarantined() {
    for strict in [false, true] {
        let totals = passes(History {
            events: of_kind(events(8), &[(2, EventKind::Late(500))]),
            backlog: 8,
            proof_timeout: 60,
            strict,
            runs: vec![Run { step: 140, ends: End::Stop }, Run { step: 40, ends: End::Crash }],
            ..History::plain()
        });
        assert_eq!((totals.deliveries, totals.quarantined), (7, 1));
    }
}

/// The defect: the event was quarantined while its batch was in the queue. Then the batch set the event aside, and the event
/// was never requested again.
#[test]
fn an_event_that_times_out_while_its_batch_waits_is_still_settled() {
    for at_once in [1, usize::MAX] {
        let troubles = vec![(1, SinkTrouble::Refuses(32))];
        passes(History {
            events: of_kind(events(20), &[(14, EventKind::Late(124))]),
            backlog: 17,
            proof_timeout: 30,
            sinks: vec![SinkPlan { at_once, troubles, ..SinkPlan::plain() }],
            ..History::plain()
        });
    }
}

/// The defect: one lane had set the event aside, and the event was quarantined. At this time, the event was still in the
/// queue of the other lane.
#[test]
fn an_event_settled_by_one_lane_is_requested_again_by_a_slower_lane() {
    let hangs = SinkPlan { troubles: vec![(0, SinkTrouble::Hangs(60))], ..SinkPlan::plain() };
    passes(History {
        events: of_kind(events(8), &[(4, EventKind::Never)]),
        page: 4,
        backlog: 8,
        proof_timeout: 30,
        sinks: vec![SinkPlan::plain(), hangs],
        ..History::plain()
    });
}

/// The defect: the event timed out while it waited behind another pending event, and was rejected without a request.
#[test]
fn in_strict_order_an_event_is_requested_before_it_is_rejected() {
    passes(History {
        events: of_kind(events(5), &[(1, EventKind::Never), (2, EventKind::Late(1))]),
        backlog: 5,
        strict: true,
        proof_timeout: 200,
        ..History::plain()
    });
}

/// The defect: a proxy had removed the proof, the clock jumped forward, and the only remaining request for the event got no
/// answer.
#[test]
fn an_expired_event_is_not_rejected_before_the_service_has_answered() {
    for request in 3..10 {
        let stripped = Event { damaged: Some((1, Damage::Stripped)), ..Event::plain() };
        let totals = passes(History {
            events: [events(1), vec![stripped], events(5)].concat(),
            page: 6,
            backlog: 6,
            arrivals: vec![(1, 1)],
            faults: vec![(request, PlannedFault::Refused), (request + 1, PlannedFault::Refused)],
            proof_timeout: 30,
            clock: vec![(7, 40)],
            ..History::plain()
        });
        assert_eq!((totals.deliveries, totals.quarantined), (7, 0));
    }
}

/// The defect: reading did not pass the unconfirmed events if the confirmed event was only in the next range.
#[test]
fn unconfirmed_events_are_passed_once_a_confirmed_event_is_above_them() {
    let unknown = EventKind::Forged(Forgery::Unknown);
    let among = [3, 4, 5, 6, 8].map(|at| (at, unknown));
    for newest in [false, true] {
        for (proved, forged) in [(0, 0), (1, 0), (6, 0), (0, 1), (3, 7)] {
            let at_the_end: Vec<_> = (0..forged).map(|at| (at, unknown)).collect();
            passes(History {
                newest,
                events: [of_kind(events(9 + proved), &among), of_kind(events(forged), &at_the_end)].concat(),
                page: 3,
                backlog: 9 + proved + forged,
                ..History::plain()
            });
        }
    }
}

/// The defect: the second change ended the replacement lane of the first change before it had begun. The hub kept this lane,
/// and events that were read from then on reached no lane.
#[test]
fn a_lane_cancelled_before_its_start_gets_no_events() {
    passes(History {
        events: of_kind(events(13), &[(10, EventKind::Late(4)), (12, EventKind::Late(8))]),
        page: 4,
        inclusive: true,
        backlog: 2,
        arrivals: vec![(1, 1)],
        strict: true,
        proof_timeout: 30,
        sinks: vec![
            SinkPlan { delays: vec![0, 0, 15], troubles: vec![(3, SinkTrouble::Refuses(8))], ..SinkPlan::plain() },
            SinkPlan { delays: vec![8], ..SinkPlan::plain() },
        ],
        runs: vec![Run { step: 30, ends: End::Crash }, Run { step: 34, ends: End::Stop }],
        reloads: vec![(72, Reload::Anew(1)), (77, Reload::Anew(1)), (3, Reload::Page(5))],
        ..History::plain()
    });
}

/// The defect: the event was quarantined together with the new events of the restored service. When an operator accepted the
/// new events, no lane received this event.
#[test]
fn a_slower_lane_gets_the_events_that_both_histories_share() {
    let totals = passes(History {
        events: events(27),
        page: 3,
        inclusive: true,
        backlog: 27,
        sinks: vec![
            SinkPlan { unusable: 1, troubles: vec![(1, SinkTrouble::Refuses(168))], ..SinkPlan::plain() },
            SinkPlan::plain(),
        ],
        restored: Some(Restored { request: 65, events: 1, seconds: 41 }),
        ..History::plain()
    });
    assert_eq!((totals.restored, totals.quarantined), (1, 0));
}

/// The defect: a batch was read before the event became visible, and waited while the channel had no lane. When the event was
/// found, it was made late for no lane.
#[test]
fn an_event_that_appears_without_any_lane_is_delivered_when_the_lane_returns() {
    passes(History {
        events: events(35),
        page: 8,
        backlog: 24,
        arrivals: vec![(7, 5), (4, 1)],
        proof_timeout: 30,
        start: Some(0),
        hidden: vec![(31, 1)],
        runs: vec![Run { step: 3, ends: End::Crash }],
        reloads: vec![(30, Reload::Without(0, 45))],
        ..History::plain()
    });
}

/// The defect: the position had passed the unconfirmed event, and the next gap began at the unconfirmed event.
#[test]
fn an_event_that_appears_below_an_unconfirmed_event_is_found() {
    for page in [3, 6] {
        passes(History {
            events: of_kind(events(6), &[(4, EventKind::Forged(Forgery::Unknown))]),
            page,
            inclusive: true,
            arrivals: vec![(2, 1)],
            hidden: vec![(3, 6)],
            ..History::plain()
        });
    }
}

/// The defect: the cursors passed the unconfirmed event before a confirmed event was recorded above it. After a restart, nothing showed
/// the gap.
#[test]
fn an_event_that_appears_below_an_unconfirmed_event_is_found_after_a_restart() {
    for (strict, step) in [false, true].into_iter().flat_map(|strict| (3..40).map(move |step| (strict, step))) {
        passes(History {
            events: of_kind(events(6), &[(4, EventKind::Forged(Forgery::Unknown)), (5, EventKind::Late(9))]),
            page: 3,
            inclusive: true,
            backlog: 2,
            strict,
            proof_timeout: 30,
            hidden: vec![(3, 1)],
            runs: vec![Run { step: 5, ends: End::Stop }, Run { step, ends: End::Stop }],
            ..History::plain()
        });
    }
}

/// The defect: the event was settled because the sink had it. But the sink's position, which included the event, was not
/// recorded in the same commit.
#[test]
fn a_late_delivery_that_the_sink_lost_is_delivered_again() {
    passes(History {
        events: of_kind(events(3), &[(1, EventKind::Forged(Forgery::Confirmed)), (2, EventKind::Late(13))]),
        page: 9,
        backlog: 3,
        strict: true,
        proof_timeout: 30,
        sinks: vec![SinkPlan::plain(), SinkPlan::plain(), SinkPlan { keeps: true, ..SinkPlan::plain() }],
        hidden: vec![(0, 1)],
        losses: vec![(2, 2, 1)],
        runs: vec![Run { step: 26, ends: End::Crash }, Run { step: 3, ends: End::Stop }],
        ..History::plain()
    });
}

/// The defect: the first run did not commit its delivery, because it crashed. The second run read an event whose proof had been
/// missing, and delivered it after the later events of the first run. The position of a sink that was restored to a point between
/// the two runs was above this event, so the event was not delivered again.
#[test]
fn an_event_delivered_after_later_events_of_a_crashed_run_is_delivered_to_a_restored_sink() {
    let stripped = Event { damaged: Some((0, Damage::Stripped)), ..Event::plain() };
    let keeps = SinkPlan { delays: vec![0, 1], keeps: true, ..SinkPlan::plain() };
    passes(History {
        events: [events(1), vec![stripped], events(5)].concat(),
        page: 7,
        backlog: 5,
        arrivals: vec![(4, 1)],
        proof_timeout: 30,
        sinks: vec![keeps, SinkPlan::plain()],
        losses: vec![(3, 0, 3)],
        runs: vec![
            Run { step: 10, ends: End::Crash },
            Run { step: 8, ends: End::Overtaken },
            Run { step: 11, ends: End::Stop },
        ],
        ..History::plain()
    });
}

/// The defect: the page contained only new events, so none of its events was compared.
#[test]
fn a_restored_service_is_noticed_even_after_more_than_a_page_of_new_events() {
    passes(History {
        events: events(5),
        page: 3,
        newest: true,
        backlog: 1,
        arrivals: vec![(2, 1)],
        proof_timeout: 30,
        restored: Some(Restored { request: 1, events: 1, seconds: 0 }),
        ..History::plain()
    });
}

/// The defect: a lane that was behind had read a page before the event became visible. The other lanes received the event from a later
/// page. The lane then delivered the rest of its old page, because that rest was no longer above the position of the other lanes.
#[test]
fn a_lane_that_is_behind_uses_no_page_that_is_older_than_the_page_of_the_other_lanes() {
    for seconds in 1..6 {
        let slow = SinkPlan { delays: vec![1_002], ..SinkPlan::plain() };
        passes(History {
            events: events(6),
            page: 3,
            backlog: 1,
            arrivals: vec![(7, 3)],
            delays: vec![1],
            faults: [0, 4, 8, 13].map(|request| (request, PlannedFault::Timeout)).to_vec(),
            proof_timeout: 30,
            sinks: vec![slow, SinkPlan { unusable: 1, ..SinkPlan::plain() }, SinkPlan::plain()],
            hidden: vec![(3, seconds)],
            runs: vec![Run { step: 8, ends: End::Stop }, Run { step: 31, ends: End::Crash }],
            ..History::plain()
        });
    }
}

/// The defect: no page overlapped the only event, because `offset` excludes the event at this offset, and the newest event was not
/// compared.
#[test]
fn a_restored_service_with_a_single_event_at_offset_0_is_noticed() {
    for request in 1..9 {
        passes(History {
            events: events(1),
            page: 3,
            first: 0,
            backlog: 1,
            restored: Some(Restored { request, events: 1, seconds: 0 }),
            ..History::plain()
        });
    }
}

/// The defect: the event was recorded, but the change of the configuration ended the code that should have queued the event
/// for the lane.
#[test]
fn an_event_that_appears_while_the_configuration_changes_is_delivered() {
    passes(History {
        events: events(4),
        page: 9,
        backlog: 4,
        proof_timeout: 30,
        hidden: vec![(0, 11)],
        runs: vec![Run { step: 9, ends: End::Stop }],
        reloads: vec![(15, Reload::Page(1))],
        ..History::plain()
    });
}

/// The defect: the batch was read again after the configuration had changed, and the gap below it was treated as a gap above
/// its last event.
#[test]
fn a_gap_is_not_forgotten_when_its_batch_is_read_again() {
    passes(History {
        events: events(4),
        page: 3,
        backlog: 4,
        delays: vec![1],
        proof_timeout: 30,
        sinks: vec![SinkPlan { keeps: true, ..SinkPlan::plain() }, SinkPlan::plain(), SinkPlan::plain()],
        hidden: vec![(0, 1)],
        runs: vec![Run { step: 24, ends: End::Stop }],
        reloads: vec![(11, Reload::Page(2))],
        ..History::plain()
    });
}

/// The defect: after a restart, a lane that was behind delivered the event, which the other lanes had passed while it was
/// quarantined. The other lanes had to deliver the event late, but nothing requested it before the next start.
#[test]
fn an_event_of_an_accepted_history_reaches_every_lane() {
    passes(History {
        events: events(11),
        page: 9,
        backlog: 11,
        proof_timeout: 30,
        sinks: vec![
            SinkPlan { at_once: 1, ..SinkPlan::plain() },
            SinkPlan { delays: vec![1], ..SinkPlan::plain() },
            SinkPlan { unusable: 1, ..SinkPlan::plain() },
        ],
        restored: Some(Restored { request: 6, events: 2, seconds: 0 }),
        runs: vec![Run { step: 20, ends: End::Crash }, Run { step: 33, ends: End::CrashWhileStopping(4) }],
        pauses: vec![(21, Paused::Channel, 1)],
        ..History::plain()
    });
}

#[test]
fn a_replay_that_crashes_anywhere_delivers_each_event_again() {
    let second = SinkPlan { delays: vec![7], ..SinkPlan::plain() };
    for step in (2..120).step_by(3) {
        for newest in [false, true] {
            let totals = passes(History {
                newest,
                events: events(60),
                backlog: 60,
                sinks: vec![SinkPlan::plain(), second.clone()],
                // The first run has time to deliver everything. The others are interrupted.
                runs: vec![
                    Run { step: 2_000, ends: End::Stop },
                    Run { step, ends: End::Crash },
                    Run { step: step + 1, ends: End::Crash },
                ],
                replays: vec![ReplayPlan { run: 1, sink: 1, from: 10, to: 49 }],
                ..History::plain()
            });
            assert_eq!(totals.replayed, 40);
            // Each crash repeats at most the event in delivery.
            assert!((160..=162).contains(&totals.deliveries), "{totals}");
        }
    }
}

/// The defect: after a refusal, the sink turned out to have a replayed event. The proof of the event was then recorded again, as the
/// newest proof.
#[test]
fn the_proof_of_a_replayed_event_is_remembered_once() {
    passes(History {
        events: events(12),
        page: 3,
        proof_timeout: 30,
        sinks: vec![SinkPlan { keeps: true, troubles: vec![(6, SinkTrouble::Refuses(1))], ..SinkPlan::plain() }],
        runs: vec![Run { step: 1, ends: End::WriteFails(Write::Unavailable) }],
        replays: vec![ReplayPlan { run: 1, sink: 0, from: 0, to: 3 }],
        ..History::plain()
    });
}
