//! Tests the position of a lane, and the events that it writes again, after a file was restored, replaced, moved away or
//! emptied.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::closing::{rotation, transform};
use super::*;
use crate::file::closed::index::Index;
use crate::tests::record_of_another;
use record::Message;

/// The recorded state of a lane that delivered in order, and that wrote this event last.
fn confirmed(last: &Message) -> Recorded {
    let channel = &last.record().channel;
    let confirmed = Confirmed { position: Some(last.offset()), last: Some(last.event_key()) };
    Recorded { confirmed: Some(confirmed), ..recorded(channel, Some(last.offset().get()), &[]) }
}

fn at(number: i64) -> Position {
    Position::At(Some(offset(number)))
}

/// A file to which channel 1 has written these events, one event per batch.
fn written(offsets: impl IntoIterator<Item = i64>) -> (Fixture, Journal) {
    let place = Fixture::new();
    let mut journal = place.open();
    compare(&mut journal, &recorded(&channel(1), None, &[]));
    for number in offsets {
        journal.append(channel(1).id, &records(&channel(1), [number])).unwrap();
    }
    (place, journal)
}

fn displaced(journal: &mut Journal, channel: &ChannelRef, batch: &[Message]) -> String {
    match journal.append(channel.id, batch).unwrap_err() {
        SinkError::Displaced(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_restored_file_has_the_position_of_its_newest_line() {
    let ours = channel(1);
    for format in FORMATS {
        let shape = |offsets: &[i64]| -> Vec<_> {
            records(&ours, offsets.iter().copied()).iter().map(|record| shaped(record, format)).collect()
        };
        for (held, last, position, again) in [
            (&[1, 2, 3][..], 7, at(3), &[][..]),
            (&[5], 7, at(5), &[]),
            // The newest line is a late delivery: the events with higher offsets are skipped.
            (&[1, 2, 4, 5, 3], 7, at(3), &[4, 5]),
            // The event that was written last was a late delivery, and it is lost.
            (&[1, 2, 4, 5, 6], 3, at(2), &[4, 5, 6]),
            (&[1, 2, 3], 0, Position::At(None), &[1, 2, 3]),
        ] {
            let place = Fixture::holding(&lines(&shape(held)));
            let mut journal = place.open();
            let through = Some(offset(7));
            let recorded = Recorded { through, ..confirmed(&record(&ours, last)) };
            let (found, skipped) = compare(&mut journal, &recorded);
            let expected: BTreeSet<_> = again.iter().map(|&number| offset(number)).collect();
            assert_eq!((found, skipped), (position, expected), "{format:?} {held:?}");

            let all: Vec<i64> = (1..9).filter(|number| *number != 3 || held.contains(&3)).collect();
            journal
                .append(ours.id, &shape(&all.iter().copied().filter(|n| !held.contains(n)).collect::<Vec<_>>()))
                .unwrap();
            journal.append(ours.id, &shape(again)).unwrap();
            assert_eq!(whole_lines(&place.bytes()).len(), all.len().max(held.len()), "{format:?} {held:?}");
        }
    }
}

#[test]
fn a_file_with_the_last_event_has_the_confirmed_position() {
    let (ours, other) = (channel(1), channel(2));
    let many = |channel, count: i64| lines(&records(channel, 100..100 + count));
    for (held, last, found) in [
        (lines(&records(&ours, 1..8)), 7, &[][..]),
        // The file has a batch that was not recorded.
        (lines(&records(&ours, 1..10)), 7, &[8, 9]),
        // The file has late deliveries, before and after the last event.
        (lines(&records(&ours, [1, 2, 4, 3, 5, 6, 7])), 7, &[]),
        (lines(&records(&ours, [1, 2, 4, 5, 6, 7, 3])), 7, &[]),
        (lines(&records(&ours, [1, 2, 4, 5, 6, 7, 3])), 3, &[]),
        (lines(&records(&ours, [7, 1, 2, 3])), 7, &[]),
        // Another channel has written many events, so the last event is far before the end of the file.
        ([lines(&records(&ours, 1..8)), many(&other, 3000)].concat(), 7, &[]),
        ([lines(&records(&ours, 1..9)), many(&other, 3000)].concat(), 7, &[8]),
    ] {
        let place = Fixture::holding(&held);
        let recorded = Recorded { through: Some(offset(7)), ..confirmed(&record(&ours, last)) };
        let (position, skipped) = compare(&mut place.open(), &recorded);
        let found = found.iter().map(|&number| offset(number)).collect();
        assert_eq!((position, skipped), (at(last), found), "{last}");
    }
}

#[test]
fn a_file_that_is_replaced_during_the_first_comparison_is_noticed() {
    let (ours, other) = (channel(1), channel(2));
    let place = Fixture::holding(&lines(&records(&ours, 1..8)));
    let mut journal = place.open();
    let snapshot = journal.snapshot().unwrap();
    let restored = place.directory.path().join("restored");
    fs::write(&restored, lines(&records(&ours, 1..4))).unwrap();
    fs::rename(&restored, place.path()).unwrap();
    // Another lane is the first to open the other file.
    compare(&mut journal, &recorded(&other, None, &[]));
    let resumed = snapshot.compare(&confirmed(&record(&ours, 7))).unwrap();
    assert_eq!(resumed.position, at(7));
    journal.pass_over(ours.id, resumed.held, snapshot.displacements);
    let reason = displaced(&mut journal, &ours, &records(&ours, [8]));
    assert!(reason.contains("was replaced by another one"), "{reason}");
    assert_eq!(compare(&mut journal, &confirmed(&record(&ours, 7))).0, at(3));
}

#[test]
fn a_moved_or_truncated_file_keeps_the_confirmed_position() {
    let (ours, other) = (channel(1), channel(2));
    for (held, found) in [
        (None, &[][..]),
        (Some(Vec::new()), &[]),
        (Some(lines(&records(&other, 1..4))), &[]),
        (Some(b"{\"note\":\"rotated\"}\n".to_vec()), &[]),
        // The new file has a batch that was not recorded.
        (Some(lines(&records(&ours, 8..10))), &[8, 9]),
    ] {
        let place = Fixture::new();
        if let Some(held) = &held {
            fs::write(place.path(), held).unwrap();
        }
        let (position, skipped) = compare(&mut place.open(), &confirmed(&record(&ours, 7)));
        let found = found.iter().map(|&number| offset(number)).collect();
        assert_eq!((position, skipped), (at(7), found), "{held:?}");
    }
}

#[test]
fn nothing_is_compared_before_the_first_confirmation() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, 1..4)));
    let mut journal = place.open();
    assert_eq!(compare(&mut journal, &recorded(&ours, Some(7), &[])), (at(7), BTreeSet::new()));
    assert_eq!(compare(&mut journal, &recorded(&ours, None, &[])).0, Position::At(None));
    // Confirmed, but nothing was written: the filter excluded everything.
    let confirmed = Confirmed { position: Some(offset(9)), last: None };
    let recorded = Recorded { confirmed: Some(confirmed), ..recorded(&ours, Some(9), &[]) };
    assert_eq!(compare(&mut journal, &recorded), (at(9), BTreeSet::new()));
}

