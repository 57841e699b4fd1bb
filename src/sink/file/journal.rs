//! The files of a file sink, without a runtime: appending to the active one, closing it, and passing over what is there.
//!
//! # Invariants
//!
//! * **What is passed over is on the disk.** The active file is synced when it is opened, and before it is closed.
//! * **No event goes to a file that the path does not lead to.** Before each batch the path is looked up. A file that was
//!   deleted while a batch was written does not count as written.
//! * **A file is closed between two batches.** An empty file is never closed.
//! * **One clock.** The period of the open file is that in which this process began it. It is never read from the file's
//!   modification time, which the clock of a file server writes. After a start it is the time at which the newest of its last
//!   events was received; if the lines do not say that, it is the present period, and the file is closed one period later.
//! * **Nothing is appended to a file that another program has changed.** Before each batch the file's length is compared with
//!   the length after the last append. If it is another one, each lane that uses the file is told
//!   ([`SinkError::Displaced`]) until it has compared its position with the file ([`Journal::pass_over`]). The same is done if
//!   another file was moved to the path. There are two exceptions, which are normal: the path leads to no file or an empty
//!   one, because another program rotates, and a file that was emptied in place (`copytruncate`).
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

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::closed::ClosedFiles;
use super::lines::{ends, last_received};
use super::open_files::{Claim, OpenFiles};
use super::opening::{self, Doing, if_there, rename_new, sync_directory};
use super::read_back::Snapshot;
use super::settings::{FileSettings, Rotation};
use super::tail::{Tail, release};
use crate::SinkError;
use proof::event::{ChannelId, EventKey};
use record::Message;
use telemetry::metrics::{Upkeep, UpkeepFailures};

const LINE_BREAK: &[u8] = b"\n";

/// A file of lines that is appended to, opened when it is first used.
#[derive(Debug)]
pub(super) struct Journal {
    settings: FileSettings,
    open: OpenFiles,
    pub(super) failures: UpkeepFailures,
    active: Option<Active>,
    lanes: HashMap<ChannelId, JournalLane>,
    /// How often another program has changed or replaced the file.
    displacements: u64,
    /// What it did last.
    displaced_by: String,
    /// Notified when a file was opened: another one may have been closed.
    pub(super) opened: Arc<Notify>,
}

/// What the journal remembers of a channel.
#[derive(Debug)]
struct JournalLane {
    /// Events that the files hold already: skipped when they are offered.
    held: BTreeSet<EventKey>,
    /// The value of [`Journal::displacements`] when the lane last compared its position with the files.
    compared_at: u64,
}

/// The file at the path.
#[derive(Debug)]
struct Active {
    tail: Tail<fs::File>,
    identity: (u64, u64),
    /// The file's length as far as this process has written or read it.
    length: u64,
    /// When the file was begun, by the clock of this process.
    begun: Timestamp,
    files: ClosedFiles,
    _claim: Claim,
}

/// A file's device and its number there: which file it is, whatever its name.
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The length of a file, and when it was begun, as far as that is known.
fn extent(file: &fs::File, path: &Path) -> Result<(u64, Timestamp), SinkError> {
    let length = file.metadata().doing("looking at", path)?.len();
    let (now, received) = (Timestamp::now(), last_received(file, length).doing("reading", path)?);
    Ok((length, received.map_or(now, |received| received.min(now))))
}

impl Journal {
    pub(super) fn new(settings: FileSettings, open: OpenFiles, failures: UpkeepFailures) -> Self {
        let opened = Arc::default();
        let (lanes, displaced_by) = (HashMap::new(), String::new());
        Self { settings, open, failures, active: None, lanes, displacements: 0, displaced_by, opened }
    }

    /// Opens the file that stands at the path now, unless it is open.
    pub(super) fn open(&mut self) -> Result<(), SinkError> {
        self.active().map(drop)
    }

