use jiff::Timestamp;

use super::*;

#[test]
fn a_selection_takes_that_to_which_all_of_it_applies() {
    let at = |number| Offset::new(number).unwrap();
    let facts = GivenUp {
        offset: at(5),
        event_id: None,
        reason: String::new(),
        attempts: 1,
        since: 90,
        at: 100,
        received: None,
        bytes: 0,
    };
    let time = |second| Some(Timestamp::from_second(second).unwrap());
    let all = DeadLetterSelection::default();
    let takes = [
        (all.clone(), true),
        (DeadLetterSelection { offsets: vec![at(4), at(5)], ..all.clone() }, true),
        (DeadLetterSelection { offsets: vec![at(4)], ..all.clone() }, false),
        (DeadLetterSelection { from: Some(at(5)), to: Some(at(5)), ..all.clone() }, true),
        (DeadLetterSelection { from: Some(at(6)), ..all.clone() }, false),
        (DeadLetterSelection { to: Some(at(4)), ..all.clone() }, false),
        (DeadLetterSelection { since: time(100), until: time(100), ..all.clone() }, true),
        (DeadLetterSelection { since: time(101), ..all.clone() }, false),
        (DeadLetterSelection { from: Some(at(1)), until: time(99), ..all }, false),
    ];
    for (selection, expected) in takes {
        assert_eq!(selection.takes(&facts), expected, "{selection:?}");
    }
}
