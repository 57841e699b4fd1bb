//! Tests closing files, and crashes during closing, from the view of a consumer that reads all files of the directory.

use std::collections::HashSet;
use std::io::Read;
use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::file::closed::name::{ClosedName, Compression, unfinished};
use crate::file::closed::{ClosedFile, pack, reader};
use crate::file::settings::{Access, Keep};
use crate::file::upkeep::Upkeep;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A size limit: a file of two events is within the limit, and a file of four events exceeds it.
const SIZE: u64 = 1200;

pub(super) fn rotation(compression: Option<Compression>) -> Rotation {
    let name = ClosedName::parse("events-{time}-{first}-{last}.jsonl").unwrap();
    Rotation { size: Some(SIZE), every: None, name, compression, keep: Keep::default(), latest_link: None }
}

impl Fixture {
    fn settings(&self, rotation: Rotation) -> FileSettings {
        FileSettings { path: self.path(), access: Access::default(), rotation: Some(rotation) }
    }

    pub(super) fn open_with(&self, rotation: Rotation) -> Journal {
        let mut journal = Journal::new(self.settings(rotation), OpenFiles::default(), UpkeepFailures::default());
        journal.open().unwrap();
        journal
    }

    pub(super) fn files(&self) -> ClosedFiles {
        let active = fs::canonicalize(self.directory.path()).unwrap().join("events.jsonl");
        ClosedFiles { active, name: rotation(None).name }
    }

    pub(super) fn closed(&self) -> Vec<ClosedFile> {
        self.files().list().unwrap()
    }

    fn look_after(&self, rotation: Rotation) -> Result<(), SinkError> {
        Upkeep { rotation, stop: CancellationToken::new(), reported: HashSet::new() }
            .run(&self.files(), &UpkeepFailures::default())
    }

    /// The content of all files, each closed file once.
    fn all(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for closed in self.closed() {
            let form = if closed.forms.contains_key(&None) { None } else { closed.packed() };
            reader(&self.files().path(&closed.name, form), form).unwrap().read_to_end(&mut all).unwrap();
        }
        all.extend(fs::read(self.path()).unwrap_or_default());
        all
    }

    /// The names in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The lines. The last one may lack its line break.
fn each_line(bytes: Vec<u8>) -> Vec<String> {
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

/// The number of forms in which a crash can leave a closed file.
const FORMS: usize = 6;

/// Brings the only closed file into the form with this number. The number is below [`FORMS`].
pub(super) fn transform(place: &Fixture, form: usize) {
    let files = place.files();
    let [closed] = &place.closed()[..] else { panic!("{:?}", place.closed()) };
    let stop = CancellationToken::new();
    for (compression, done) in [(Compression::Gzip, 1), (Compression::Zstd, 2)] {
        if form == done || form == done + 2 {
            let packed = files.path(&closed.name, Some(compression));
            pack(&files.path(&closed.name, None), &packed, compression, &stop).unwrap();
        }
        if form == done {
            fs::remove_file(files.path(&closed.name, None)).unwrap();
        }
    }
    if form == 5 {
        fs::write(unfinished(&files.path(&closed.name, Some(Compression::Zstd))), "half").unwrap();
    }
}

#[test]
fn a_file_is_closed_before_a_batch_that_would_make_it_too_long() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open_with(rotation(None));
    for start in [1, 3, 5, 7] {
        journal.append(ours.id, &records(&ours, start..start + 2)).unwrap();
    }
    let closed = place.closed();
    assert_eq!(place.all(), lines(&records(&ours, 1..9)));
    assert!(closed.len() >= 2 && closed.iter().all(|closed| closed.forms[&None] <= SIZE), "{closed:?}");
    assert!(closed[0].name.ends_with("-1-2.jsonl"), "{closed:?}");
    assert!(closed.is_sorted_by_key(|closed| closed.name.clone()), "{closed:?}");

    // A single batch that exceeds the size limit is still written to one file.
    journal.append(ours.id, &records(&ours, 9..30)).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, 9..30)));
    journal.append(ours.id, &records(&ours, [30])).unwrap();
    assert_eq!(place.bytes(), lines(&records(&ours, [30])));
    assert_eq!(place.all(), lines(&records(&ours, 1..31)));
}