#[test]
fn another_event_at_the_last_offset_is_not_matched() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, 1..4)));
    let mut journal = place.open();
    let (position, held) = compare(&mut journal, &confirmed(&record_of_another(&ours, 3)));
    assert_eq!((position, held), (at(2), [offset(3)].into()));
    journal.append(ours.id, &[record_of_another(&ours, 3)]).unwrap();
    assert_eq!(place.bytes(), lines(&[records(&ours, 1..4), vec![record_of_another(&ours, 3)]].concat()));
}

#[test]
fn the_last_event_is_found_in_every_kind_of_closed_file() {
    let ours = channel(1);
    for form in 0..6 {
        for indexed in [false, true] {
            let place = Fixture::new();
            let mut journal = place.open_with(rotation(None));
            journal.append(ours.id, &records(&ours, 1..4)).unwrap();
            journal.settings.rotation.as_mut().unwrap().size = Some(1);
            journal.append(ours.id, &records(&ours, [4, 2])).unwrap();
            transform(&place, form);
            if indexed {
                Index::update(&place.files(), &CancellationToken::new()).unwrap();
            }
            // Events 4 and 2 count as recorded: they are late deliveries that the state does not name.
            let recorded = |last| Recorded { through: Some(offset(9)), ..confirmed(&record(&ours, last)) };
            assert_eq!(compare(&mut journal, &recorded(3)).0, at(3), "{form} {indexed}");
            assert_eq!(compare(&mut journal, &recorded(7)), (at(2), [offset(3), offset(4)].into()), "{form} {indexed}");
            assert_eq!(journal.snapshot().unwrap().position(ours.id).unwrap(), at(4));
            assert_eq!(journal.snapshot().unwrap().position(channel(2).id).unwrap(), Position::Untracked);

            // An operator has moved the closed file away, and the events that were not recorded are in the new file.
            for closed in place.closed() {
                closed.forms.keys().for_each(|form| fs::remove_file(place.files().path(&closed.name, *form)).unwrap());
            }
            assert_eq!(compare(&mut journal, &confirmed(&record(&ours, 1))).0, at(1), "{form} {indexed}");
        }
    }
}

