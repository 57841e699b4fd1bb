//! The files of a file sink, without a runtime: appending to the active one, closing it, and passing over what is there.
//!
//! # Invariants
//!
//! * **What is passed over is on the disk.** The active file is synced when it is opened, and before it is closed.
//! * **No event goes to a file that the path does not lead to.** Before each batch the path is looked up. A file that was
//!   deleted while a batch was written does not count as written.
//! * **A file is closed between two batches.** An empty file is never closed.
//!
//! A crash may come between any two steps of closing, and leaves:
//!
//! 1. What a failed batch left is cut off, and the file is synced. *Then a crash:* the active file, as without rotation.
//! 2. The file is renamed, onto nothing. *Then:* no active file. After a power loss the file has one of the two names.
//! 3. The directory is synced. Nothing new is made under the old name before the new one is durable, or the whole file
//!    could be left without a name. *Then:* no active file; the next start makes one.
//! 4. The new active file is made, given its owner and mode, locked, and the directory synced again. *Then:* an empty
//!    active file. Lines that are not recorded stand in the file closed last, where the next start finds them.
//!
//! Should step 4 fail, there is no active file, and the next batch begins with it.
//!
//! After a power loss some file systems show a hole (zeros) in front of lines that did reach the disk. Whole lines
//! behind it are kept, and so the hole stays, as one line that does not parse. The event that was there is delivered
//! again, after them. Nothing is lost and nothing is there twice.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use super::closed::ClosedFiles;
use super::lines::ends;
use super::open_files::{Claim, OpenFiles};
use super::opening::{self, Doing, if_there, rename_new, sync_directory};
use super::read_back::{Snapshot, Unrecorded};
use super::settings::{FileSettings, Rotation};
use super::tail::{Tail, release};
use crate::event::ChannelId;
use crate::metrics::{Upkeep, UpkeepFailures};
use crate::record::Message;
use crate::sink::SinkError;

const LINE_BREAK: &[u8] = b"\n";

/// A file of lines that is appended to, opened when it is first used.
#[derive(Debug)]
pub(super) struct Journal {
    settings: FileSettings,
    open: OpenFiles,
    pub(super) failures: UpkeepFailures,
    active: Option<Active>,
    /// What files hold though it is not recorded: passed over when it is offered.
    unrecorded: HashMap<ChannelId, Unrecorded>,
    /// Notified when a file was opened: another one may have been closed.
    pub(super) opened: Arc<Notify>,
}

/// The file at the path.
#[derive(Debug)]
struct Active {
    tail: Tail<fs::File>,
    identity: (u64, u64),
    files: ClosedFiles,
    _claim: Claim,
}

