//! Tests which closed files are deleted, and the target of the link.

use std::num::NonZeroUsize;

use super::*;
use crate::file::closed::name::ClosedName;
use crate::file::settings::Keep;

fn rotation(keep: Keep, every: Option<Duration>) -> Rotation {
    let name = ClosedName::parse("{time}").unwrap();
    Rotation { size: Some(1), every, name, compression: None, keep, latest_link: None }
}

/// Five files of ten bytes, an hour apart. An operator has marked the file at `marked`.
fn files(marked: Option<usize>) -> Vec<ClosedFile> {
    let file = |number: usize| ClosedFile {
        time: Timestamp::from_second(i64::try_from(number).unwrap() * 3600).unwrap(),
        name: number.to_string(),
        forms: [(None, 10)].into(),
        marked: marked == Some(number),
    };
    (0..5).map(file).collect()
}

#[test]
fn each_limit_applies_except_to_the_last_and_marked_files() {
    let now = Timestamp::from_second(5 * 3600).unwrap();
    let none = Keep::default();
    let count = |files| Keep { files: NonZeroUsize::new(files), ..none };
    let hours = |hours: u64| Keep { time: Some(Duration::from_secs(hours * 3600)), ..none };
    let bytes = |size| Keep { size: Some(size), ..none };
    for (keep, marked, expected) in [
        (none, None, ""),
        (count(2), None, "012"),
        (count(5), None, ""),
        (count(2), Some(3), "01"),
        (count(1), Some(4), "012"),
        (hours(3), None, "01"),
        (hours(0), None, "0123"),
        (hours(3), Some(0), "1"),
        (bytes(35), None, "01"),
        (bytes(1), None, "0123"),
        (bytes(35), Some(3), "0"),
        (Keep { files: NonZeroUsize::new(4), size: Some(25), ..none }, None, "012"),
    ] {
        let files = files(marked);
        let past: String = past(&files, &rotation(keep, None), now).iter().map(|closed| &*closed.name).collect();
        assert_eq!(past, expected, "{keep:?} {marked:?}");
    }
}

#[test]
fn recent_files_are_kept() {
    let keep = Keep { files: NonZeroUsize::new(3), ..Keep::default() };
    let rotation = rotation(keep, Some(Duration::from_secs(3600)));
    let closed = |minute: i64| ClosedFile {
        time: Timestamp::from_second(minute * 60).unwrap(),
        name: format!("{minute},"),
        forms: [(None, 10)].into(),
        marked: false,
    };
    for (minutes, now, expected) in [
        // One file per period, closed when the next period began: the configured number of files stays.
        (vec![60, 120, 180, 240, 300], 300, "60,120,"),
        (vec![60, 120, 180, 240, 300], 359, "60,120,"),
        // Files were closed more often, because of their size or another clock: no file of the last three hours is deleted.
        (vec![60, 61, 62, 63, 64, 65, 66], 67, ""),
        (vec![60, 61, 62, 63, 64, 65, 66], 180, ""),
        (vec![60, 61, 62, 63, 180, 181, 182], 240, "60,61,62,63,"),
        // Files were closed less often, because no events arrived.
        (vec![60, 120, 180, 240], 6000, "60,"),
        // The files were closed before the clock was set back.
        (vec![60, 120, 180, 240, 300], 30, ""),
    ] {
        let files: Vec<_> = minutes.into_iter().map(closed).collect();
        let past: String = past(&files, &rotation, Timestamp::from_second(now * 60).unwrap())
            .iter()
            .map(|closed| &*closed.name)
            .collect();
        assert_eq!(past, expected, "at {now}");
    }
}

#[test]
fn only_a_symbolic_link_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(directory.path()).unwrap();
    let other = tempfile::tempdir().unwrap();
    for (link, expected) in
        [(directory.path().join("latest"), PathBuf::from("two")), (other.path().join("latest"), real.join("two"))]
    {
        point(&link, &real.join("one")).unwrap();
        point(&link, &real.join("two")).unwrap();
        point(&link, &real.join("two")).unwrap();
        assert_eq!(fs::read_link(link).unwrap(), expected);
    }
    let file = directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    let error = point(&file, &real.join("one")).unwrap_err();
    assert!(error.to_string().contains("not a symbolic link"), "{error}");
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}
