//! Compares the content of the files with the recorded state.
//!
//! A file has no table of positions. Its lines are in the order in which they were written. The recorded state names the
//! event that was written last. This event is the anchor of the comparison:
//!
//! * Events of the channel after the anchor are not recorded. The daemon crashed before it recorded them, or an operator
//!   moved the cursor back. The sink skips them when they are offered again.
//! * If the active file has recorded events of the channel, and neither it nor a closed file has the anchor, then lines are
//!   missing that were written after these events: the file was restored from a backup, or replaced. Its position is the
//!   offset of the newest line that remains. Events above this position that are in the files are skipped by identity.
//! * If the active file has no recorded event of the channel, the anchor cannot be expected in it. The file was just
//!   rotated, moved away by another program, or emptied (`copytruncate`). This is normal, even if an operator has moved the
//!   closed files away: lines that are older than the anchor are never in a newer file than the anchor.
//!
//! # Invariants
//!
//! * **The search ends at the anchor,** and begins with the newest file. In the normal case the anchor is near the end.
//!   Without an anchor (nothing was confirmed since an operator chose the cursor) it ends at the first recorded line,
//!   because a lane records each batch, or offers it again, before it appends the next.
//! * **Memory: a few bytes per event that is not recorded.** After a crash, these are the events of one batch. After an
//!   operator has moved a cursor back, these are all events above the new cursor: lines that are in the files are not
//!   written again, unless the files are moved away first.
//!
//! # Limits
//!
//! A late delivery has a lower offset than the lines before it. If it is lost with the end of a file, the loss is noticed
//! only if this event was the last one that was written.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;

use super::closed::index::Index;
use super::closed::{Closed, ClosedFiles};
use super::lines::{all_lines, event_in, lines, look_back};
use super::system::{Doing, if_there};
use crate::{Confirmed, Position, Recorded, SinkError};
use proof::event::{ChannelId, EventKey, Offset};

/// The files at one point in time. Lines that are appended later to the active file are not read.
pub(super) struct Snapshot {
    pub(super) active: File,
    pub(super) length: u64,
    pub(super) files: ClosedFiles,
    /// How often the active file had been displaced when the snapshot was taken.
    pub(super) displacements: u64,
}

/// The result of comparing the files with the recorded state of a lane.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) position: Position,
    /// Events that are in the files and will be offered again.
    pub(super) held: BTreeSet<EventKey>,
}

impl Snapshot {
    /// Compares the files with the recorded state of a lane. Reads the newest file first.
    pub(super) fn compare(&self, recorded: &Recorded) -> Result<Comparison, SinkError> {
        let active = back(&self.active, self.length, &Search::new(recorded)).doing("reading", &self.files.active)?;
        let (newest, mut held, mut ended) = (active.newest, active.held, active.ended);
        for closed in self.closed(recorded.lane.channel.id)?.iter().rev() {
            if ended {
                break;
            }
            let mut search = Search::new(recorded);
            // Without a recorded line in the active file, a missing anchor does not prove a loss. The first recorded line
            // is enough.
            search.to_first_recorded |= newest.is_none();
            let searched = search_closed(&self.files, &closed.name, search);
            let searched = searched.doing("reading", &self.files.path(&closed.name, None))?;
            held.extend(searched.held);
            ended = searched.ended;
        }
        let Some(Confirmed { position, last }) = recorded.confirmed else {
            return Ok(Comparison { position: Position::At(recorded.through), held });
        };
        if let (Some(newest), Some(last), false) = (newest, last, ended) {
            // The last event may have been delivered late, so that its offset is the lower one.
            let position = last.offset.before().min(Some(newest.offset));
            tracing::warn!(channel = %recorded.lane.channel.name, path = %self.files.active.display(), missing = %last,
                newest = %newest, "file does not contain the event that was written last: it has lost lines");
            held.extend(self.above(recorded.lane.channel.id, position)?);
            return Ok(Comparison { position: Position::At(position), held });
        }
        Ok(Comparison { position: Position::At(position), held })
    }

    /// The position of a channel without state: the highest offset in the newest files that name the channel. The search
    /// ends at the first closed file that names the channel but has no higher offset.
    pub(super) fn position(&self, channel: ChannelId) -> Result<Position, SinkError> {
        let mut highest = None;
        let active = all_lines(&self.active, self.length);
        raise(&mut highest, active, channel).doing("reading", &self.files.active)?;
        for closed in self.closed(channel)?.iter().rev() {
            let (before, mut of_file) = (highest, None);
            self.read_closed(closed, |lines| raise(&mut of_file, lines, channel))?;
            highest = highest.max(of_file);
            if of_file.is_some() && highest == before {
                break;
            }
        }
        Ok(highest.map_or(Position::Untracked, |highest| Position::At(Some(highest))))
    }

