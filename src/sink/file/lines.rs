//! The lines of a file: read from its end or its beginning in bounded memory, and what they say.
//!
//! # Invariants
//!
//! * **Each format is understood, whatever the sink writes now.** A format may be changed between a crash and the next
//!   start. A line is the record, an event of CloudEvents with the record as its data, or the service's own event. The last
//!   does not name its channel. It counts for every channel that asks, which the configuration allows for a file of one
//!   channel only, and its id tells it from an event of a channel that had the file before.
//! * **Remains are never records.** What parses as a JSON object is whole (no beginning of an object is one) and is never
//!   taken for remains. Neither is readable text that does not begin like a record.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::event::{ChannelId, EventId, Offset, RawEvent};

/// How much is read at once; doubled while a line does not end.
const CHUNK: u64 = 64 * 1024;

/// A line longer than this was not written here: an event is a small part of one bounded answer of the service.
const MAX_LINE: u64 = 256 * 1024 * 1024;

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

/// Which event a line holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `None` where the line does not say.
    pub(super) channel: Option<ChannelId>,
    pub(super) offset: Offset,
    /// The event's id, only where the line does not name the channel.
    pub(super) id: Option<EventId>,
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
            return Err(too_long());
        }
        let Range { start, end } = self.start.saturating_sub(chunk)..self.start;
        let mut read = vec![0; usize::try_from(end - start).expect("a chunk is far smaller than the address space")];
        self.file.read_exact_at(&mut read, start)?;
        read.append(&mut self.unread);
        (self.start, self.unread) = (start, read);
        Ok(())
    }
}

/// Calls `each` with the lines that a reader gives, first line first, without their line breaks.
pub(super) fn each_line(mut reader: impl BufRead, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line)? {
        each(&line);
    }
    Ok(())
}

/// Reads a line without its line break; `false` at the end.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 == MAX_LINE {
        return Err(too_long());
    }
    Ok(read > 0)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it holds a line that is too long for an event")
}

/// The offsets of the first and the last event in a file of `length` bytes.
pub(super) fn ends(mut file: &fs::File, length: u64) -> io::Result<(Option<Offset>, Option<Offset>)> {
    let offset = |line: &[u8]| place(line).map(|place| place.offset);
    let (mut first, mut last, mut backwards) = (None, None, Backwards::new(file, length));
    while last.is_none() {
        let Some(line) = backwards.next()? else { return Ok((None, None)) };
        last = offset(&line.bytes);
    }
    // Where a file is read has no effect on where it is appended to.
    file.seek(SeekFrom::Start(0))?;
    let (mut forwards, mut line) = (BufReader::new(file), Vec::new());
    while first.is_none() && next_line(&mut forwards, &mut line)? {
        first = offset(&line);
    }
    Ok((first, last))
}

/// Which event a line holds; `None` where it holds none.
pub(super) fn place(line: &[u8]) -> Option<Place> {
    let record = serde_json::from_slice(line);
    let record = record.or_else(|_| serde_json::from_slice(line).map(|event: CloudEvent| event.data));
    if let Ok(Record { channel_id, offset, .. }) = record {
        return Some(Place { channel: Some(channel_id), offset, id: None });
    }
    let RawEvent { offset, id, .. } = RawEvent::locate(Bytes::copy_from_slice(line))?;
    Some(Place { channel: None, offset, id })
}

/// Whether a line is what is left of a write that never ended: the beginning of an object, or bytes that no text has.
pub(super) fn is_remains(line: &[u8]) -> bool {
    place(line).is_none()
        && std::str::from_utf8(line).map_or(true, |text| match text.strip_prefix('{') {
            Some(_) => serde_json::from_str::<IgnoredAny>(text).is_err(),
            None => text.contains(|c: char| c.is_control() && c != '\t' && c != '\r'),
        })
}

#[cfg(test)]
mod tests;
