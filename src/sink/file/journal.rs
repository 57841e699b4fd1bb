//! The files of a file sink, without an async runtime: appends to the active file, closes it, and skips events that the
//! files already contain.
//!
//! # Invariants
//!
//! * **A skipped event is on the disk.** The active file is synced when it is opened, and before it is closed.
//! * **No event is written to a file that the path does not lead to.** Before each batch the path is looked up. If the file
//!   was deleted while a batch was written, the batch does not count as written.
//! * **A file is closed only between two batches.** An empty file is never closed.
//! * **One clock.** The period of the open file is the period in which this process began the file. It is never derived
//!   from the modification time, which may come from the clock of a file server. After a start, the period is derived from
//!   the time when the newest of the last events was received. If the last lines do not contain this time, the current
//!   period is used.
//! * **Nothing is appended to a file that another program has changed.** If the file's length differs from the length after
//!   the last append, or if another file is at the path, each lane gets [`SinkError::Displaced`] until it has compared its
//!   position with the file ([`Journal::pass_over`]). An absent or empty file does not count as changed: another program
//!   has rotated it.
//!
//! A file is closed in these steps. For each step, the state after a crash is listed:
//!
//! 1. The remains of a failed batch are cut off, and the file is synced. *After a crash:* the active file exists, as
//!    without rotation.
//! 2. The file is renamed to a name that does not exist. *After a crash:* no active file exists. After a power loss the
//!    file has one of the two names.
//! 3. The directory is synced. No new file is created under the old name before the new name is durable. Otherwise the
//!    whole file could lose its name. *After a crash:* no active file exists, and the next start creates one.
//! 4. The new active file is created, its owner and mode are set, it is locked, and the directory is synced again. *After a
//!    crash:* the active file is empty. Lines that are not recorded are in the file that was closed last. The next start
//!    finds these lines there.
//!
//! If the file cannot be renamed, the sink continues in it, and tries again before the next batch. If step 4 fails, no active
//! file exists, and the next batch begins with this step.
//!
//! After a power loss, a file may contain a hole (zeros) before lines that did reach the disk. These lines are kept, so the
//! hole also stays, as one line that does not parse. The event that was in the place of the hole is delivered again, after
//! these lines. No event is lost, and no event is in the file twice.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::append::{Appender, release};
use super::closed::ClosedFiles;
use super::closed::index::Index;
use super::lines::{ends, last_received};
use super::opening;
use super::read_back::Snapshot;
use super::settings::{FileSettings, OpenFiles, Rotation};
use crate::SinkError;
use crate::system::{Identity, IoContext, identity, if_there, rename_new, sync_directory};
use net::Chain;
use proof::event::{ChannelId, EventKey};
use record::Message;
use telemetry::metrics::{Upkeep, UpkeepFailures};

const LINE_BREAK: &[u8] = b"\n";

/// Appends lines to a file. The file is opened on the first use.
#[derive(Debug)]
pub(super) struct Journal {
    settings: FileSettings,
    open: OpenFiles,
    pub(super) failures: UpkeepFailures,
    active: Option<Active>,
    lanes: HashMap<ChannelId, JournalLane>,
    /// Whether a file was open before. A lane may still compare its position with that file.
    was_open: bool,
    displacements: Displacements,
    /// Notified when a file was opened, because another one may have been closed.
    pub(super) opened: Arc<Notify>,
}

/// How often another program has changed or replaced the file, and the reason of the last time.
#[derive(Debug, Default)]
struct Displacements {
    count: watch::Sender<u64>,
    reason: String,
}

impl Displacements {
    fn note(&mut self, reason: String) {
        self.reason = reason;
        self.count.send_modify(|count| *count += 1);
    }
}

/// A file that another program has changed or put at the path, and its length.
pub(super) type OtherFile = (Identity, u64);

#[derive(Debug)]
struct JournalLane {
    /// Events that the files already contain. They are skipped when they are offered.
    held: BTreeSet<EventKey>,
    /// The number of [`Displacements`] when the lane last compared its position with the files.
    compared_at: u64,
}

#[derive(Debug)]
struct Active {
    appender: Appender<fs::File>,
    identity: Identity,
    /// The file's length after this process last appended to it or checked it.
    length: u64,
    /// When the file was begun, according to the clock of this process.
    begun: Timestamp,
    /// Whether the file was due to be closed and could not be renamed.
    is_overdue: bool,
    /// The file counts as open until the last clone of this `Arc` is dropped. Therefore this `Arc` is never cloned.
    files: Arc<ClosedFiles>,
}