    /// All events of a channel above an offset. Reads all files.
    fn above(&self, channel: ChannelId, position: Option<Offset>) -> Result<BTreeSet<EventKey>, SinkError> {
        let mut above = BTreeSet::new();
        let mut add = |lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>| -> io::Result<()> {
            for line in lines {
                let event = event_in(&line?).filter(|event| event.may_be_of(channel));
                above.extend(event.map(|event| event.key).filter(|key| Some(key.offset) > position));
            }
            Ok(())
        };
        add(&mut all_lines(&self.active, self.length)).doing("reading", &self.files.active)?;
        for closed in self.closed(channel)? {
            self.read_closed(&closed, &mut add)?;
        }
        Ok(above)
    }

    /// The closed files that may contain lines of a channel, the oldest first.
    fn closed(&self, channel: ChannelId) -> Result<Vec<Closed>, SinkError> {
        let index = Index::load(&self.files)?;
        let mut closed = self.files.list()?;
        closed.retain(|closed| index.may_hold(closed.time, channel));
        Ok(closed)
    }

    /// Reads a closed file. A file that was removed in the meantime has no lines.
    fn read_closed(
        &self,
        closed: &Closed,
        read: impl FnOnce(&mut dyn Iterator<Item = io::Result<Vec<u8>>>) -> io::Result<()>,
    ) -> Result<(), SinkError> {
        let reader = self.files.reader(&closed.name);
        let done = reader.and_then(|reader| reader.map_or(Ok(()), |reader| read(&mut lines(reader))));
        done.doing("reading", &self.files.path(&closed.name, None))
    }
}

/// Raises `highest` to the highest offset in lines that name the channel. Raw lines do not name it and are left out: they
/// may belong to an earlier channel.
fn raise(
    highest: &mut Option<Offset>,
    lines: impl Iterator<Item = io::Result<Vec<u8>>>,
    channel: ChannelId,
) -> io::Result<()> {
    for line in lines {
        let event = event_in(&line?).filter(|event| event.channel == Some(channel));
        *highest = (*highest).max(event.map(|event| event.key.offset));
    }
    Ok(())
}

/// Searches one file backward for the end of the recorded events.
#[derive(Clone)]
struct Search<'r> {
    recorded: &'r Recorded,
    /// Whether any recorded line ends the search. If not, only the anchor ends it.
    to_first_recorded: bool,
    /// The events that are not recorded, in the lines after the end.
    held: BTreeSet<EventKey>,
    /// The recorded event that was written last.
    newest: Option<EventKey>,
    ended: bool,
}

impl<'r> Search<'r> {
    fn new(recorded: &'r Recorded) -> Self {
        let to_first_recorded = recorded.confirmed.is_none();
        Self { recorded, to_first_recorded, held: BTreeSet::new(), newest: None, ended: false }
    }

    /// Reads lines in the order in which they were written.
    fn read(mut self, lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>) -> io::Result<Self> {
        let anchor = self.recorded.confirmed.and_then(|confirmed| confirmed.last);
        for line in lines {
            let event = event_in(&line?).filter(|event| event.may_be_of(self.recorded.lane.channel.id));
            let Some(key) = event.map(|event| event.key) else { continue };
            let is_recorded = self.recorded.covers(&key);
            if Some(key) == anchor || (is_recorded && self.to_first_recorded) {
                self.held.clear();
                self.ended = true;
            }
            if is_recorded {
                self.newest = Some(key);
            } else {
                self.held.insert(key);
            }
        }
        Ok(self)
    }
}

/// Searches a closed file. A file that was removed in the meantime has no lines.
fn search_closed<'r>(files: &ClosedFiles, name: &str, search: Search<'r>) -> io::Result<Search<'r>> {
    if let Some(plain) = if_there(File::open(files.path(name, None)))? {
        return back(&plain, plain.metadata()?.len(), &search);
    }
    match files.reader(name)? {
        Some(reader) => search.read(&mut lines(reader)),
        None => Ok(search),
    }
}

/// Searches the first `length` bytes of a file from their end, and reads no more than necessary.
fn back<'r>(file: &File, length: u64, search: &Search<'r>) -> io::Result<Search<'r>> {
    let mut searched = search.clone();
    look_back(file, length, |_, lines| {
        searched = search.clone().read(lines)?;
        Ok(searched.ended)
    })?;
    Ok(searched)
}
