//! Finding the events that files hold though they are not recorded as delivered.
//!
//! # Invariants
//!
//! * **The last recorded line ends the search,** which begins with the newest file. A lane records each batch, or offers it
//!   again, before it appends the next: every line of a channel that stands before a recorded one is recorded.
//! * **A few bytes an event.** After a crash that is one batch. After an operator has put a cursor back, it is everything
//!   since: lines that are in the files are not written again, unless the files are moved away first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use super::closed::ClosedFiles;
use super::index::Index;
use super::lines::{Place, lines, look_back, place};
use super::opening::{Doing, if_there};
use crate::event::{EventId, Offset};
use crate::sink::{Recorded, SinkError};

/// Events of a channel that files hold though they are not recorded. An id is there where the line does not name its
/// channel: then only an event of that id is the same.
pub(super) type Unrecorded = BTreeMap<Offset, Option<EventId>>;

/// The files at some moment. Lines that are appended later to the active one do not show.
pub(super) struct Snapshot {
    pub(super) active: File,
    pub(super) length: u64,
    pub(super) files: ClosedFiles,
}

impl Snapshot {
    /// The events of a channel that are not recorded. Reads the newest file first.
    pub(super) fn unrecorded(&self, recorded: &Recorded) -> Result<Unrecorded, SinkError> {
        let searched = back(&self.active, self.length, recorded);
        let (mut found, mut ended) = searched.doing("reading", &self.files.active)?;
        let (index, channel) = (Index::load(&self.files)?, recorded.lane.channel.id);
        for closed in self.files.list()?.iter().rev().filter(|closed| index.may_hold(closed.time, channel)) {
            if ended {
                break;
            }
            let searched = search_closed(&self.files, &closed.name, recorded);
            let mut older;
            (older, ended) = searched.doing("reading", &self.files.path(&closed.name, None))?;
            // What was found in a newer file stays.
            older.append(&mut found);
            found = older;
        }
        Ok(found)
    }
}

/// What a file holds behind the last recorded line, and whether there is such a line.
type Searched = (Unrecorded, bool);

/// Searches a closed file. One that was removed meanwhile holds nothing.
fn search_closed(files: &ClosedFiles, name: &str, recorded: &Recorded) -> io::Result<Searched> {
    if let Some(plain) = if_there(File::open(files.path(name, None)))? {
        return back(&plain, plain.metadata()?.len(), recorded);
    }
    files.reader(name)?.map_or(Ok(Searched::default()), |reader| search(&mut lines(reader), recorded))
}

/// Searches the first `length` bytes of a file, and no more of their end than is needed.
fn back(file: &File, length: u64, recorded: &Recorded) -> io::Result<Searched> {
    let mut searched = Searched::default();
    look_back(file, length, |_, lines| {
        searched = search(lines, recorded)?;
        Ok(searched.1)
    })?;
    Ok(searched)
}

fn search(lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>, recorded: &Recorded) -> io::Result<Searched> {
    let (mut found, mut ended) = Searched::default();
    for line in lines {
        let Some(Place { channel, offset, id }) = place(&line?) else { continue };
        if channel.is_some_and(|channel| channel != recorded.lane.channel.id) {
            continue;
        }
        if recorded.covers_offset(offset) {
            found.clear();
            ended = true;
        } else {
            found.insert(offset, id);
        }
    }
    Ok((found, ended))
}
