//! The file of a file sink, without a runtime: opening and mending it, finding what it holds, appending to it.
//!
//! # Invariants
//!
//! * **Only remains are cut.** A lane delivers, syncs, records, and only then goes on, and batches do not overlap: all
//!   that anybody has recorded lies before the first byte that a crash can have torn. Lines that parse are never cut:
//!   even behind torn ones they may be somebody's.
//! * **What is passed over is on the disk.** A process that was killed may leave lines that were never synced; they are
//!   synced at opening, before a lane can be told that they are there. Files were synced before they were closed.
//! * **No event goes to a file that nobody can find.** Before each batch the path is looked up, and if another file (or
//!   none) stands there, the sink goes on in that one. A file that was deleted while a batch was written does not count
//!   as written.
//! * **What was closed is looked through too.** A lane that is stopped for long, in a file of several, may find its lines
//!   many files back: the search goes on, the newest file first, until it meets a line of the channel that is recorded. A
//!   compressed file is read through the decompressor. What retention has deleted is not there any more, and is not
//!   there twice.
//!
//! After a power loss some file systems show a hole (zeros) in front of lines that did reach the disk. Whole lines
//! behind it are kept, and so the hole stays, as one line that does not parse; the event that was there is delivered
//! again, after them. Nothing is lost and nothing is there twice.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::Notify;

use super::cache;
use super::closed::{Closed, Shelf};
use super::finding::{Goes, Search, Unrecorded};
use super::index::Index;
use super::lines::{Backwards, Content, Line};
use super::name::Stamp;
use super::opening::{self, Identity, failed};
use super::rotation;
use super::settings::FileSettings;
use super::tail::{Disk, Tail};
use crate::event::ChannelId;
use crate::record::Message;
use crate::sink::{Recorded, SinkError};

/// A file of lines that is appended to.
#[derive(Debug)]
pub(super) struct Journal {
    settings: FileSettings,
    open: Open,
    /// What files hold though no lane has recorded it.
    passed_over: HashMap<ChannelId, Unrecorded>,
    /// When a file was closed last, by us.
    closed_last: Option<Stamp>,
    /// Told when there is something to look after.
    rotated: Arc<Notify>,
}

const LINE_BREAK: &[u8] = b"\n";

/// The file at the path, as long as it stands there.
#[derive(Debug)]
struct Open {
    tail: Tail<fs::File>,
    identity: Identity,
    /// The file itself, whatever links lead to it.
    real: PathBuf,
    shelf: Shelf,
    /// Whether the last line lacks its line break, though it is whole.
    unended: bool,
    /// When somebody last wrote to it.
    written: SystemTime,
}

/// What files held at some moment. Lines that are appended later do not show.
pub(super) struct Written {
    file: fs::File,
    length: u64,
    path: PathBuf,
    shelf: Shelf,
    /// The oldest first.
    closed: Vec<Closed>,
}

impl Journal {
    /// Opens or creates the file, and mends its end. `rotated` is told then, and whenever a file was closed.
    pub(super) fn open(settings: FileSettings, rotated: Arc<Notify>) -> Result<Self, SinkError> {
        let open = Open::at(&settings)?;
        rotated.notify_one();
        Ok(Self { settings, open, passed_over: HashMap::new(), closed_last: None, rotated })
    }

    /// What the files hold now.
    pub(super) fn written(&mut self) -> Result<Written, SinkError> {
        self.follow_path()?;
        let path = self.settings.path.clone();
        let length = self.open.tail.settle().map_err(failed("cutting back", &path))?;
        let file = self.open.tail.disk().try_clone().map_err(failed("reading", &path))?;
        let shelf = self.open.shelf.clone();
        let closed = shelf.look().map_err(failed("reading", shelf.directory()))?.closed;
        Ok(Written { file, length, path, shelf, closed })
    }

    /// Passes over these events of a channel when they are offered, each of them once.
    pub(super) fn pass_over(&mut self, channel: ChannelId, unrecorded: Unrecorded) {
        if !unrecorded.is_empty() {
            tracing::info!(channel_id = %channel, path = %self.settings.path.display(), events = unrecorded.len(),
                "file already holds events that are not recorded as delivered");
        }
        self.passed_over.insert(channel, unrecorded);
    }

    /// Appends a batch of a channel, less what is passed over, and syncs it.
    pub(super) fn append(&mut self, channel: ChannelId, batch: &[Message]) -> Result<(), SinkError> {
        self.follow_path()?;
        let mut passed_over = self.passed_over.remove(&channel).unwrap_or_default();
        let fresh = batch.iter().filter(|message| !passed_over.has(message));
        let lines: Vec<_> = fresh.flat_map(|message| [message.body(), LINE_BREAK]).collect();
        let appended = if lines.is_empty() { Ok(()) } else { self.write(&lines) };
        if appended.is_ok() {
            for message in batch {
                passed_over.settle(message.offset());
            }
        }
        self.passed_over.insert(channel, passed_over);
        appended
    }