#[test]
fn without_state_the_position_is_the_highest_offset_in_the_file() {
    let (ours, other) = (channel(1), channel(2));
    let position = |bytes: &[u8]| Fixture::holding(bytes).open().snapshot().unwrap().position(ours.id).unwrap();
    for format in [Format::Json, Format::CloudEvents] {
        let shape = |offsets: &[i64]| -> Vec<_> {
            records(&ours, offsets.iter().copied()).iter().map(|record| shaped(record, format)).collect()
        };
        let of_other = lines(&records(&other, [50]));
        assert_eq!(position(&[lines(&shape(&[1, 9, 4])), of_other].concat()), at(9), "{format:?}");
    }
    assert_eq!(position(b""), Position::Untracked);
    assert_eq!(position(&lines(&records(&other, 1..4))), Position::Untracked);
    // Raw lines may belong to an earlier channel. The offsets of an earlier channel do not apply to this channel.
    assert_eq!(position(&lines(&[shaped(&record(&ours, 9), Format::Raw)])), Position::Untracked);
}

#[test]
fn the_position_is_found_behind_a_file_with_only_a_late_delivery() {
    let (ours, other) = (channel(1), channel(2));
    let place = Fixture::new();
    let mut journal = place.open_with(rotation(None));
    journal.settings.rotation.as_mut().unwrap().size = Some(1);
    for (of, batch) in [(&ours, [1, 2]), (&ours, [8, 9]), (&other, [70, 71]), (&ours, [3, 4])] {
        journal.append(of.id, &records(of, batch)).unwrap();
    }
    assert_eq!(journal.snapshot().unwrap().position(ours.id).unwrap(), at(9));
}

#[test]
fn two_events_at_one_offset_are_each_written_once_across_a_crash() {
    let ours = channel(1);
    for format in FORMATS {
        let [one, two] = [record(&ours, 5), record_of_another(&ours, 5)].map(|record| shaped(&record, format));
        // The cursor was moved back, because the service was restored. The file already has the first event.
        let place = Fixture::holding(&lines([&shaped(&record(&ours, 4), format), &one]));
        let mut journal = place.open();
        compare(&mut journal, &recorded(&ours, Some(4), &[]));
        journal.append(ours.id, std::slice::from_ref(&two)).unwrap();
        drop(journal);

        // The daemon crashed before the batch was recorded.
        let mut journal = place.open();
        compare(&mut journal, &recorded(&ours, Some(4), &[]));
        journal.append(ours.id, &[one.clone(), two.clone()]).unwrap();
        assert_eq!(place.bytes(), lines([&shaped(&record(&ours, 4), format), &one, &two]), "{format:?}");
    }
}

