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

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::event::{ChannelId, EventId, Offset, RawEvent};

/// How much of a file's end is looked at first, and how many times more whenever that was not enough.
const FIRST_LOOK: u64 = 64 * 1024;
const GROWTH: u64 = 8;

/// A line longer than this was not written here: an event is a small part of one bounded answer of the service.
const MAX_LINE: u64 = 256 * 1024 * 1024;

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

/// The lines that a reader gives, without their line breaks.
pub(super) fn lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) if line.last() == Some(&b'\n') => drop(line.pop()),
            Ok(read) if read as u64 == MAX_LINE => {
                let message = "it holds a line that is too long for an event";
                return Some(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
            }
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(line))
    })
}

/// Shows `look` the last lines of a file's first `length` bytes, and where the first of them begins: more and more of them,
/// until it says that this is enough.
pub(super) fn look_back(
    file: &File,
    length: u64,
    mut look: impl FnMut(u64, &mut dyn Iterator<Item = io::Result<Vec<u8>>>) -> io::Result<bool>,
) -> io::Result<()> {
    let mut looked_at = FIRST_LOOK;
    loop {
        let mut start = length.saturating_sub(looked_at);
        let mut reader = BufReader::new(Cursor { file, at: start }.take(length - start));
        if start > 0 {
            start += reader.skip_until(b'\n')? as u64;
        }
        if look(start, &mut lines(reader))? || looked_at >= length {
            return Ok(());
        }
        looked_at = looked_at.saturating_mul(GROWTH);
    }
}

/// The offsets of the first and the last event in a file of `length` bytes.
pub(super) fn ends(file: &File, length: u64) -> io::Result<(Option<Offset>, Option<Offset>)> {
    let offset = |line: io::Result<Vec<u8>>| Ok::<_, io::Error>(place(&line?).map(|place| place.offset));
    let (mut first, mut last) = (None, None);
    look_back(file, length, |_, lines| {
        for line in lines {
            last = offset(line)?.or(last);
        }
        Ok(last.is_some())
    })?;
    for line in lines(BufReader::new(Cursor { file, at: 0 })) {
        first = offset(line)?;
        if first.is_some() {
            break;
        }
    }
    Ok((first, last))
}

/// Reads a file from here on, wherever others that share it read.
struct Cursor<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Cursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
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
