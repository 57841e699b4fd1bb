//! Tests the content of the file after crashes, faults and changes by other programs.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::file::lines::is_remains;
use crate::tests::{channel, lane, lines, offset, record, records, shaped};
use crate::{Confirmed, Position, Recorded, Resumed};
use proof::event::{EventKey, Offset};
use record::{ChannelRef, Format};

mod closing;
mod late;
mod position;

const FORMATS: [Format; 3] = [Format::Json, Format::CloudEvents, Format::Raw];

struct Fixture {
    directory: TempDir,
}

impl Fixture {
    /// Uses an in-memory directory if the system has one, because thousands of syncs to a disk are slow.
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { directory }
    }

    fn holding(bytes: &[u8]) -> Self {
        let place = Self::new();
        fs::write(place.path(), bytes).unwrap();
        place
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("events.jsonl")
    }

    fn open(&self) -> Journal {
        open(&self.path()).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }
}

fn open(path: &Path) -> Result<Journal, SinkError> {
    let mut journal = Journal::new(FileSettings::at(path), OpenFiles::default(), UpkeepFailures::default());
    journal.open().map(|()| journal)
}

fn recorded(channel: &ChannelRef, through: Option<i64>, pending: &[i64]) -> Recorded {
    let pending = pending.iter().map(|&number| record(channel, number).event_key()).collect();
    Recorded {
        lane: lane(channel),
        epoch: 1,
        through: through.map(offset),
        pending,
        replayed: BTreeSet::new(),
        confirmed: None,
        late: Vec::new(),
    }
}

fn resume(journal: &mut Journal, recorded: &Recorded) {
    compare(journal, recorded);
}

/// Does the same as a lane at its start. Returns the position, and the offsets of the events that the files already
/// contain.
fn compare(journal: &mut Journal, recorded: &Recorded) -> (Position, BTreeSet<Offset>) {
    let snapshot = journal.snapshot().unwrap();
    let Resumed { position, held, .. } = snapshot.compare(recorded).unwrap();
    let offsets = offsets(&held);
    journal.pass_over(recorded.lane.channel.id, held, snapshot.displacements);
    (position, offsets)
}

fn offsets(held: &[EventKey]) -> BTreeSet<Offset> {
    held.iter().map(|key| key.offset).collect()
}

fn reason(error: &SinkError) -> String {
    match error {
        SinkError::Io { doing, source } => format!("{doing}: {source}"),
        other => other.to_string(),
    }
}

fn whole_lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

#[test]
fn a_batch_cut_by_a_crash_is_in_the_file_exactly_once() {
    let ours = channel(1);
    for format in FORMATS {
        let records = |offsets: &[i64]| -> Vec<_> {
            records(&ours, offsets.iter().copied()).iter().map(|record| shaped(record, format)).collect()
        };
        let kept = lines(&records(&[1, 2, 3]));
        // In the second case event 5 is pending, so its late delivery comes first in the batch, below the cursor.
        for (recorded, batch) in
            [(recorded(&ours, Some(3), &[]), records(&[4, 5])), (recorded(&ours, Some(9), &[5]), records(&[5, 10]))]
        {
            let bytes = lines(&batch);
            for cut in 0..=bytes.len() {
                // The bytes after a cut do not depend on the format, so they are varied for one format only.
                let rests = if format == Format::Json { 4 } else { 1 };
                for rest in [&b""[..], &[0], &[0; 700], b"\0\0\n\0"].into_iter().take(rests) {
                    let place = Fixture::holding(&[&kept, &bytes[..cut], rest].concat());
                    let mut journal = place.open();
                    resume(&mut journal, &recorded);
                    journal.append(ours.id, &batch).unwrap();
                    journal.append(ours.id, &records(&[11])).unwrap();
                    let expected = [&kept[..], &bytes, &lines(&records(&[11]))].concat();
                    assert!(place.bytes() == expected, "{format:?}: cut at {cut}, then {rest:?}");
                }
            }
        }
    }
}

#[test]
fn changing_the_format_after_a_crash_repeats_nothing() {
    let (ours, batch) = (channel(1), records(&channel(1), 4..7));
    for before in FORMATS {
        for after in FORMATS {
            let shape = |format| -> Vec<_> { batch.iter().map(|record| shaped(record, format)).collect() };
            let held = lines(&shape(before)[..2]);
            let place = Fixture::holding(&held);
            let mut journal = place.open();
            resume(&mut journal, &recorded(&ours, Some(3), &[]));
            journal.append(ours.id, &shape(after)).unwrap();
            assert_eq!(place.bytes(), [held, lines(&shape(after)[2..])].concat(), "{before:?} {after:?}");
        }
    }
}