#[test]
fn a_backup_copied_over_the_file_is_reported_once_per_lane() {
    let (ours, other) = (channel(1), channel(2));
    for replaced in [false, true] {
        let (place, mut journal) = written(1..4);
        journal.append(other.id, &records(&other, 1..3)).unwrap();
        let backup = place.bytes();
        journal.append(ours.id, &records(&ours, 4..8)).unwrap();
        journal.append(other.id, &records(&other, 3..5)).unwrap();
        if replaced {
            let beside = place.directory.path().join("backup");
            fs::write(&beside, &backup).unwrap();
            fs::rename(beside, place.path()).unwrap();
        } else {
            let mut file = OpenOptions::new().write(true).truncate(true).open(place.path()).unwrap();
            file.write_all(&backup).unwrap();
        }

        let reason = displaced(&mut journal, &ours, &records(&ours, [8]));
        let words = if replaced { "was replaced by another one" } else { "is shorter than its recorded length" };
        assert!(reason.contains(words) && reason.contains("events.jsonl"), "{reason}");
        assert_eq!(place.bytes(), backup, "nothing is appended");
        // The lane gets this error until it has compared its position.
        displaced(&mut journal, &ours, &records(&ours, [8]));
        assert_eq!(compare(&mut journal, &confirmed(&record(&ours, 7))).0, at(3));
        journal.append(ours.id, &records(&ours, 4..9)).unwrap();

        displaced(&mut journal, &other, &records(&other, [5]));
        assert_eq!(compare(&mut journal, &confirmed(&record(&other, 4))).0, at(2));
        journal.append(other.id, &records(&other, 3..6)).unwrap();
        journal.append(ours.id, &records(&ours, [9])).unwrap();
        let again = [records(&ours, 4..9), records(&other, 3..6), records(&ours, [9])].concat();
        assert_eq!(place.bytes(), [backup, lines(&again)].concat());
    }
}

#[test]
fn events_are_skipped_only_while_the_file_is_unchanged() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, 1..8)));
    let mut journal = place.open();
    compare(&mut journal, &recorded(&ours, Some(3), &[]));
    fs::write(place.path(), lines(&records(&ours, 1..4))).unwrap();
    displaced(&mut journal, &ours, &records(&ours, 4..8));
    compare(&mut journal, &recorded(&ours, Some(3), &[]));
    journal.append(ours.id, &records(&ours, 4..8)).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, 1..8)));
}

#[test]
fn a_file_with_foreign_lines_continues_on_a_new_line() {
    let ours = channel(1);
    let (place, mut journal) = written(1..4);
    let mut file = OpenOptions::new().append(true).open(place.path()).unwrap();
    file.write_all(b"{\"note\":1}").unwrap();
    let reason = displaced(&mut journal, &ours, &records(&ours, [4]));
    assert!(reason.contains("is longer than its recorded length"), "{reason}");
    assert_eq!(compare(&mut journal, &confirmed(&record(&ours, 3))), (at(3), BTreeSet::new()));
    journal.append(ours.id, &records(&ours, [4])).unwrap();
    let expected = [lines(&records(&ours, 1..4)), b"{\"note\":1}\n".to_vec(), lines(&records(&ours, [4]))].concat();
    assert_eq!(place.bytes(), expected);
}