    fn active(&mut self) -> Result<&mut Active, SinkError> {
        let path = &*self.settings.path;
        if let Some(active) = &mut self.active {
            let there = if_there(fs::metadata(path)).doing("looking at", path)?;
            // What failed in a file that was moved away is offered again and must not be left there.
            let length = active.tail.settle().doing("cutting back", path)?;
            if there.as_ref().map(identity) != Some(active.identity) {
                tracing::info!(path = %path.display(), "file was moved or removed, going on in a new one");
                self.active = None;
            } else if length == 0 {
                active.length = 0;
            } else if length != active.length {
                let (than, expected) = (if length < active.length { "shorter" } else { "longer" }, active.length);
                self.displacements += 1;
                self.displaced_by = format!(
                    "file {} is {than} than what was written to it: {length} bytes instead of {expected}",
                    path.display()
                );
                opening::mend_lines(&active.tail.disk, path)?;
                (active.length, active.begun) = extent(&active.tail.disk, path)?;
            }
        }
        match &mut self.active {
            Some(active) => Ok(active),
            none => {
                let active = Active::open(&self.settings, &self.open)?;
                if active.length > 0 && !self.lanes.is_empty() {
                    self.displacements += 1;
                    self.displaced_by =
                        format!("file {} was replaced by another one that is not empty", path.display());
                }
                self.opened.notify_one();
                Ok(none.insert(active))
            }
        }
    }

    /// The files as they are now.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, SinkError> {
        let path = self.settings.path.clone();
        let Active { tail, files, length, .. } = self.active()?;
        let active = tail.disk.try_clone().doing("reading", &path)?;
        let (length, files) = (*length, files.clone());
        Ok(Snapshot { active, length, files, displacements: self.displacements })
    }

    /// Notes that a lane has compared its position with a snapshot, which was taken after so many displacements. These events
    /// of it are skipped when they are offered, each of them once.
    pub(super) fn pass_over(&mut self, channel: ChannelId, held: BTreeSet<EventKey>, compared_at: u64) {
        if !held.is_empty() {
            tracing::info!(channel_id = %channel, path = %self.settings.path.display(), events = held.len(),
                "file already holds events that are not recorded as delivered");
        }
        self.lanes.insert(channel, JournalLane { held, compared_at });
    }

    /// Appends a batch of a channel, less what is passed over, and syncs it.
    pub(super) fn append(&mut self, channel: ChannelId, batch: &[Message]) -> Result<(), SinkError> {
        let held =
            |message: &Message| self.lanes.get(&channel).is_some_and(|lane| lane.held.contains(&message.event_key()));
        let fresh = batch.iter().filter(|message| !held(message));
        let lines: Vec<_> = fresh.flat_map(|message| [message.body(), LINE_BREAK]).collect();
        let bytes = lines.iter().map(|piece| piece.len() as u64).sum();
        // The file is looked at even if all of them are skipped: it may have lost them.
        self.close_if_due(bytes)?;
        let compared_at = self.displacements;
        let lane = self.lanes.entry(channel).or_insert_with(|| JournalLane { held: BTreeSet::new(), compared_at });
        if lane.compared_at != self.displacements {
            return Err(SinkError::Displaced(self.displaced_by.clone()));
        }
        if let Some(active) = self.active.as_mut().filter(|_| !lines.is_empty()) {
            active.append(&lines, bytes).doing("appending to", &self.settings.path)?;
        }
        for message in batch {
            lane.held.remove(&message.event_key());
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
        let length = active.length;
        if !is_due(rotation, length, more, active.begun, Timestamp::now()) {
            return Ok(());
        }
        let file = &active.tail.disk;
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

impl Active {
    fn open(settings: &FileSettings, open: &OpenFiles) -> Result<Self, SinkError> {
        let file = opening::open(&settings.path, settings.access)?;
        let active = fs::canonicalize(&settings.path).doing("looking at", &settings.path)?;
        let identity = identity(&file.metadata().doing("looking at", &settings.path)?);
        let files = ClosedFiles { active, name: settings.closed_name() };
        let claim = open.claim(&files).doing("opening", &settings.path)?;
        let (length, begun) = extent(&file, &settings.path)?;
        Ok(Self { tail: Tail::new(file), identity, length, begun, files, _claim: claim })
    }

    /// Appends lines of so many bytes.
    fn append(&mut self, lines: &[&[u8]], bytes: u64) -> io::Result<()> {
        if self.length == 0 {
            self.begun = Timestamp::now();
        }
        let before = self.tail.append(lines)?;
        // Not the length that the file has now: what another program did meanwhile is noticed before the next batch.
        self.length += bytes;
        let metadata = self.tail.disk.metadata()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed meanwhile"));
        }
        release(&self.tail.disk, before..metadata.len());
        Ok(())
    }
}

/// Whether a file of this length, which was begun at `begun`, is to be closed before so many bytes more.
fn is_due(rotation: &Rotation, length: u64, more: u64, begun: Timestamp, now: Timestamp) -> bool {
    let too_long = more > 0 && rotation.size.is_some_and(|size| length.saturating_add(more) > size);
    length > 0 && (too_long || rotation.period(now) > rotation.period(begun))
}

#[cfg(test)]
mod tests;
