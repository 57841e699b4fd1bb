use std::io::Write;

use super::*;
use crate::record::Format;
use crate::sink::tests::{channel, offset, record, shaped};

/// No record, though it names a place.
const NOT_WHOLE: &str = r#"{"channel_id":"00000000-0000-0000-0000-000000000001","offset":7}"#;

/// The last lines of a file and where they begin, for each look until there were so many.
fn looks(bytes: &[u8], enough: usize) -> Vec<Vec<(u64, Vec<u8>)>> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut looks = Vec::new();
    look_back(&file, bytes.len() as u64, |mut at, lines| {
        let mut found = Vec::new();
        for line in lines {
            let line = line?;
            let start = at;
            at += line.len() as u64 + 1;
            found.push((start, line));
        }
        looks.push(found);
        Ok(looks.last().unwrap().len() >= enough)
    })
    .unwrap();
    looks
}

#[test]
fn each_look_shows_more_whole_lines_of_the_end_whatever_their_length() {
    let first = usize::try_from(FIRST_LOOK).unwrap();
    for lengths in [
        vec![],
        vec![0],
        vec![3, 0, 5],
        vec![first - 2, first - 1, first, first + 1],
        vec![5 * first, 1, 3 * first],
        vec![1, 9 * first, 60 * first],
    ] {
        for ended in [true, false] {
            let mut expected = Vec::new();
            let mut bytes = Vec::new();
            for (at, length) in lengths.iter().enumerate() {
                let last = at + 1 == lengths.len();
                expected.push((bytes.len() as u64, vec![b'x'; *length]));
                bytes.resize(bytes.len() + length, b'x');
                if ended || !last {
                    bytes.push(b'\n');
                }
            }
            // Without a line break, nothing at the end is no line.
            if !ended && lengths.last() == Some(&0) {
                expected.pop();
            }
            for enough in 0..=lengths.len() + 1 {
                let looks = looks(&bytes, enough);
                let (last, before) = looks.split_last().unwrap();
                assert!(last.len() >= enough || *last == expected, "{lengths:?} {ended} {enough}");
                assert!(before.iter().all(|look| look.len() < enough), "{lengths:?} {ended} {enough}");
                assert!(looks.iter().all(|look| expected.ends_with(look)), "{lengths:?} {ended} {enough}");
                assert!(looks.is_sorted_by_key(Vec::len), "{lengths:?} {ended} {enough}");
            }
        }
    }
}

#[test]
fn remains_are_told_from_lines_of_others() {
    for format in [Format::Json, Format::CloudEvents, Format::Raw] {
        let record = shaped(&record(&channel(1), 7), format);
        let of = (format != Format::Raw).then_some(channel(1).id);
        let place = place(record.body()).unwrap();
        assert!(!is_remains(record.body()));
        assert_eq!((place.channel, place.offset), (of, offset(7)), "{format:?}");
        assert_eq!(place.id.map(|id| id.to_string()), of.is_none().then(|| record.key()), "{format:?}");
        for end in 1..record.body().len() {
            assert!(is_remains(&record.body()[..end]), "{format:?} {end}");
        }
    }
    for text in [
        "",
        "# rotated\tby hand\r",
        "}",
        "  \"pretty\": 1",
        "{}",
        r#"{"offset":"x"}"#,
        "[1]",
        "größer",
        "{\"a\":\"\u{7f}\"}",
        NOT_WHOLE,
    ] {
        assert!(place(text.as_bytes()).is_none() && !is_remains(text.as_bytes()), "{text}");
    }
    for bytes in
        [&b"\0"[..], b"\0\0\"}", b"tail of a line\0", b"{\"a\":\"\0\"}", b"\xff", b"{\"a\":\"\xff\"}", b"\x1b["]
    {
        assert!(is_remains(bytes), "{bytes:?}");
    }
}