/// The length of a file, and when it was begun. The begin is the time when the newest of its last events was received, or
/// the current time if the lines do not contain this time.
fn extent(file: &fs::File, path: &Path) -> Result<(u64, Timestamp), SinkError> {
    let length = file.metadata().doing("examining", path)?.len();
    let (now, received) = (Timestamp::now(), last_received(file, length).doing("reading", path)?);
    Ok((length, received.map_or(now, |received| received.min(now))))
}

impl Journal {
    pub(super) fn new(settings: FileSettings, open: OpenFiles, failures: UpkeepFailures) -> Self {
        let (lanes, displacements, opened) = (HashMap::new(), Displacements::default(), Arc::default());
        Self { settings, open, failures, active: None, lanes, was_open: false, displacements, opened }
    }

    /// Opens the file that is at the path now, unless it is already open.
    pub(super) fn open(&mut self) -> Result<(), SinkError> {
        self.active().map(drop)
    }

    fn active(&mut self) -> Result<&mut Active, SinkError> {
        let path = &*self.settings.path;
        if let Some(active) = &mut self.active {
            let there = if_there(fs::metadata(path)).doing("examining", path)?;
            // A failed batch is offered again. The remains of its lines must not stay in the file, even if the file was moved.
            let length = active.appender.settle().doing("truncating", path)?;
            if there.as_ref().map(identity) != Some(active.identity) {
                tracing::info!(path = %path.display(), "file was moved or removed: continuing in a new one");
                self.active = None;
            } else if length == 0 {
                active.length = 0;
            } else if length != active.length {
                let (than, expected) = (if length < active.length { "shorter" } else { "longer" }, active.length);
                self.displacements.note(format!(
                    "file {} is {than} than its recorded length: {length} bytes instead of {expected}",
                    path.display()
                ));
                opening::mend_lines(&active.appender.disk, path)?;
                (active.length, active.begun) = extent(&active.appender.disk, path)?;
            }
        }
        match &mut self.active {
            Some(active) => Ok(active),
            none => {
                let active = Active::open(&self.settings, &self.open)?;
                if active.length > 0 && self.was_open {
                    let reason = format!("file {} was replaced by another one that is not empty", path.display());
                    self.displacements.note(reason);
                }
                self.was_open = true;
                self.opened.notify_one();
                Ok(none.insert(active))
            }
        }
    }

    /// The file at the path, if another program has changed or replaced the file since the last batch. An absent or empty file
    /// was rotated.
    fn other_file(&self) -> Option<OtherFile> {
        let active = self.active.as_ref()?;
        let there = fs::metadata(&self.settings.path).ok().filter(|there| there.len() > 0)?;
        let there = (identity(&there), there.len());
        (there != (active.identity, active.length)).then_some(there)
    }

    /// Looks at the file between two batches. Another file counts only if the previous look has found the same one, because a
    /// program may still be copying it. Returns this file.
    pub(super) fn look(&mut self, before: Option<OtherFile>) -> Option<OtherFile> {
        let other = self.other_file();
        if other.is_some()
            && other == before
            && let Err(error) = self.open()
        {
            // Each lane gets this error when it compares its position.
            self.displacements.note(Chain(&error).to_string());
        }
        other
    }

    /// Returns the number of displacements when a lane last compared its position, and the current number. `None` for a lane that
    /// has not compared its position yet.
    pub(super) fn compared(&self, channel: ChannelId) -> Option<(u64, watch::Receiver<u64>)> {
        let lane = self.lanes.get(&channel)?;
        Some((lane.compared_at, self.displacements.count.subscribe()))
    }

    pub(super) fn snapshot(&mut self) -> Result<Snapshot, SinkError> {
        let path = self.settings.path.clone();
        let Active { appender, files, length, .. } = self.active()?;
        let active = appender.disk.try_clone().doing("reading", &path)?;
        let (length, files) = (*length, ClosedFiles::clone(files));
        Ok(Snapshot { active, length, files, displacements: *self.displacements.count.borrow() })
    }

    /// Records that a lane has compared its position with a snapshot that was taken after `compared_at` displacements. Each
    /// event in `held` is skipped once, when it is offered.
    pub(super) fn pass_over(&mut self, channel: ChannelId, held: Vec<EventKey>, compared_at: u64) {
        if !held.is_empty() {
            tracing::info!(channel_id = %channel, path = %self.settings.path.display(), events = held.len(),
                "file already holds events that are not recorded as delivered");
        }
        self.lanes.insert(channel, JournalLane { held: held.into_iter().collect(), compared_at });
    }