#[test]
fn a_crash_around_a_rotation_keeps_each_event_exactly_once() {
    let (ours, other) = (channel(1), channel(2));
    for format in FORMATS {
        let shape = |offsets: std::ops::Range<i64>| -> Vec<_> {
            records(&ours, offsets).iter().map(|record| shaped(record, format)).collect()
        };
        let batch = shape(4..7);
        // The next batch is of another channel. A raw line does not name its channel, so with this format no batch follows.
        let next = if format == Format::Raw { Vec::new() } else { lines(&[shaped(&record(&other, 1), format)]) };
        let cuts = [0, 1, next.len() / 2, next.len().saturating_sub(1), next.len()];
        for recorded_through in [3, 4, 6] {
            for form in 0..FORMS {
                for step in 0..3 + cuts.len() {
                    let place = Fixture::holding(&[lines(&shape(1..4)), lines(&batch)].concat());
                    if step > 0 {
                        // The file is renamed (step 1), created again, and then written to.
                        let mut journal = place.open_with(rotation(None));
                        journal.settings.rotation.as_mut().unwrap().size = Some(1);
                        journal.close_if_due(1).unwrap();
                        drop(journal);
                        transform(&place, form);
                    }
                    match step {
                        1 => fs::remove_file(place.path()).unwrap(),
                        3.. => fs::write(place.path(), &next[..cuts[step - 3].min(next.len())]).unwrap(),
                        _ => {}
                    }
                    let mut journal = place.open_with(rotation(None));
                    let of_others = if step == 0 { Vec::new() } else { place.bytes() };
                    resume(&mut journal, &recorded(&ours, Some(recorded_through), &[]));
                    journal.append(ours.id, &shape(recorded_through + 1..9)).unwrap();
                    let mut expected = each_line([lines(&shape(1..9)), of_others].concat());
                    let mut all = each_line(place.all());
                    all.sort();
                    expected.sort();
                    let what = format!("{format:?}, recorded through {recorded_through}, form {form}, step {step}");
                    assert!(all == expected, "{what}: {all:#?}");
                }
            }
        }
    }
}

#[test]
fn lines_of_an_idle_channel_are_found_many_files_back() {
    let (ours, other) = (channel(1), channel(2));
    let place = Fixture::new();
    let mut journal = place.open_with(rotation(Some(Compression::Gzip)));
    journal.append(ours.id, &records(&ours, 1..3)).unwrap();
    for start in 0..20 {
        journal.append(other.id, &records(&other, start * 2..start * 2 + 2)).unwrap();
    }
    assert!(place.closed().len() > 8);
    for looked_after in [false, true] {
        if looked_after {
            place.look_after(rotation(Some(Compression::Gzip))).unwrap();
        }
        let snapshot = journal.snapshot().unwrap();
        let found = |channel, through| offsets(&snapshot.compare(&recorded(channel, through, &[])).unwrap().held);
        assert_eq!(found(&ours, Some(1)), [offset(2)].into());
        assert_eq!(found(&ours, None), [offset(1), offset(2)].into());
        assert_eq!(found(&other, Some(36)), [offset(37), offset(38), offset(39)].into());
        assert!(found(&channel(3), None).is_empty());
    }
    // A closed file that cannot contain events of a channel is not opened.
    let closed = place.closed();
    fs::write(place.files().path(&closed[3].name, Some(Compression::Gzip)), "not gzip").unwrap();
    assert!(journal.snapshot().unwrap().compare(&recorded(&ours, Some(1), &[])).is_ok());
    assert!(journal.snapshot().unwrap().compare(&recorded(&channel(3), None, &[])).is_ok());
}