#[test]
fn raw_lines_of_another_channel_are_not_matched() {
    let shape = |channel, offsets: [i64; 2]| {
        records(channel, offsets).iter().map(|record| shaped(record, Format::Raw)).collect::<Vec<_>>()
    };
    let (before, ours) = (shape(&channel(1), [1, 2]), shape(&channel(2), [1, 2]));
    let place = Fixture::holding(&lines(&before));
    let mut journal = place.open();
    resume(&mut journal, &recorded(&channel(2), None, &[]));
    journal.append(channel(2).id, &ours).unwrap();
    assert_eq!(place.bytes(), [lines(&before), lines(&ours)].concat());
}

#[test]
fn a_hole_before_durable_lines_loses_and_repeats_nothing() {
    let ours = channel(1);
    let kept = lines(&records(&ours, 1..4));
    let batch = records(&ours, 4..7);
    let bytes = lines(&batch);
    for start in 0..bytes.len() {
        let mut holed = bytes.clone();
        holed[start..bytes.len().min(start + 64)].fill(0);
        let place = Fixture::holding(&[&kept[..], &holed].concat());
        let mut journal = place.open();
        resume(&mut journal, &recorded(&ours, Some(3), &[]));
        journal.append(ours.id, &batch).unwrap();
        let mut found = whole_lines(&place.bytes());
        found.retain(|line| !is_remains(&line[..line.len() - 1]));
        found.sort();
        assert_eq!(found, whole_lines(&[&kept[..], &bytes].concat()), "{start}");
    }
}

#[test]
fn a_crash_between_two_channels_repeats_neither() {
    let (one, two) = (channel(1), channel(2));
    let mut held = Vec::new();
    for (of, offsets) in [(&one, [1, 2]), (&two, [1, 2]), (&one, [3, 4]), (&two, [3, 4])] {
        held.extend(lines(&records(of, offsets)));
    }
    // Channel one has recorded everything except its last batch. Channel two has recorded nothing.
    let place = Fixture::holding(&held);
    let mut journal = place.open();
    resume(&mut journal, &recorded(&one, Some(2), &[]));
    resume(&mut journal, &recorded(&two, None, &[]));
    journal.append(two.id, &records(&two, 1..4)).unwrap();
    journal.append(one.id, &records(&one, 3..6)).unwrap();
    journal.append(two.id, &records(&two, 4..6)).unwrap();
    held.extend(lines([&record(&one, 5), &record(&two, 5)]));
    assert_eq!(place.bytes(), held);
}

#[test]
fn an_event_is_skipped_once() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, [7])));
    let mut journal = place.open();
    resume(&mut journal, &recorded(&ours, None, &[]));
    journal.append(ours.id, &records(&ours, [7])).unwrap();
    journal.append(ours.id, &records(&ours, [7])).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, [7, 7])));
}

#[test]
fn unrecorded_lines_before_a_recorded_one_are_found() {
    let (ours, other) = (channel(1), channel(2));
    let held: Vec<u8> = [
        lines(&records(&ours, [1, 2, 9])),
        lines(&records(&other, [9])),
        b"# another program's note\n".to_vec(),
        lines(&records(&ours, [3])),
        b"{\"another\":\"program's\"}\n".to_vec(),
        lines(&records(&ours, [2, 10])),
    ]
    .concat();
    let place = Fixture::holding(&held);
    let (_, found) = compare(&mut place.open(), &recorded(&ours, Some(3), &[2]));
    assert_eq!(found, [offset(2), offset(9), offset(10)].into());
}

#[test]
fn lines_of_other_programs_are_kept() {
    let ours = channel(1);
    let ending = lines(&records(&ours, [2]));
    for (text, between) in [
        (&b"{\"a\":1}\n"[..], ""),
        (b"{\"a\":1}", "\n"),
        (b"{}\n# a note\n", ""),
        (b"{}\n# a note", "\n"),
        (b"{\n  \"pretty\": 1\n}\n", ""),
        (b"{}\n\n", ""),
    ] {
        let place = Fixture::holding(text);
        place.open().append(ours.id, &records(&ours, [2])).unwrap();
        assert_eq!(place.bytes(), [text, between.as_bytes(), &ending].concat());
    }
}