#[test]
fn moving_truncating_or_closing_a_file_in_use_is_normal() {
    let ours = channel(1);
    let (place, mut journal) = written(1..4);
    for number in 4..8 {
        match number % 2 {
            0 => fs::rename(place.path(), place.directory.path().join("moved")).unwrap(),
            _ => OpenOptions::new().write(true).open(place.path()).unwrap().set_len(0).unwrap(),
        }
        journal.append(ours.id, &records(&ours, [number])).unwrap();
        assert_eq!(place.bytes(), lines(&records(&ours, [number])));
    }
}

#[test]
fn comparing_during_a_read_back_keeps_the_lock() {
    let ours = channel(1);
    let (place, mut journal) = written(1..4);
    let reading = Arc::new(journal.snapshot().unwrap());
    fs::write(place.path(), lines(&records(&ours, 1..3))).unwrap();
    displaced(&mut journal, &ours, &records(&ours, [4]));
    assert_eq!(compare(&mut journal, &confirmed(&record(&ours, 3))).0, at(2));
    journal.append(ours.id, &records(&ours, 3..5)).unwrap();
    drop(reading);
    assert_eq!(place.bytes(), lines(&records(&ours, 1..5)));
}

/// An operator moves the cursor back to offset 5. Event 3 was delivered late, after events that are now above the cursor.
#[test]
fn a_late_delivery_among_unrecorded_lines_hides_none_of_them() {
    let ours = channel(1);
    // The other channel's lines are more than one look at the end of a file reads.
    let many = lines(&records(&channel(2), 100..600));
    let (before, after) = (lines(&records(&ours, [1, 2, 4, 5, 6, 7])), lines(&records(&ours, [8, 3, 9])));
    let start = [before, many, after].concat();
    for is_closed in [false, true] {
        let place = Fixture::holding(&start);
        let mut journal = place.open_with(rotation(None));
        // With a size of 1, each batch closes the file.
        journal.settings.rotation.as_mut().unwrap().size = is_closed.then_some(1);
        journal.append(ours.id, &records(&ours, [10])).unwrap();
        assert_eq!(place.closed().len(), usize::from(is_closed));
        let (position, held) = compare(&mut journal, &recorded(&ours, Some(5), &[]));
        assert_eq!((position, held), (at(5), (6..11).map(offset).collect()), "{is_closed}");
        journal.append(ours.id, &records(&ours, 6..11)).unwrap();
        let count = whole_lines(&place.bytes()).len();
        assert_eq!(count, if is_closed { 1 } else { 510 }, "{is_closed}");
    }
}

/// The state was restored from a backup. Since the backup, event 1 was replayed.
#[test]
fn a_replay_in_a_closed_file_hides_no_unrecorded_line() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, [1, 2, 3, 4, 5, 1])));
    let mut journal = place.open_with(rotation(None));
    journal.settings.rotation.as_mut().unwrap().size = Some(1);
    journal.append(ours.id, &records(&ours, [6])).unwrap();
    assert_eq!(place.closed().len(), 1);
    let found = compare(&mut journal, &confirmed(&record(&ours, 3)));
    assert_eq!(found, (at(3), (4..7).map(offset).collect()));
}

#[test]
fn an_earlier_line_of_a_replayed_event_does_not_count() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, [1, 2, 3, 2])));
    let mut journal = place.open();
    // Event 2 is to be replayed. In the first case, its last line is the replay, which a crash prevented from being recorded.
    let replayed = |confirmed| {
        let recorded = recorded(&ours, Some(3), &[2]);
        Recorded { confirmed, replayed: recorded.pending.clone(), ..recorded }
    };
    // In the second case, its last line was recorded before the operator asked for the replay.
    let key = |number| Some(record(&ours, number).event_key());
    for (last, held) in [(key(3), [offset(2)].into()), (key(2), BTreeSet::new()), (None, BTreeSet::new())] {
        let confirmed = Confirmed { position: Some(offset(3)), last };
        assert_eq!(compare(&mut journal, &replayed(Some(confirmed))), (at(3), held), "{last:?}");
    }
    assert_eq!(compare(&mut journal, &replayed(None)), (at(3), BTreeSet::new()));
}