    /// Appends a batch of a channel and syncs it. Events that the files already contain are skipped.
    pub(super) fn append(&mut self, channel: ChannelId, batch: &[Message]) -> Result<(), SinkError> {
        let held =
            |message: &Message| self.lanes.get(&channel).is_some_and(|lane| lane.held.contains(&message.event_key()));
        let fresh = batch.iter().filter(|message| !held(message));
        let lines: Vec<_> = fresh.flat_map(|message| [message.body(), LINE_BREAK]).collect();
        let bytes = lines.iter().map(|piece| piece.len() as u64).sum();
        // The file is checked even if all events are skipped, because the file may have lost these events.
        self.close_if_due(bytes)?;
        let compared_at = *self.displacements.count.borrow();
        let lane = self.lanes.entry(channel).or_insert_with(|| JournalLane { held: BTreeSet::new(), compared_at });
        if lane.compared_at != compared_at {
            return Err(SinkError::Displaced(self.displacements.reason.clone()));
        }
        if let Some(active) = self.active.as_mut().filter(|_| !lines.is_empty()) {
            active.append(&lines, bytes).doing("appending to", &self.settings.path)?;
        }
        for message in batch {
            lane.held.remove(&message.event_key());
        }
        Ok(())
    }

    /// Closes the file if its period has ended, even if no batch arrives. Returns `None` if no file is open.
    pub(super) fn close_by_the_clock(&mut self) -> Result<Option<ClosedFiles>, SinkError> {
        if self.active.is_some() {
            self.close_if_due(0)?;
        }
        Ok(self.active.as_ref().map(|active| ClosedFiles::clone(&active.files)))
    }

    /// Closes the file if the rotation requires it before `more` bytes are appended, and begins the next file.
    fn close_if_due(&mut self, more: u64) -> Result<(), SinkError> {
        self.open()?;
        let (Some(rotation), Some(active)) = (&self.settings.rotation, &mut self.active) else { return Ok(()) };
        let path = &*self.settings.path;
        let length = active.length;
        let now = Timestamp::now();
        // The clock was ahead when the file was begun.
        active.begun = active.begun.min(now);
        if !is_due(rotation, length, more, active.begun, now) {
            return Ok(());
        }
        let file = &active.appender.disk;
        let ends = file.sync_data().and_then(|()| ends(file, length));
        let (first, last) = ends.doing("closing", path)?;
        let renamed = Index::next_path(&active.files, first, last)
            .and_then(|closed| rename_new(&active.files.active, &closed).doing("closing", path).map(|()| closed));
        let closed = match renamed {
            Ok(closed) => closed,
            Err(error) => {
                self.failures.count(Upkeep::Rotate);
                if !std::mem::replace(&mut active.is_overdue, true) {
                    tracing::warn!(path = %path.display(), error = %Chain(&error),
                        "file cannot be closed: continuing in it and trying again, events are not affected");
                }
                // Another program may have moved the file.
                return self.open();
            }
        };
        sync_directory(&closed).doing("closing", path).inspect_err(|_| self.failures.count(Upkeep::Rotate))?;
        self.active = None;
        self.open()?;
        tracing::info!(path = %closed.display(), bytes = length, "file closed: continuing in a new one");
        Ok(())
    }
}

impl Active {
    fn open(settings: &FileSettings, open: &OpenFiles) -> Result<Self, SinkError> {
        let file = opening::open(&settings.path, settings.access)?;
        let active = fs::canonicalize(&settings.path).doing("examining", &settings.path)?;
        let identity = identity(&file.metadata().doing("examining", &settings.path)?);
        let files = open.claim(ClosedFiles { active, name: settings.closed_name() });
        let files = files.doing("opening", &settings.path)?;
        let (length, begun) = extent(&file, &settings.path)?;
        Ok(Self { appender: Appender::new(file), identity, length, begun, is_overdue: false, files })
    }

    fn append(&mut self, lines: &[&[u8]], bytes: u64) -> io::Result<()> {
        if self.length == 0 {
            self.begun = Timestamp::now();
        }
        let before = self.appender.append(lines)?;
        // `length` is not set to the actual length: a change by another program must be noticed before the next batch.
        self.length += bytes;
        let metadata = self.appender.disk.metadata()?;
        if metadata.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed while a batch was written"));
        }
        release(&self.appender.disk, before..metadata.len());
        Ok(())
    }
}

/// Whether a file of this length, begun at `begun`, must be closed before `more` bytes are appended.
fn is_due(rotation: &Rotation, length: u64, more: u64, begun: Timestamp, now: Timestamp) -> bool {
    let too_long = more > 0 && rotation.size.is_some_and(|size| length.saturating_add(more) > size);
    length > 0 && (too_long || rotation.period(now) > rotation.period(begun))
}

#[cfg(test)]
mod tests;