    /// Closes the file if its time has come without a batch. Gives where closed files stand.
    pub(super) fn by_the_clock(&mut self) -> Result<Option<Shelf>, SinkError> {
        self.follow_path()?;
        self.make_room(0)?;
        Ok(Some(self.open.shelf.clone()))
    }

    fn write(&mut self, lines: &[&[u8]]) -> Result<(), SinkError> {
        self.make_room(lines.iter().map(|piece| piece.len() as u64).sum())?;
        self.open.append(lines).map_err(failed("appending to", &self.settings.path))
    }

    /// Closes the file if it is to be closed before so many bytes more, and begins the next one.
    fn make_room(&mut self, bytes: u64) -> Result<(), SinkError> {
        let (path, open) = (&*self.settings.path, &mut self.open);
        let Some(rotation) = &self.settings.rotation else { return Ok(()) };
        let length = open.tail.settle().map_err(failed("cutting back", path))?;
        if !rotation::is_due(rotation, length, bytes, open.written, SystemTime::now()) {
            return Ok(());
        }
        let closed = rotation::close(&mut open.tail, open.unended, &open.real, &open.shelf, self.closed_last);
        let (closed, stamp) = closed.map_err(failed("closing", path))?;
        self.closed_last = Some(stamp);
        self.open = Open::at(&self.settings)?;
        tracing::info!(path = %closed.display(), bytes = length, "file closed, going on in a new one");
        self.rotated.notify_one();
        Ok(())
    }

    pub(super) fn follow_path(&mut self) -> Result<(), SinkError> {
        let path = &*self.settings.path;
        if Identity::at(path)? == Some(self.open.identity) {
            return Ok(());
        }
        // What failed in the file that was moved away is offered again and must not be left there.
        self.open.tail.settle().map_err(failed("cutting back what was moved away from", path))?;
        self.open = Open::at(&self.settings)?;
        tracing::info!(path = %path.display(), "file was moved or removed, going on in a new one");
        self.rotated.notify_one();
        Ok(())
    }
}

impl Open {
    fn at(settings: &FileSettings) -> Result<Self, SinkError> {
        let path = &*settings.path;
        let (file, identity) = opening::open(settings)?;
        let real = fs::canonicalize(path).map_err(failed("looking at", path))?;
        let shelf = Shelf::beside(&real, settings.closed_name()).map_err(failed("looking at", path))?;
        let written = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed("looking at", path))?;
        let unended = mend(&file, path).map_err(failed("mending the end of", path))?;
        file.sync_data().map_err(failed("syncing", path))?;
        Ok(Self { tail: Tail::new(file), identity, real, shelf, unended, written })
    }

    fn append(&mut self, lines: &[&[u8]]) -> io::Result<()> {
        let before =
            if self.unended { self.tail.append(&[&[LINE_BREAK], lines].concat())? } else { self.tail.append(lines)? };
        self.unended = false;
        let metadata = self.tail.disk().metadata()?;
        self.written = metadata.modified()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed meanwhile"));
        }
        cache::let_go(self.tail.disk(), before..metadata.len());
        Ok(())
    }
}

impl Written {
    /// A channel's events that are not recorded as delivered.
    pub(super) fn unrecorded(&self, recorded: &Recorded) -> Result<Unrecorded, SinkError> {
        let mut search = Search::new(recorded);
        let mut goes = search.backwards(&self.file, self.length).map_err(failed("reading", &self.path))?;
        let index = Index::load(&self.shelf).map_err(failed("reading", &self.shelf.index()))?;
        let channel = recorded.channel.id;
        for closed in self.closed.iter().rev().filter(|closed| index.may_hold(closed.stamp, channel)) {
            if goes == Goes::NoFurther {
                break;
            }
            let path = self.shelf.path(&closed.name);
            goes = self.shelf.search(&closed.name, &mut search).map_err(failed("reading", &path))?;
        }
        Ok(search.found())
    }
}

/// Cuts off what a crash has left at the end. Says whether the last line then lacks its line break.
fn mend(file: &fs::File, path: &Path) -> io::Result<bool> {
    let length = file.length()?;
    let mut lines = Backwards::new(file, length);
    let (mut end, mut unended) = (length, false);
    while let Some(Line { start, bytes, ended }) = lines.next()? {
        if Content::of(&bytes) != Content::Remains {
            unended = !ended;
            break;
        }
        end = start;
    }
    if end < length {
        tracing::warn!(path = %path.display(), bytes = length - end, "cutting off what a crash left of a batch");
        file.cut(end)?;
    }
    Ok(unended)
}

#[cfg(test)]
mod tests;
