//! Reading a file of lines from its end, in bounded memory, and telling records from what a crash has left.
//!
//! # Invariants
//!
//! * **Each format is known, whatever the sink writes now.** A line is told by itself, so that a format which is changed
//!   between a crash and the next start costs nothing: the record, an event of CloudEvents with the record as its data,
//!   or the service's own event. The last does not say whose it is: it counts for whoever asks, which the configuration
//!   allows for a file of one channel only, and its id goes along, so that it is taken for no event of another channel
//!   that the file was used for before.
//! * **Remains are never records.** What parses as a JSON object is whole (no proper beginning of an object is one), and
//!   is never taken for remains, whoever wrote it. Neither is readable text that does not begin like a record.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::event::{ChannelId, EventId, Offset, RawEvent};

/// How much is read at once; doubled while a line does not end.
const CHUNK: u64 = 64 * 1024;

/// A line longer than this was not written here: an event is a small part of one bounded answer of the service.
pub(super) const MAX_LINE: u64 = 256 * 1024 * 1024;

/// The lines of a file's first bytes, last line first.
pub(super) struct Backwards<'a> {
    file: &'a fs::File,
    /// Where `unread` stands in the file.
    start: u64,
    /// What has been read from the disk and not been returned.
    unread: Vec<u8>,
}

/// A line, or the last one's beginning.
#[derive(Debug)]
pub(super) struct Line {
    /// Where it begins.
    pub(super) start: u64,
    /// Without the line break.
    pub(super) bytes: Vec<u8>,
    /// Whether there is a line break at its end.
    pub(super) ended: bool,
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A delivered event.
    Record(Place),
    /// A JSON object or a text of somebody else's. None of our business.
    Foreign,
    /// What is left of a write that never ended: the beginning of an object, or bytes that no text has.
    Remains,
}

/// Whose line it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `None` where the line does not say.
    pub(super) channel: Option<ChannelId>,
    pub(super) offset: Offset,
    /// The event's id, looked at only where the line does not say whose it is.
    pub(super) id: Option<EventId>,
}

impl Place {
    /// Whether it is a line of that channel, as far as it says.
    pub(super) fn is_of(&self, channel: ChannelId) -> bool {
        self.channel.is_none_or(|own| own == channel)
    }
}

/// What a record says of its place. `event` tells it from objects of others.
#[derive(Deserialize)]
struct Record {
    channel_id: ChannelId,
    offset: Offset,
    #[serde(rename = "event")]
    _event: IgnoredAny,
}

/// What an event of CloudEvents says of it.
#[derive(Deserialize)]
struct CloudEvent {
    #[serde(rename = "specversion")]
    _specversion: IgnoredAny,
    data: Record,
}

impl<'a> Backwards<'a> {
    /// Reads the first `length` bytes of `file`.
    pub(super) fn new(file: &'a fs::File, length: u64) -> Self {
        Self { file, start: length, unread: Vec::new() }
    }

    /// The line before the one returned last; `None` at the beginning of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let mut chunk = CHUNK;
        loop {
            let (text, ended) = match self.unread.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (&*self.unread, false),
            };
            let before = text.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
            let Some(begin) = before.or((self.start == 0).then_some(0)) else {
                self.read_more(chunk)?;
                chunk *= 2;
                continue;
            };
            if self.unread.is_empty() {
                return Ok(None);
            }
            let mut bytes = self.unread.split_off(begin);
            bytes.truncate(bytes.len() - usize::from(ended));
            return Ok(Some(Line { start: self.start + begin as u64, bytes, ended }));
        }
    }

    fn read_more(&mut self, chunk: u64) -> io::Result<()> {
        if chunk > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it holds a line that is too long for an event"));
        }
        let Range { start, end } = self.start.saturating_sub(chunk)..self.start;
        let mut read = vec![0; usize::try_from(end - start).expect("a chunk is far smaller than the address space")];
        self.file.read_exact_at(&mut read, start)?;
        read.append(&mut self.unread);
        (self.start, self.unread) = (start, read);
        Ok(())
    }
}

impl Content {
    /// Tells what a line is.
    pub(super) fn of(line: &[u8]) -> Self {
        if let Some(place) = place(line) {
            return Self::Record(place);
        }
        let begins_like_a_record = line.first() == Some(&b'{');
        if (begins_like_a_record && !is_json(line)) || !is_text(line) { Self::Remains } else { Self::Foreign }
    }
}

fn place(line: &[u8]) -> Option<Place> {
    let record = serde_json::from_slice(line);
    let record = record.or_else(|_| serde_json::from_slice(line).map(|event: CloudEvent| event.data));
    if let Ok(Record { channel_id, offset, .. }) = record {
        return Some(Place { channel: Some(channel_id), offset, id: None });
    }
    let RawEvent { offset, id, .. } = RawEvent::locate(Bytes::copy_from_slice(line))?;
    Some(Place { channel: None, offset, id })
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

fn is_text(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|text| text.chars().all(|c| !c.is_control() || c == '\t' || c == '\r'))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::record::Format;
    use crate::sink::sample::{channel, offset, record, shaped};

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
        for lengths in
            [vec![], vec![0], vec![3, 0, 5], vec![chunk - 1, chunk, chunk + 1], vec![5 * chunk, 1, 3 * chunk]]
        {
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
            let Content::Record(place) = Content::of(record.body()) else { panic!("{format:?}") };
            assert_eq!((place.channel, place.offset), (of, offset(7)), "{format:?}");
            assert_eq!(place.id.map(|id| id.to_string()), of.is_none().then(|| record.key()), "{format:?}");
            for end in 1..record.body().len() {
                assert_eq!(Content::of(&record.body()[..end]), Content::Remains, "{format:?} {end}");
            }
        }
        for text in
            ["", "# rotated\tby hand\r", "}", "  \"pretty\": 1", "{}", r#"{"offset":"x"}"#, "[1]", "größer", NOT_WHOLE]
        {
            assert_eq!(Content::of(text.as_bytes()), Content::Foreign, "{text}");
        }
        for bytes in
            [&b"\0"[..], b"\0\0\"}", b"tail of a line\0", b"{\"a\":\"\0\"}", b"\xff", b"{\"a\":\"\xff\"}", b"\x1b["]
        {
            assert_eq!(Content::of(bytes), Content::Remains, "{bytes:?}");
        }
    }
}