#[test]
fn a_foreign_file_is_refused_and_untouched() {
    for bytes in [&b"127.0.0.1 localhost\n\0"[..], b"\x7fELF\0\0", b"[1,2]", b"\n{}"] {
        let place = Fixture::holding(bytes);
        let error = open(&place.path()).unwrap_err();
        assert!(reason(&error).contains("not lines of JSON"), "{}", reason(&error));
        assert_eq!(place.bytes(), bytes);
    }
}

#[test]
fn a_special_file_is_refused() {
    let place = Fixture::new();
    fs::create_dir(place.path()).unwrap();
    let gone = place.directory.path().join("gone/events.jsonl");
    let file = place.directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, words) in [
        (Path::new("/dev/null"), "device"),
        (Path::new("/dev/full"), "device"),
        (Path::new("/dev/stdout"), ""),
        (&place.path(), "directory"),
        (&gone, "directory does not exist"),
        (&file.join("events.jsonl"), ""),
    ] {
        // Standard output may be a regular file while tests run.
        if path.ends_with("stdout") && fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let error = open(path).unwrap_err();
        assert!(reason(&error).contains(words), "{}", reason(&error));
        assert!(reason(&error).contains(path.to_str().unwrap()), "{}", reason(&error));
    }
}

#[test]
fn a_second_writer_is_refused_while_the_first_runs() {
    let place = Fixture::new();
    let first = place.open();
    let error = open(&place.path()).unwrap_err();
    assert!(reason(&error).contains("another channeld"), "{}", reason(&error));
    drop(first);
    place.open();
}

#[test]
fn a_new_file_is_private() {
    let place = Fixture::new();
    place.open();
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o137, 0);
}

#[test]
fn a_symbolic_link_is_followed_and_its_target_created() {
    let place = Fixture::new();
    let target = place.directory.path().join("target");
    symlink(&target, place.path()).unwrap();
    let batch = records(&channel(1), [1]);
    place.open().append(channel(1).id, &batch).unwrap();
    assert_eq!(fs::read(target).unwrap(), lines(&batch));
    assert!(place.path().is_symlink());
}

#[test]
fn a_moved_or_removed_file_is_recreated() {
    let ours = channel(1);
    let place = Fixture::new();
    let moved = place.directory.path().join("events.1.jsonl");
    let mut journal = place.open();

    journal.append(ours.id, &records(&ours, [1])).unwrap();
    fs::rename(place.path(), &moved).unwrap();
    journal.append(ours.id, &records(&ours, [2])).unwrap();
    assert_eq!(fs::read(&moved).unwrap(), lines(&records(&ours, [1])));
    assert_eq!(place.bytes(), lines(&records(&ours, [2])));

    fs::remove_file(place.path()).unwrap();
    journal.append(ours.id, &records(&ours, [3])).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, [3])));
}

#[test]
fn a_batch_written_to_a_removed_file_is_not_accepted() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open();
    fs::remove_file(place.path()).unwrap();
    // Calls the inner `append`, because the outer one checks the path first and would notice the removal.
    let error = journal.active.as_mut().unwrap().append(&[b"{}\n"], 3).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    journal.append(ours.id, &records(&ours, [1])).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, [1])));
}

#[test]
fn a_truncated_file_is_filled_from_its_beginning() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open();
    journal.append(ours.id, &records(&ours, [1])).unwrap();
    OpenOptions::new().write(true).open(place.path()).unwrap().set_len(0).unwrap();
    journal.append(ours.id, &records(&ours, [2])).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, [2])));
}

#[test]
fn an_unusable_path_accepts_and_loses_nothing() {
    let ours = channel(1);
    let place = Fixture::holding(&lines(&records(&ours, [1])));
    let mut journal = place.open();
    resume(&mut journal, &recorded(&ours, None, &[]));
    fs::remove_file(place.path()).unwrap();
    fs::create_dir(place.path()).unwrap();
    let error = journal.append(ours.id, &records(&ours, [1, 2])).unwrap_err();
    assert!(reason(&error).contains("directory"), "{}", reason(&error));

    fs::remove_dir(place.path()).unwrap();
    journal.append(ours.id, &records(&ours, [1, 2])).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, [2])));
}

#[test]
fn a_full_disk_is_refused() {
    // A sink refuses to open the device, so the device replaces the file after opening.
    let mut full = OpenOptions::new().read(true).append(true).open("/dev/full").unwrap();
    assert_eq!(Write::write(&mut full, b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
    let place = Fixture::new();
    let mut journal = place.open();
    journal.active().unwrap().appender = Appender::new(full);
    let error = journal.append(channel(1).id, &records(&channel(1), [1])).unwrap_err();
    let SinkError::Io { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
}
