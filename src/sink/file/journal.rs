//! The file of a file sink, without a runtime: opening and mending it, finding what it holds, appending to it.
//!
//! # Invariants
//!
//! * **Only remains are cut.** A lane delivers, syncs, records, and only then goes on, and batches do not overlap: all
//!   that anybody has recorded lies before the first byte that a crash can have torn. Lines that parse are never cut:
//!   even behind torn ones they may be somebody's.
//! * **What is passed over is on the disk.** A process that was killed may leave lines that were never synced; they are
//!   synced at opening, before a lane can be told that they are there.
//! * **No event goes to a file that nobody can find.** Before each batch the path is looked up, and if another file (or
//!   none) stands there, the sink goes on in that one. A file that was deleted while a batch was written does not count
//!   as written.
//!
//! After a power loss some file systems show a hole (zeros) in front of lines that did reach the disk. Whole lines
//! behind it are kept, and so the hole stays, as one line that does not parse; the event that was there is delivered
//! again, after them. Nothing is lost and nothing is there twice.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::lines::{Backwards, Content, Line};
use super::opening::{self, Identity, failed};
use super::tail::{Disk, Tail};
use crate::event::{ChannelId, Offset};
use crate::record::Message;
use crate::sink::{Recorded, SinkError};

/// A file of lines that is appended to.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    open: Open,
    /// What the file holds though no lane has recorded it.
    passed_over: HashMap<ChannelId, BTreeSet<Offset>>,
}

/// The file at the path, as long as it stands there.
#[derive(Debug)]
struct Open {
    tail: Tail<fs::File>,
    identity: Identity,
    /// Whether the last line lacks its line break, though it is whole.
    unended: bool,
}

/// What a file held at some moment. Lines that are appended later do not show.
pub(super) struct Written {
    file: fs::File,
    length: u64,
    path: PathBuf,
}

impl Journal {
    /// Opens or creates the file, and mends its end.
    pub(super) fn open(path: PathBuf) -> Result<Self, SinkError> {
        let open = Open::at(&path)?;
        Ok(Self { path, open, passed_over: HashMap::new() })
    }

    /// What the file holds now.
    pub(super) fn written(&mut self) -> Result<Written, SinkError> {
        self.follow_path()?;
        let length = self.open.tail.settle().map_err(failed("cutting back", &self.path))?;
        let file = self.open.tail.disk().try_clone().map_err(failed("reading", &self.path))?;
        Ok(Written { file, length, path: self.path.clone() })
    }

    /// Passes over these events of a channel when they are offered, each of them once.
    pub(super) fn pass_over(&mut self, channel: ChannelId, offsets: BTreeSet<Offset>) {
        if !offsets.is_empty() {
            tracing::info!(channel_id = %channel, path = %self.path.display(), events = offsets.len(),
                "file already holds events that are not recorded as delivered");
        }
        self.passed_over.insert(channel, offsets);
    }

    /// Appends a batch of a channel, less what is passed over, and syncs it.
    pub(super) fn append(&mut self, channel: ChannelId, batch: &[Message]) -> Result<(), SinkError> {
        self.follow_path()?;
        let passed_over = self.passed_over.entry(channel).or_default();
        let fresh = batch.iter().filter(|record| !passed_over.contains(&record.offset()));
        let lines = coalesce(self.open.unended, fresh);
        if !lines.is_empty() {
            self.open.append(&lines).map_err(failed("appending to", &self.path))?;
        }
        for record in batch {
            passed_over.remove(&record.offset());
        }
        Ok(())
    }

    fn follow_path(&mut self) -> Result<(), SinkError> {
        if Identity::at(&self.path)? == Some(self.open.identity) {
            return Ok(());
        }
        // What failed in the file that was moved away is offered again and must not be left there.
        self.open.tail.settle().map_err(failed("cutting back what was moved away from", &self.path))?;
        self.open = Open::at(&self.path)?;
        tracing::info!(path = %self.path.display(), "file was moved or removed, going on in a new one");
        Ok(())
    }
}

impl Open {
    fn at(path: &Path) -> Result<Self, SinkError> {
        let (file, identity) = opening::open(path)?;
        let unended = mend(&file, path).map_err(failed("mending the end of", path))?;
        file.sync_data().map_err(failed("syncing", path))?;
        Ok(Self { tail: Tail::new(file), identity, unended })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.tail.append(lines)?;
        self.unended = false;
        if self.tail.disk().metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed meanwhile"));
        }
        Ok(())
    }
}

impl Written {
    /// The offsets of a channel's lines that are not recorded as delivered.
    ///
    /// Reads backwards to the last line of the channel that is recorded: a lane appends in order and records each batch
    /// before the next, so that all of its earlier lines are recorded too.
    pub(super) fn unrecorded(&self, recorded: &Recorded) -> Result<BTreeSet<Offset>, SinkError> {
        let mut lines = Backwards::new(&self.file, self.length);
        let mut found = BTreeSet::new();
        while let Some(line) = lines.next().map_err(failed("reading", &self.path))? {
            match Content::of(&line.bytes) {
                Content::Record(place) if place.channel_id != recorded.channel.id => {}
                Content::Record(place) if recorded.covers(place.offset) => break,
                Content::Record(place) => drop(found.insert(place.offset)),
                Content::Foreign | Content::Remains => {}
            }
        }
        Ok(found)
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

/// The lines of a batch as one run of bytes.
fn coalesce<'a>(unended: bool, records: impl Iterator<Item = &'a Message>) -> Vec<u8> {
    let mut lines = if unended { vec![b'\n'] } else { Vec::new() };
    for record in records {
        lines.extend_from_slice(record.body());
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests;