/// The cursor was moved back to offset 5, or another instance has recorded it.
#[test]
fn a_closed_file_with_only_a_late_delivery_hides_no_unrecorded_line() {
    let (ours, other) = (channel(1), channel(2));
    let place = Fixture::new();
    let mut journal = place.open_with(rotation(Some(Compression::Gzip)));
    journal.settings.rotation.as_mut().unwrap().size = Some(1);
    journal.append(ours.id, &records(&ours, 1..9)).unwrap();
    journal.append(ours.id, &records(&ours, [3])).unwrap();
    journal.append(other.id, &records(&other, [70])).unwrap();
    assert_eq!(place.closed().len(), 2);
    let snapshot = journal.snapshot().unwrap();
    let found = |through| snapshot.compare(&recorded(&ours, Some(through), &[])).map(|found| offsets(&found.held));
    for looked_after in [false, true] {
        if looked_after {
            place.look_after(rotation(Some(Compression::Gzip))).unwrap();
        }
        assert_eq!(found(5).unwrap(), (6..9).map(offset).collect(), "{looked_after}");
        assert!(found(8).unwrap().is_empty(), "{looked_after}");
    }
    // The first file is not read if it cannot contain an unrecorded event.
    fs::write(place.files().path(&place.closed()[0].name, Some(Compression::Gzip)), "not gzip").unwrap();
    assert_eq!((found(5).is_err(), found(8).is_err()), (true, false));
}

#[test]
fn closed_files_are_compressed_once_even_after_interruptions() {
    for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd)] {
        for form in 0..FORMS {
            let ours = channel(1);
            let place = Fixture::new();
            let mut journal = place.open_with(rotation(compression));
            journal.append(ours.id, &records(&ours, 1..3)).unwrap();
            journal.append(ours.id, &records(&ours, 3..9)).unwrap();
            transform(&place, form);
            place.look_after(rotation(compression)).unwrap();

            let [closed] = &place.closed()[..] else { panic!("{:?}", place.closed()) };
            let already = match form {
                1 | 3 => Some(Compression::Gzip),
                2 | 4 => Some(Compression::Zstd),
                _ => compression,
            };
            let forms: Vec<_> = closed.forms.keys().copied().collect();
            assert_eq!(forms, [already], "{compression:?} {form}");
            assert_eq!(
                place.names().len(),
                3,
                "only the closed file, the index and the active file: {:?}",
                place.names()
            );
            assert_eq!(place.all(), lines(&records(&ours, 1..9)));
        }
    }
}

#[test]
fn differing_plain_and_compressed_files_are_left_alone() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open_with(rotation(Some(Compression::Zstd)));
    journal.append(ours.id, &records(&ours, 1..3)).unwrap();
    journal.append(ours.id, &records(&ours, 3..9)).unwrap();
    transform(&place, 4);
    let closed = &place.closed()[0];
    let plain = place.files().path(&closed.name, None);
    // The same happens while an operator decompresses the file.
    let whole = fs::read(&plain).unwrap();
    for (held, left) in [(&whole[..9], true), (b"", true), (&[&whole[..], b"x"].concat(), true), (&whole, false)] {
        fs::write(&plain, held).unwrap();
        place.look_after(rotation(Some(Compression::Zstd))).unwrap();
        assert_eq!(plain.exists(), left);
    }
    assert_eq!(place.all(), lines(&records(&ours, 1..9)));
}

#[test]
fn retention_deletes_only_unmarked_closed_files() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open_with(rotation(None));
    for start in 1..11 {
        journal.append(ours.id, &records(&ours, start * 2..start * 2 + 2)).unwrap();
    }
    let closed = place.closed();
    let mine = ["notes.txt", "events-2024.jsonl", "events-20240514T120015.123456Z-1-2.jsonl.old"];
    for name in mine {
        fs::write(place.files().path(name, None), "mine").unwrap();
    }
    fs::create_dir(place.files().path("events-20240514T120015.123456Z-1-2.jsonl", None)).unwrap();
    fs::write(place.files().path(&format!("{}.keep", closed[1].name), None), "").unwrap();
    fs::write(place.files().path(&format!("{}.gz.keep", closed[2].name), None), "").unwrap();
    let mut rotation = rotation(Some(Compression::Gzip));
    rotation.keep.files = NonZeroUsize::new(2);
    place.look_after(rotation).unwrap();

    let (left, last) = (place.closed(), closed.len());
    let names = |closed: &[ClosedFile]| closed.iter().map(|closed| closed.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&left), names(&[&closed[1..3], &closed[last - 2..]].concat()));
    assert!(
        left[0].forms.contains_key(&None) && !left[2].forms.contains_key(&None),
        "a marked file stays as it is: {left:?}"
    );
    assert!(mine.iter().all(|name| place.names().contains(&(*name).to_owned())));
    assert!(place.files().path("events-20240514T120015.123456Z-1-2.jsonl", None).is_dir());
}

