//! Finding the events that files hold though they are not recorded as delivered.
//!
//! # Invariants
//!
//! * **The last recorded line ends the search.** A lane appends in order and records each batch before the next. What it
//!   finds here it records, or offers again, before it appends anything behind it. So every line of a channel that
//!   stands before a recorded one is recorded.
//! * **A few bytes an event.** After a crash that is one batch. After an operator has put a cursor back, it is everything
//!   since: lines that are in the files are not written again, unless the files are moved away first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead};
use std::path::PathBuf;

use super::closed::{Closed, ClosedFiles};
use super::index::Index;
use super::lines::{Backwards, Place, each_line, place};
use super::opening::{failed, if_there};
use crate::event::{EventId, Offset};
use crate::sink::{Recorded, SinkError};

/// Events of a channel that files hold though they are not recorded. An id is there where the line does not name its
/// channel: then only an event of that id is the same.
pub(super) type Unrecorded = BTreeMap<Offset, Option<EventId>>;

/// The files at some moment. Lines that are appended later do not show.
pub(super) struct Snapshot {
    pub(super) active: File,
    pub(super) length: u64,
    pub(super) path: PathBuf,
    pub(super) files: ClosedFiles,
    /// The oldest first.
    pub(super) closed: Vec<Closed>,
}

impl Snapshot {
    /// The events of a channel that are not recorded. Reads the newest file first.
    pub(super) fn unrecorded(&self, recorded: &Recorded) -> Result<Unrecorded, SinkError> {
        let mut search = Search { recorded, found: Unrecorded::new(), ended: false };
        search.backwards(&self.active, self.length).map_err(failed("reading", &self.path))?;
        let (index, channel) = (Index::load(&self.files)?, recorded.lane.channel.id);
        for closed in self.closed.iter().rev().filter(|closed| index.may_hold(closed.time, channel)) {
            if search.ended {
                break;
            }
            let path = self.files.path(&closed.name, None);
            search.closed(&self.files, &closed.name).map_err(failed("reading", &path))?;
        }
        Ok(search.found)
    }
}

struct Search<'a> {
    recorded: &'a Recorded,
    found: Unrecorded,
    /// Whether a recorded line was met.
    ended: bool,
}

impl Search<'_> {
    /// Searches a closed file. One that was removed meanwhile holds nothing.
    fn closed(&mut self, files: &ClosedFiles, name: &str) -> io::Result<()> {
        if let Some(plain) = if_there(File::open(files.path(name, None)))? {
            return self.backwards(&plain, plain.metadata()?.len());
        }
        files.reader(name)?.map_or(Ok(()), |reader| self.forwards(reader))
    }

    /// Searches the first `length` bytes of a file, from the end on.
    fn backwards(&mut self, file: &File, length: u64) -> io::Result<()> {
        let mut lines = Backwards::new(file, length);
        while let Some(line) = lines.next()? {
            let Some(Place { offset, id, .. }) = self.place(&line.bytes) else { continue };
            if self.recorded.covers(offset) {
                self.ended = true;
                break;
            }
            self.found.entry(offset).or_insert(id);
        }
        Ok(())
    }

    /// Searches a file that can only be read from its beginning.
    fn forwards(&mut self, reader: impl BufRead) -> io::Result<()> {
        let mut found = Unrecorded::new();
        each_line(reader, |line| {
            let Some(Place { offset, id, .. }) = self.place(line) else { return };
            if self.recorded.covers(offset) {
                found.clear();
                self.ended = true;
            } else {
                found.insert(offset, id);
            }
        })?;
        // What was found in a newer file stays.
        found.append(&mut self.found);
        self.found = found;
        Ok(())
    }

    fn place(&self, line: &[u8]) -> Option<Place> {
        place(line).filter(|place| place.channel.is_none_or(|channel| channel == self.recorded.lane.channel.id))
    }
}
