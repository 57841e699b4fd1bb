//! Finds events in the files, for a comparison with the service.
//!
//! # Invariants
//!
//! * **Read only.** Nothing is locked, created or mended: a daemon may write to the files at the same time.
//! * **No line is missed.** The active file is opened before the closed files are listed. If it is closed between these two
//!   steps, it is read twice.
//! * **Bounded memory.** Only one line and the requested keys are in memory. Each request reads all files that may contain
//!   lines of the channel.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use super::FileSettings;
use super::closed::ClosedFiles;
use super::closed::index::Index;
use super::lines::{all_lines, event_in, lines};
use super::opening::require_regular;
use super::system::{Doing, if_there};
use crate::{Oldest, SinkError};
use proof::event::{ChannelId, EventKey};

/// The files that were found.
struct Found {
    active: Option<File>,
    files: ClosedFiles,
}

/// The first event of a channel in the order of the lines.
pub(super) fn oldest(settings: &FileSettings, channel: ChannelId) -> Result<Oldest, SinkError> {
    let mut oldest = Oldest::Nothing;
    if let Some(found) = Found::at(settings)? {
        found.visit(channel, |key| {
            oldest = Oldest::Event(key);
            ControlFlow::Break(())
        })?;
    }
    Ok(oldest)
}

/// Which of these events of a channel have a line.
pub(super) fn holds(
    settings: &FileSettings,
    channel: ChannelId,
    keys: &BTreeSet<EventKey>,
) -> Result<BTreeSet<EventKey>, SinkError> {
    let mut held = BTreeSet::new();
    if let Some(found) = Found::at(settings)? {
        found.visit(channel, |key| {
            if keys.contains(&key) {
                held.insert(key);
            }
            if held.len() == keys.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok(held)
}

impl Found {
    /// `None` if the directory does not exist.
    fn at(settings: &FileSettings) -> Result<Option<Self>, SinkError> {
        let path = &*settings.path;
        let active = if_there(open(path)).doing("reading", path)?;
        let real = if let Some(real) = if_there(fs::canonicalize(path)).doing("looking at", path)? {
            real
        } else {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = if_there(fs::canonicalize(directory.unwrap_or(Path::new("."))));
            let Some(directory) = directory.doing("looking at", path)? else { return Ok(None) };
            directory.join(path.file_name().unwrap_or_default())
        };
        Ok(Some(Self { active, files: ClosedFiles { active: real, name: settings.closed_name() } }))
    }

    /// Calls `visit` for each event of a channel in the order of the lines, until it returns `Break`.
    fn visit(&self, channel: ChannelId, mut visit: impl FnMut(EventKey) -> ControlFlow<()>) -> Result<(), SinkError> {
        let mut read = |lines: &mut dyn Iterator<Item = io::Result<Vec<u8>>>| -> io::Result<ControlFlow<()>> {
            for line in lines {
                let event = event_in(&line?).filter(|event| event.may_be_of(channel));
                if event.is_some_and(|event| visit(event.key).is_break()) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        let index = Index::load(&self.files)?;
        for closed in self.files.list()?.iter().filter(|closed| index.may_hold(closed.time, channel)) {
            let path = self.files.path(&closed.name, None);
            // A file that was removed in the meantime has no lines.
            let Some(reader) = self.files.reader(&closed.name).doing("reading", &path)? else { continue };
            if read(&mut lines(reader)).doing("reading", &path)?.is_break() {
                return Ok(());
            }
        }
        if let Some(active) = &self.active {
            let length = active.metadata().doing("reading", &self.files.active)?.len();
            let _ = read(&mut all_lines(active, length)).doing("reading", &self.files.active)?;
        }
        Ok(())
    }
}

/// Opens a regular file for reading. Other types are refused: opening a pipe would wait for a writer.
fn open(path: &Path) -> io::Result<File> {
    require_regular(&fs::metadata(path)?)?;
    File::open(path)
}