#[test]
fn the_link_points_to_the_last_closed_file() {
    let ours = channel(1);
    let place = Fixture::new();
    let link = place.files().path("latest", None);
    let with_link = |compression| Rotation { latest_link: Some(link.clone()), ..rotation(compression) };
    let mut journal = place.open_with(with_link(None));
    journal.append(ours.id, &records(&ours, 1..3)).unwrap();
    place.look_after(with_link(None)).unwrap();
    assert!(fs::read_link(&link).is_err(), "no file is closed");
    for (number, compression) in [(1, None), (2, Some(Compression::Gzip)), (3, None)] {
        journal.append(ours.id, &records(&ours, number * 4..number * 4 + 4)).unwrap();
        place.look_after(with_link(compression)).unwrap();
        let closed = place.closed();
        let last = closed.last().unwrap();
        let form = compression.map_or("", Compression::ending);
        assert_eq!(fs::read_link(&link).unwrap().to_str().unwrap(), format!("{}{form}", last.name));
    }
}

fn daily() -> Rotation {
    Rotation { size: None, every: Some(DAY), ..rotation(None) }
}

#[test]
fn a_file_is_closed_at_the_end_of_its_day_without_a_batch() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open_with(daily());
    journal.append(ours.id, &records(&ours, 1..9)).unwrap();
    journal.close_by_the_clock().unwrap();
    assert_eq!(place.closed(), []);
    journal.active().unwrap().begun -= DAY;
    journal.close_by_the_clock().unwrap();
    journal.close_by_the_clock().unwrap();
    assert_eq!(place.bytes(), b"");
    assert_eq!(place.closed().len(), 1);
    assert_eq!(place.all(), lines(&records(&ours, 1..9)));
}

#[test]
fn a_file_that_was_begun_while_the_clock_was_ahead_is_closed_at_the_end_of_the_day() {
    let ours = channel(1);
    let place = Fixture::new();
    let mut journal = place.open_with(daily());
    journal.append(ours.id, &records(&ours, 1..9)).unwrap();
    journal.active().unwrap().begun += 365 * DAY;
    journal.close_by_the_clock().unwrap();
    assert_eq!(place.closed(), []);
    // A day later.
    journal.active().unwrap().begun -= DAY;
    journal.close_by_the_clock().unwrap();
    assert_eq!(place.closed().len(), 1);
}

#[test]
fn a_file_that_cannot_be_closed_still_accepts_events() {
    let ours = channel(1);
    // The path of the index is a directory, or the name of the closed file is too long.
    for has_long_name in [false, true] {
        let place = Fixture::new();
        let obstacle = place.files().index_path();
        let mut rotation = rotation(None);
        if has_long_name {
            rotation.name = ClosedName::beside(Path::new(&"x".repeat(240)));
        } else {
            fs::create_dir(&obstacle).unwrap();
        }
        let mut journal = place.open_with(rotation);
        for start in [1, 3, 5, 7] {
            journal.append(ours.id, &records(&ours, start..start + 2)).unwrap();
        }
        assert_eq!(place.bytes(), lines(&records(&ours, 1..9)), "{has_long_name}");
        // The file is closed when this is possible again.
        if !has_long_name {
            fs::remove_dir(&obstacle).unwrap();
            journal.append(ours.id, &records(&ours, 9..11)).unwrap();
            assert_eq!((place.closed().len(), place.bytes()), (1, lines(&records(&ours, 9..11))));
        }
    }
}

#[test]
fn the_clock_of_a_file_server_closes_and_deletes_nothing() {
    let ours = channel(1);
    let place = Fixture::new();
    let daily = Rotation { keep: Keep { files: NonZeroUsize::new(3), ..Keep::default() }, ..daily() };
    for restart in 0..3 {
        let mut journal = place.open_with(daily.clone());
        for number in restart * 10..restart * 10 + 10 {
            journal.append(ours.id, &records(&ours, [number])).unwrap();
            // The file server's clock is behind, so the file seems to belong to an earlier period.
            journal.active().unwrap().appender.disk.set_modified(SystemTime::now() - 2 * DAY).unwrap();
            journal.close_by_the_clock().unwrap();
            place.look_after(daily.clone()).unwrap();
        }
    }
    assert_eq!(place.closed(), []);
    assert_eq!(place.all(), lines(&records(&ours, 0..30)));
}