/// A file's device and its number there: which file it is, whatever its name.
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Journal {
    pub(super) fn new(settings: FileSettings, open: OpenFiles, failures: UpkeepFailures) -> Self {
        Self { settings, open, failures, active: None, unrecorded: HashMap::new(), opened: Arc::default() }
    }

    /// Opens the file that stands at the path now, unless it is open.
    pub(super) fn open(&mut self) -> Result<(), SinkError> {
        self.active().map(drop)
    }

    fn active(&mut self) -> Result<&mut Active, SinkError> {
        let path = &*self.settings.path;
        if let Some(active) = &mut self.active {
            let there = if_there(fs::metadata(path)).doing("looking at", path)?;
            if there.as_ref().map(identity) != Some(active.identity) {
                // What failed in the file that was moved away is offered again and must not be left there.
                active.tail.settle().doing("cutting back what was moved away from", path)?;
                tracing::info!(path = %path.display(), "file was moved or removed, going on in a new one");
                self.active = None;
            }
        }
        match &mut self.active {
            Some(active) => Ok(active),
            none => {
                let active = Active::open(&self.settings, &self.open)?;
                self.opened.notify_one();
                Ok(none.insert(active))
            }
        }
    }

    /// The files as they are now.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, SinkError> {
        let path = self.settings.path.clone();
        let Active { tail, files, .. } = self.active()?;
        let length = tail.settle().doing("cutting back", &path)?;
        let active = tail.disk.try_clone().doing("reading", &path)?;
        Ok(Snapshot { active, length, files: files.clone() })
    }

    /// Passes over these events of a channel when they are offered, each of them once.
    pub(super) fn pass_over(&mut self, channel: ChannelId, unrecorded: Unrecorded) {
        if !unrecorded.is_empty() {
            tracing::info!(channel_id = %channel, path = %self.settings.path.display(), events = unrecorded.len(),
                "file already holds events that are not recorded as delivered");
        }
        self.unrecorded.insert(channel, unrecorded);
    }

    /// Appends a batch of a channel, less what is passed over, and syncs it.
    pub(super) fn append(&mut self, channel: ChannelId, batch: &[Message]) -> Result<(), SinkError> {
        let unrecorded = self.unrecorded.entry(channel).or_default();
        let fresh = batch.iter().filter(|message| !holds(unrecorded, message));
        let lines: Vec<_> = fresh.flat_map(|message| [message.body(), LINE_BREAK]).collect();
        if !lines.is_empty() {
            self.close_if_due(lines.iter().map(|piece| piece.len() as u64).sum())?;
            let appended = self.active()?.append(&lines);
            appended.doing("appending to", &self.settings.path)?;
        }
        let unrecorded = self.unrecorded.entry(channel).or_default();
        for message in batch {
            unrecorded.remove(&message.offset());
        }
        Ok(())
    }

    /// Closes the file if its time has come without a batch. `None` where none is open.
    pub(super) fn close_by_the_clock(&mut self) -> Result<Option<ClosedFiles>, SinkError> {
        if self.active.is_some() {
            self.close_if_due(0)?;
        }
        Ok(self.active.as_ref().map(|active| active.files.clone()))
    }

    /// Closes the file if it is to be closed before so many bytes more, and begins the next one.
    fn close_if_due(&mut self, more: u64) -> Result<(), SinkError> {
        self.open()?;
        let (Some(rotation), Some(active)) = (&self.settings.rotation, &mut self.active) else { return Ok(()) };
        let path = &*self.settings.path;
        let length = active.tail.settle().doing("cutting back", path)?;
        let file = &active.tail.disk;
        let written = file.metadata().and_then(|metadata| metadata.modified()).doing("looking at", path)?;
        if !is_due(rotation, length, more, written, SystemTime::now()) {
            return Ok(());
        }
        let ends = file.sync_data().and_then(|()| ends(file, length));
        let (first, last) = ends.doing("closing", path)?;
        let closed = active.files.next(first, last).and_then(|closed| {
            let renamed = rename_new(&active.files.active, &closed).and_then(|()| sync_directory(&closed));
            renamed.doing("closing", path).map(|()| closed)
        });
        let closed = closed.inspect_err(|_| self.failures.count(Upkeep::Rotate))?;
        self.active = None;
        self.open()?;
        tracing::info!(path = %closed.display(), bytes = length, "file closed, going on in a new one");
        Ok(())
    }
}

/// Whether this very event is among them.
fn holds(unrecorded: &Unrecorded, message: &Message) -> bool {
    let found = unrecorded.get(&message.offset());
    found.is_some_and(|id| id.is_none_or(|id| message.key() == id.to_string()))
}

impl Active {
    fn open(settings: &FileSettings, open: &OpenFiles) -> Result<Self, SinkError> {
        let file = opening::open(&settings.path, settings.access)?;
        let active = fs::canonicalize(&settings.path).doing("looking at", &settings.path)?;
        let identity = identity(&file.metadata().doing("looking at", &settings.path)?);
        let files = ClosedFiles { active, name: settings.closed_name() };
        let claim = open.claim(&files).doing("opening", &settings.path)?;
        Ok(Self { tail: Tail::new(file), identity, files, _claim: claim })
    }

    fn append(&mut self, lines: &[&[u8]]) -> io::Result<()> {
        let before = self.tail.append(lines)?;
        let metadata = self.tail.disk.metadata()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed meanwhile"));
        }
        release(&self.tail.disk, before..metadata.len());
        Ok(())
    }
}

/// Whether a file of this length, last written to at `written`, is to be closed before so many bytes more.
fn is_due(rotation: &Rotation, length: u64, more: u64, written: SystemTime, now: SystemTime) -> bool {
    let too_long = more > 0 && rotation.size.is_some_and(|size| length.saturating_add(more) > size);
    length > 0 && (too_long || rotation.every.is_some_and(|every| period(now, every) > period(written, every)))
}

/// How many times `every` has passed since 1970, and so since the beginning of the day in UTC.
fn period(at: SystemTime, every: Duration) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / every.as_secs().max(1)
}

#[cfg(test)]
mod tests;
