//! Reads the lines of a file from its end or its beginning in bounded memory, and parses them.
//!
//! # Invariants
//!
//! * **Every format is understood, regardless of the configured format.** The format may be changed between a crash and the
//!   next start. A line is a record, a CloudEvents event whose data is the record, or the service's own event (`raw`).
//! * **The service cannot choose an event's identity.** Only raw lines have a top-level member `headers`, and every raw
//!   line has it. `headers` is checked first, because the service chooses the other members of a raw line, and these
//!   members may look like a record.
//! * **A raw line does not name its channel.** The configuration allows this format only for a file of one channel, so a raw
//!   line counts as an event of any channel that is searched. Its event id distinguishes it from events of an earlier channel.
//! * **The remains of an interrupted write are never treated as a record.** A line that parses as a JSON object is complete,
//!   because no proper prefix of an object parses. Readable text that does not begin like a record does not count as remains.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use proof::event::{ChannelId, EventKey, Object, Offset};

/// How many bytes at the end of a file are read first. If they are not enough, the amount is multiplied by `GROWTH`.
const FIRST_LOOK: u64 = 64 * 1024;
const GROWTH: u64 = 8;

/// The longest line, in bytes. The sink never writes a longer line, because the size of the service's responses is limited.
const MAX_LINE: u64 = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventLine {
    /// `None` if the line does not name its channel.
    pub(super) channel: Option<ChannelId>,
    pub(super) key: EventKey,
}

impl EventLine {
    pub(super) fn may_be_of(&self, channel: ChannelId) -> bool {
        self.channel.is_none_or(|named| named == channel)
    }
}

pub(super) fn events(reader: impl BufRead) -> impl Iterator<Item = io::Result<EventLine>> {
    events_in(lines(reader))
}

/// The events in these lines. Lines that a file sink did not write are skipped.
pub(super) fn events_in(
    lines: impl Iterator<Item = io::Result<Vec<u8>>>,
) -> impl Iterator<Item = io::Result<EventLine>> {
    lines.filter_map(|line| line.map(|line| event_in(&line)).transpose())
}

/// The lines without their line breaks.
fn lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) if line.last() == Some(&b'\n') => drop(line.pop()),
            Ok(read) if read as u64 == MAX_LINE => {
                let message = "it contains a line that is too long for an event";
                return Some(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
            }
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(line))
    })
}

/// Calls `look` with the last lines of a file's first `length` bytes, and with the position at which the first of these
/// lines begins. Repeats this with more lines until `look` returns true or has seen all lines.
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

pub(super) fn from_start(file: &File, length: u64) -> impl BufRead {
    BufReader::new(Cursor { file, at: 0 }.take(length))
}

/// The time when the newest of the last events in a file of `length` bytes was received. `None` if the lines do not contain
/// this time.
pub(super) fn last_received(file: &File, length: u64) -> io::Result<Option<Timestamp>> {
    let mut newest = None;
    look_back(file, length, |_, lines| {
        for line in lines {
            newest = newest.max(received(&line?));
        }
        // Earlier lines are not read. If the last lines lack the time, they are raw lines, and these never contain it.
        Ok(true)
    })?;
    Ok(newest)
}

/// The offsets of the first and the last event in a file of `length` bytes.
pub(super) fn ends(file: &File, length: u64) -> io::Result<(Option<Offset>, Option<Offset>)> {
    let mut last = None;
    look_back(file, length, |_, lines| {
        for event in events_in(lines) {
            last = Some(event?.key.offset);
        }
        Ok(last.is_some())
    })?;
    let first = events(from_start(file, length)).next().transpose()?;
    Ok((first.map(|event| event.key.offset), last))
}

/// Reads a file at a position that it keeps itself, independently of other readers of the same descriptor.
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

/// The event of a line. `None` if a file sink did not write the line.
fn event_in(line: &[u8]) -> Option<EventLine> {
    let line = Object::read(line).ok()?;
    if let Some(headers) = member(&line, "headers") {
        let headers = Object::read(headers.get().as_bytes()).ok()?;
        return Some(EventLine { channel: None, key: key(&line, &headers)? });
    }
    let record = record_in(line)?;
    Some(EventLine { channel: Some(value(&record, "channel_id")?), key: key(&record, &record)? })
}

/// When the event of a record was received, according to the daemon's clock.
fn received(line: &[u8]) -> Option<Timestamp> {
    let record = Object::read(line).ok().filter(|line| member(line, "headers").is_none()).and_then(record_in)?;
    value::<String>(&record, "received")?.parse().ok()
}

/// The record in a line that is not raw. The member `event` distinguishes a record from the objects of other programs.
fn record_in(line: Object<'_>) -> Option<Object<'_>> {
    let record = match (member(&line, "specversion"), member(&line, "data")) {
        (Some(_), Some(data)) => Object::read(data.get().as_bytes()).ok()?,
        _ => line,
    };
    member(&record, "event").is_some().then_some(record)
}

fn key(event: &Object<'_>, headers: &Object<'_>) -> Option<EventKey> {
    Some(EventKey { offset: value(headers, "offset")?, id: value(event, "event_id") })
}

/// The last member with that name. Most JSON readers also use the last member.
fn member<'a>(object: &Object<'a>, name: &str) -> Option<&'a RawValue> {
    object.members().filter(|(member, _)| *member == name).last().map(|(_, value)| value)
}

fn value<'a, T: Deserialize<'a>>(object: &Object<'a>, name: &str) -> Option<T> {
    serde_json::from_str(member(object, name)?.get()).ok()
}

/// Whether a line is the remains of an interrupted write: the beginning of an object, or bytes that do not occur in text.
pub(super) fn is_remains(line: &[u8]) -> bool {
    event_in(line).is_none()
        && std::str::from_utf8(line).map_or(true, |text| match text.strip_prefix('{') {
            Some(_) => serde_json::from_str::<IgnoredAny>(text).is_err(),
            None => text.contains(|c: char| c.is_control() && c != '\t' && c != '\r'),
        })
}

#[cfg(test)]
mod tests;
