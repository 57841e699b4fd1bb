//! Histories in which the model once found something.

use std::sync::Arc;

use super::history::{End, Event, EventKind, History, Run};
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
fn an_event_whose_proof_comes_after_its_time_stays_quarantined() {
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
