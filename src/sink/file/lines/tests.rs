use std::io::Write;

use super::*;
use crate::record::Format;
use crate::sink::tests::{channel, offset, record, shaped};

/// No record, though it names a place.
const NOT_WHOLE: &str = r#"{"channel_id":"00000000-0000-0000-0000-000000000001","offset":7}"#;

fn backwards(bytes: &[u8]) -> Vec<(u64, Vec<u8>, bool)> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut lines = Backwards::new(&file, bytes.len() as u64);
    let mut found = Vec::new();
    while let Some(line) = lines.next().unwrap() {
        found.push((line.start, line.bytes, line.ended));
    }
    found
}

#[test]
fn lines_come_back_last_first_whatever_their_length() {
    let chunk = usize::try_from(CHUNK).unwrap();
    for lengths in [vec![], vec![0], vec![3, 0, 5], vec![chunk - 1, chunk, chunk + 1], vec![5 * chunk, 1, 3 * chunk]] {
        for ended in [true, false] {
            let mut expected = Vec::new();
            let mut bytes = Vec::new();
            for (at, length) in lengths.iter().enumerate() {
                let last = at + 1 == lengths.len();
                expected.push((bytes.len() as u64, vec![b'x'; *length], ended || !last));
                bytes.resize(bytes.len() + length, b'x');
                if ended || !last {
                    bytes.push(b'\n');
                }
            }
            // Without a line break, nothing at the end is no line.
            if !ended && lengths.last() == Some(&0) {
                expected.pop();
            }
            expected.reverse();
            assert!(backwards(&bytes) == expected, "{lengths:?} {ended}");
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
