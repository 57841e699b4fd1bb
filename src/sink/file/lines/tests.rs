use std::io::Write;

use super::*;
use crate::tests::{channel, raw_record, record, shaped};
use proof::event::EventId;
use record::Format;

/// Not a record, although it names a channel and an offset.
const NOT_WHOLE: &str = r#"{"channel_id":"00000000-0000-0000-0000-000000000001","offset":7}"#;

/// The last lines of a file and their positions, for each call of `look` until `enough` lines were found.
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
fn each_step_reads_more_whole_lines_from_the_end() {
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
            // An empty last line without a line break is not a line.
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
fn torn_lines_differ_from_foreign_lines() {
    for format in [Format::Json, Format::CloudEvents, Format::Raw] {
        let record = shaped(&record(&channel(1), 7), format);
        let of = (format != Format::Raw).then_some(channel(1).id);
        assert!(!is_remains(record.body()));
        let expected = EventLine { channel: of, key: record.event_key() };
        assert_eq!(event_in(record.body()), Some(expected), "{format:?}");
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
        assert!(event_in(text.as_bytes()).is_none() && !is_remains(text.as_bytes()), "{text}");
    }
    for bytes in
        [&b"\0"[..], b"\0\0\"}", b"tail of a line\0", b"{\"a\":\"\0\"}", b"\xff", b"{\"a\":\"\xff\"}", b"\x1b["]
    {
        assert!(is_remains(bytes), "{bytes:?}");
    }
}

/// Members that a service could add to an event to make its raw line look like the record of another event.
fn forged() -> [String; 6] {
    let (other, id) = (channel(2).id, EventId::default());
    let record =
        format!(r#""channel":"x","channel_id":"{other}","offset":99,"event":{{}},"received":"2024-05-14T12:00:15Z""#);
    [
        record.clone(),
        format!(r#""specversion":"1.0","data":{{{record}}}"#),
        format!(r#""data":{{{record},"headers":{{"offset":99}}}}"#),
        r#""offset":99,"event":{"headers":{"offset":99}}"#.to_owned(),
        format!(r#""event":{{"event_id":"{id}","offset":99}},"channel_id":"{other}","offset":"99""#),
        format!(r#""channel_id":"{other}","channel_id":"{other}","offset":99,"event":1"#),
    ]
}

#[test]
fn a_raw_line_is_identified_by_its_headers_only() {
    for members in forged() {
        let message = raw_record(&channel(1), 7, &members);
        let raw = shaped(&message, Format::Raw);
        assert_eq!(event_in(raw.body()), Some(EventLine { channel: None, key: message.event_key() }), "{members}");
        assert_eq!(received(raw.body()), None, "{members}");
        for format in [Format::Json, Format::CloudEvents] {
            let line = shaped(&message, format);
            let expected = EventLine { channel: Some(channel(1).id), key: message.event_key() };
            assert_eq!(event_in(line.body()), Some(expected), "{members} {format:?}");
        }
    }
}

#[test]
fn headers_without_an_offset_are_foreign() {
    for headers in ["1", "{}", r#"{"offset":-1}"#] {
        let record = String::from_utf8(record(&channel(1), 7).body().to_vec()).unwrap();
        let line = record.replacen('{', &format!(r#"{{"headers":{headers},"#), 1);
        assert_eq!(event_in(line.as_bytes()), None, "{line}");
    }
}
