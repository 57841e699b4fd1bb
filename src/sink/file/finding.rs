//! Finding what files hold that is not recorded as delivered.
//!
//! # Invariants
//!
//! * **The last recorded line ends the search.** A lane appends in order and records each batch before the next, and what
//!   it finds here it records, or has offered again, before it appends anything behind it: so before a line of a channel
//!   that is recorded all of its lines are.
//! * **A few bytes an event.** After a crash that is what was in hand. Where an operator has put a cursor back, it is
//!   everything since: what stands in the files is not written again, unless they are moved away first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, Read};

use super::lines::{Backwards, Content, MAX_LINE, Place};
use super::name::Ends;
use crate::event::{ChannelId, EventId, Offset};
use crate::record::Message;
use crate::sink::Recorded;

/// Events of a channel that stand in files, though nobody has recorded them. Each with its id, where that is needed to
/// tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unrecorded(BTreeMap<Offset, Option<EventId>>);

impl Unrecorded {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this very event is among them.
    pub(super) fn has(&self, message: &Message) -> bool {
        match self.0.get(&message.offset()) {
            None => false,
            Some(None) => true,
            Some(Some(id)) => message.key() == id.to_string(),
        }
    }

    /// Forgets an event that has been offered.
    pub(super) fn settle(&mut self, offset: Offset) {
        self.0.remove(&offset);
    }

    pub(super) fn offsets(&self) -> BTreeSet<Offset> {
        self.0.keys().copied().collect()
    }
}

/// A search through the files of a sink, the newest first.
pub(super) struct Search<'a> {
    recorded: &'a Recorded,
    found: Unrecorded,
}

/// Whether an older file may hold more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Goes {
    On,
    NoFurther,
}

impl<'a> Search<'a> {
    pub(super) fn new(recorded: &'a Recorded) -> Self {
        Self { recorded, found: Unrecorded::default() }
    }

    /// Looks through the first `length` bytes of a file, from the end on.
    pub(super) fn backwards(&mut self, file: &File, length: u64) -> io::Result<Goes> {
        let mut lines = Backwards::new(file, length);
        while let Some(line) = lines.next()? {
            let Some(place) = self.ours(&line.bytes) else { continue };
            if self.recorded.covers(place.offset) {
                return Ok(Goes::NoFurther);
            }
            self.found.0.entry(place.offset).or_insert(place.id);
        }
        Ok(Goes::On)
    }

    /// Looks through a file that can be read in one direction only.
    pub(super) fn forwards(&mut self, reader: impl BufRead) -> io::Result<Goes> {
        let (mut goes, mut found) = (Goes::On, BTreeMap::new());
        each_line(reader, |line| {
            let Some(place) = self.ours(line) else { return };
            if self.recorded.covers(place.offset) {
                found.clear();
                goes = Goes::NoFurther;
            } else {
                found.insert(place.offset, place.id);
            }
        })?;
        for (offset, id) in found {
            self.found.0.entry(offset).or_insert(id);
        }
        Ok(goes)
    }

    pub(super) fn found(self) -> Unrecorded {
        self.found
    }

    fn ours(&self, line: &[u8]) -> Option<Place> {
        match Content::of(line) {
            Content::Record(place) => Some(place).filter(|place| place.is_of(self.recorded.channel.id)),
            Content::Foreign | Content::Remains => None,
        }
    }
}

/// Whose lines a file holds; `None` stands for lines that do not say.
pub(super) fn channels(reader: impl BufRead) -> io::Result<BTreeSet<Option<ChannelId>>> {
    let mut found = BTreeSet::new();
    each_line(reader, |line| {
        if let Content::Record(place) = Content::of(line) {
            found.insert(place.channel);
        }
    })?;
    Ok(found)
}

/// The offsets of a file's first and last event.
pub(super) fn ends(file: &File, length: u64) -> io::Result<Ends> {
    let mut ends = Ends::default();
    let mut lines = Backwards::new(file, length);
    while ends.last.is_none() {
        let Some(line) = lines.next()? else { return Ok(ends) };
        ends.last = offset(&line.bytes);
    }
    let mut from_start = io::BufReader::new(ReadAt { file, at: 0 });
    let mut line = Vec::new();
    while ends.first.is_none() && next_line(&mut from_start, &mut line)? {
        ends.first = offset(&line);
    }
    Ok(ends)
}

fn offset(line: &[u8]) -> Option<Offset> {
    match Content::of(line) {
        Content::Record(place) => Some(place.offset),
        Content::Foreign | Content::Remains => None,
    }
}

fn each_line(mut reader: impl BufRead, mut each: impl FnMut(&[u8])) -> io::Result<()> {
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it holds a line that is too long for an event"));
    }
    Ok(read > 0)
}

/// Reads a file without moving where others read or write.
struct ReadAt<'a> {
    file: &'a File,
    at: u64,
}

impl Read for ReadAt<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = std::os::unix::fs::FileExt::read_at(self.file, into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
