//! Tests that a file which has lost late deliveries is recognized, and that the lost ones are named.

use super::*;
use crate::LateDelivery;

/// The recorded state of a lane that has delivered up to offset 7, and that wrote this event last. Each late delivery is the
/// offset of the event, and the position at that time.
fn delivered(last: i64, late: &[(i64, i64)]) -> Recorded {
    let key = |number| record(&channel(1), number).event_key();
    let late = late.iter().map(|&(event, after)| LateDelivery { event: key(event), after: Some(offset(after)) });
    let confirmed = Some(Confirmed { position: Some(offset(7)), last: Some(key(last)) });
    Recorded { confirmed, late: late.collect(), ..recorded(&channel(1), Some(7), &[]) }
}

/// The position and the lost late deliveries of a file with these lines.
fn found(held: &[i64], recorded: &Recorded, format: Format) -> (i64, Vec<i64>) {
    let held: Vec<_> = records(&channel(1), held.iter().copied()).iter().map(|record| shaped(record, format)).collect();
    let Resumed { position, lost, .. } =
        Fixture::holding(&lines(&held)).open().snapshot().unwrap().compare(recorded).unwrap();
    let Position::At(Some(position)) = position else { panic!("{position:?}") };
    (position.get(), lost.iter().map(|key| key.offset.get()).collect())
}

#[test]
fn an_older_copy_lacks_exactly_the_late_deliveries_after_its_end() {
    // Events 3 and 4 were delivered late after event 6. In the second history, event 1 was then replayed.
    let in_order = (delivered(7, &[(3, 6), (4, 6)]), vec![1, 2, 5, 6, 3, 4, 7]);
    let replayed = (delivered(1, &[(3, 6), (4, 6), (1, 7)]), vec![1, 2, 5, 6, 3, 4, 7, 1]);
    for format in FORMATS {
        for (recorded, lines) in [&in_order, &replayed] {
            for (copied, position, lost) in [
                (lines.len(), 7, &[][..]),
                (7, 7, &[]),
                (6, 4, &[]),
                // Event 4 is above the position, so the lane delivers it in order.
                (5, 3, &[4]),
                (4, 6, &[3, 4]),
                (3, 5, &[3, 4]),
                (2, 2, &[3, 4]),
                (0, 7, &[]),
            ] {
                let found = found(&lines[..copied], recorded, format);
                assert_eq!(found, (position, lost.to_vec()), "{format:?} {copied} of {lines:?}");
            }
        }
    }
}

#[test]
fn a_copy_that_lacks_only_late_deliveries_is_recognized() {
    let recorded = delivered(4, &[(3, 7), (4, 7)]);
    let in_order = [1, 2, 5, 6, 7];
    for (late, lost) in [(&[3, 4][..], &[][..]), (&[3], &[4]), (&[], &[3, 4])] {
        let (position, found) = found(&[&in_order, late].concat(), &recorded, Format::Json);
        assert_eq!(found, lost, "{late:?}");
        assert_eq!(position, if late == [3] { 3 } else { 7 });
    }
}

#[test]
fn a_late_delivery_in_a_rotated_file_is_not_lost() {
    let place = Fixture::new();
    let mut journal = place.open_with(closing::rotation(None));
    journal.settings.rotation.as_mut().unwrap().size = Some(1);
    for number in [1, 2, 5, 6, 3, 7, 4] {
        journal.append(channel(1).id, &records(&channel(1), [number])).unwrap();
    }
    for last in [4, 7] {
        let recorded = delivered(last, &[(3, 6), (4, 7)]);
        let resumed = journal.snapshot().unwrap().compare(&recorded).unwrap();
        assert_eq!((resumed.position, resumed.lost.len()), (Position::At(Some(offset(7))), 0), "{last}");
    }
}

/// A crash prevented the commit of the last late delivery. Filtered events have moved the cursor past it, but not the position.
#[test]
fn the_position_includes_a_pending_event_that_the_file_has() {
    let key = |number| record(&channel(1), number).event_key();
    let pending = Recorded { pending: [key(9)].into(), through: Some(offset(12)), ..delivered(3, &[(3, 7)]) };
    let place = Fixture::holding(&lines(&records(&channel(1), [1, 2, 5, 6, 7, 3, 9])));
    let resumed = place.open().snapshot().unwrap().compare(&pending).unwrap();
    assert_eq!(resumed, Resumed { position: Position::At(Some(offset(9))), held: vec![key(9)], lost: BTreeSet::new() });
}