#[test]
fn after_a_start_the_last_events_determine_the_period_of_a_file() {
    let ours = channel(1);
    let received = |days| Timestamp::now() - days * DAY;
    let line = |number, at: Timestamp| {
        let line = String::from_utf8(record(&ours, number).body().to_vec()).unwrap();
        line.replacen('{', &format!(r#"{{"received":"{at}","#), 1) + "\n"
    };
    let raw = String::from_utf8(lines(&[shaped(&record(&ours, 1), Format::Raw)])).unwrap();
    let forged = raw.replacen('{', &format!(r#"{{"received":"{}","event":{{}},"#, received(2)), 1);
    for (held, closed, what) in [
        (line(1, received(2)) + &line(2, received(1)), 1, "yesterday"),
        (line(1, received(0)) + &line(2, received(9)), 0, "the last one is a late delivery"),
        (line(1, received(2)) + &line(2, Timestamp::now() + DAY), 0, "the clock was set back"),
        (raw, 0, "a raw line does not contain the time"),
        (forged, 0, "the service has added a time to a raw line"),
        (line(1, received(2)).replace("received", "at"), 0, "the line does not contain the time"),
    ] {
        let place = Fixture::holding(held.as_bytes());
        // The modification time must have no effect.
        let file = OpenOptions::new().write(true).open(place.path()).unwrap();
        file.set_modified(SystemTime::now() - 2 * DAY).unwrap();
        place.open_with(daily()).append(ours.id, &records(&ours, [3])).unwrap();
        assert_eq!(place.closed().len(), closed, "{what}");
    }
}

#[test]
fn a_missing_line_break_is_added_before_closing() {
    let ours = channel(1);
    let whole = lines(&records(&ours, 1..4));
    let place = Fixture::holding(&whole[..whole.len() - 1]);
    let mut journal = place.open_with(rotation(None));
    journal.append(ours.id, &records(&ours, 4..8)).unwrap();
    assert_eq!(place.closed()[0].forms[&None], whole.len() as u64);
    assert_eq!(place.all(), lines(&records(&ours, 1..8)));
}

#[test]
fn a_linked_file_is_closed_in_its_own_directory() {
    let ours = channel(1);
    let (place, other) = (Fixture::new(), Fixture::new());
    symlink(other.path(), place.path()).unwrap();
    let mut journal = place.open_with(rotation(None));
    journal.append(ours.id, &records(&ours, 1..5)).unwrap();
    journal.append(ours.id, &records(&ours, 5..9)).unwrap();
    assert!(place.path().is_symlink() && place.closed().is_empty());
    assert_eq!((other.closed().len(), other.all()), (1, lines(&records(&ours, 1..9))));
}

fn due(size: Option<u64>, every: Option<u64>) -> Rotation {
    Rotation { size, every: every.map(Duration::from_secs), ..rotation(None) }
}

#[test]
fn a_file_is_closed_by_size_and_by_time() {
    let at = |hours: i64, seconds: i64| Timestamp::from_second(hours * 3600 + seconds).unwrap();
    let (size, hourly, daily) = (due(Some(100), None), due(None, Some(3600)), due(None, Some(86_400)));
    for (rotation, length, more, begun, now, expected) in [
        (&size, 90, 10, at(0, 0), at(9, 0), false),
        (&size, 90, 11, at(0, 0), at(0, 0), true),
        (&size, 0, 500, at(0, 0), at(0, 0), false),
        (&size, 500, 1, at(0, 0), at(0, 0), true),
        (&size, 500, 0, at(0, 0), at(0, 0), false),
        (&hourly, 1, 0, at(1, 3599), at(2, 0), true),
        (&hourly, 1, 1, at(1, 0), at(1, 3599), false),
        (&hourly, 0, 1, at(1, 0), at(5, 0), false),
        (&hourly, 1, 1, at(5, 0), at(1, 0), false),
        (&daily, 1, 1, at(23, 0), at(24, 0), true),
        (&daily, 1, 1, at(24, 0), at(47, 3599), false),
    ] {
        assert_eq!(is_due(rotation, length, more, begun, now), expected, "{rotation:?} {length} {more}");
    }
}
