use std::collections::BTreeSet;

use super::*;
use channel::LateDelivery;
use ledger::PendingEvent;
use proof::event::Offset;

fn at(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(1_800_000_000 + second).ok()
}

fn shown(steps: &[HistoryStep]) -> String {
    show(steps).into_string()
}

fn order(steps: &[HistoryStep]) -> Vec<String> {
    steps.iter().map(|step| step.what.0.clone()).collect()
}

#[test]
fn the_history_is_in_time_order() {
    let origin = EventOrigin { created: at(0), received: at(9), was_read: true, proved: at(5) };
    assert_eq!(order(&origin.steps()), ["Created", "Proof made", "Received"]);
    let late = EventOrigin { proved: at(60), ..origin };
    assert_eq!(order(&late.steps()), ["Created", "Received", "Proof made"]);
    let unread = EventOrigin { received: None, was_read: false, ..origin };
    assert_eq!(order(&unread.steps()), ["Created", "Proof made"]);
    let unknown = EventOrigin { received: None, ..origin };
    assert!(shown(&unknown.steps()).contains("time not recorded"));
}

#[test]
fn times_have_milliseconds_and_the_wait_since_the_step_before() {
    let step = |milliseconds: i64| {
        let at = Timestamp::from_millisecond(1_800_000_000_000 + milliseconds).unwrap();
        HistoryStep::new(Some(at), "", "")
    };
    let html = shown(&[step(0), step(9_120), step(9_440), step(12_777), step(12_500), step(80_000)]);
    for said in ["08:00:00<", "08:00:09.120<", ">+9 s<", ">+320 ms<", ">+3.3 s<", ">+67 s<"] {
        assert!(html.contains(said), "{said}: {html}");
    }
    assert_eq!(
        html.matches("class=\"after\"").count(),
        4,
        "no wait is shown if a step was before the step before: {html}"
    );
}

#[test]
fn a_time_in_whole_seconds_never_seems_to_be_before_the_step_before() {
    let step = |milliseconds: i64| {
        HistoryStep::new(Timestamp::from_millisecond(1_800_000_000_000 + milliseconds).ok(), "", "")
    };
    let html = shown(&[step(6_500), step(7_928), step(7_000)]);
    assert!(html.contains("08:00:06.500<") && html.matches("08:00:07<").count() == 2, "{html}");
    assert!(!html.contains("08:00:07.928<"), "{html}");
}

#[test]
fn a_wait_is_shown_only_if_known() {
    let origin = EventOrigin { created: at(0), received: at(9), was_read: true, proved: at(5) };
    assert!(origin.wait(at(10), at(10)).is_none(), "no later event was delivered first");
    assert!(origin.wait(at(10), None).is_none());
    let passed = shown(&[origin.wait(at(100), at(10)).unwrap()]);
    assert!(
        passed.contains("Late delivery: later events were delivered first") && passed.contains("is not recorded"),
        "{passed}"
    );
    let late = EventOrigin { proved: at(69), ..origin };
    let waited = shown(&[late.wait(at(100), at(10)).unwrap()]);
    assert!(
        waited.contains("Pending until the proof arrived") && waited.contains("60 s after the event was read"),
        "{waited}"
    );
    assert!(waited.contains("time not recorded"), "{waited}");
    assert!(late.wait(at(100), None).is_some(), "the newest event: no later event exists");
    let skewed = EventOrigin { proved: at(10), ..origin };
    assert!(skewed.wait(at(11), None).is_none(), "clocks differ");
}

#[test]
fn the_history_shows_delivered_due_and_not_reached() {
    let lane =
        |sink: &str, cursor| LaneStatus { sink: sink.into(), cursor: Offset::new(cursor), ..LaneStatus::default() };
    let kind = Problem::POSITION_MISSING.to_owned();
    let since = at(0).unwrap();
    let error = Some(Problem { kind, message: "dropped".to_owned(), since, times: 1, needs_attention: true });
    let lanes = [lane("a", 9), lane("b", 9), lane("c", 3), lane("d", 9), LaneStatus { error, ..lane("e", 9) }];
    let owed = BTreeSet::from(["b".into()]);
    let late = PendingEvent { first_seen: 1_800_000_000, owed, ..PendingEvent::default() };
    let delivered_late = vec![LateDelivery {
        offset: Offset::new(7).unwrap(),
        sink: "a".into(),
        at: at(30).unwrap(),
        is_asked_for: true,
    }];
    let journey = Journey { late: Some(late), delivered_late, ..Journey::default() };
    let steps = sink_steps(lanes.iter(), "c0", 7, &journey);
    let words: Vec<_> = order(&steps).iter().map(|what| what.replace("<bdi>", "").replace("</bdi>", "")).collect();
    assert_eq!(
        words,
        ["Delivered to a", "Not yet delivered to b", "Not yet delivered to c", "Processed by d", "Unknown at e"]
    );
    assert!(shown(&steps).contains("2027-01-15 08:00:30"), "the time of the replay");
    let waits = shown(&ledger_steps("c0", 7, &journey, true));
    assert!(waits.contains("Proof pending") && waits.contains("2027-01-15 08:00:00"), "{waits}");
    assert!(shown(&ledger_steps("c0", 7, &journey, false)).contains("Late delivery queued"));
}
