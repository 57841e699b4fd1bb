//! The files of a database: the main file, and beside it the log (`-wal`) and the log's index (`-shm`).
//!
//! SQLite finds the log by the path of the database, and uses any log that it finds there. If the main file is moved or
//! replaced, the log stays at the path. The rows in the log are then missing in the moved file, and SQLite would mix these
//! rows into the file that is at the path now.
//!
//! # Invariants
//!
//! * **A log belongs to one file.** If a main file is no longer at its path, the log is written into this main file before
//!   the file is closed, and is then removed. A database is not opened if the log at its path is known to belong to another
//!   file.
//! * **Only SQLite changes the main file.** If another program has replaced the content in place, the log belongs to content
//!   that no longer exists, and is removed.
//!
//! While the database is open, a file beside it (`-owner`) names the main file to which the log belongs. The start after a
//! crash reads this `-owner` file. If a backup is copied over the main file in place after a crash, the next start cannot
//! recognize this, and an operator must remove the log.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::connections::ConnectedFile;
use super::error;
use crate::SinkError;
use crate::system::{Identity, identity, identity_at, other_kind};

/// The length of a main file's header.
const HEADER: usize = 100;

/// The length of the part of the log's index that states how many frames the log has, and how many of them are in the main
/// file. All programs that have the database open use the same format of the index: <https://sqlite.org/walformat.html>.
const INDEX: usize = 136;

/// The files of an open database.
pub(super) struct Files {
    path: PathBuf,
    main: Arc<File>,
    index: Arc<File>,
    identity: Identity,
    log_identity: Option<Identity>,
    index_identity: Option<Identity>,
    seen: Option<FileState>,
}

/// The state of the main file and the log after the last use.
struct FileState {
    modified: SystemTime,
    bytes: u64,
    header: [u8; HEADER],
    /// The log's number of frames, its salts and its checksums.
    log: [u8; 48],
    /// How many frames were copied into the main file, and how many the last checkpoint intended to copy.
    copied: [u32; 2],
}

impl Files {
    /// The files of a database that was just opened through `main`, and whose log exists.
    pub(super) fn of(path: &Path, connected: &ConnectedFile, main: Arc<File>) -> Result<Self, SinkError> {
        let failure = |error| error::opening(&error, path);
        let identity = connected.identity();
        let [log_identity, index_identity] = ["-wal", "-shm"].map(|suffix| identity_at(&beside(path, suffix)));
        let index = connected.index(&beside(path, "-shm")).map_err(failure)?;
        let files = Self { path: path.to_owned(), main, index, identity, log_identity, index_identity, seen: None };
        let owner = format!("{} {}", written(Some(identity)), written(log_identity));
        fs::write(beside(path, "-owner"), owner).map_err(failure)?;
        if files.is_at_path() {
            Ok(files)
        } else {
            Err(SinkError::away(format!("{} has just been moved away", path.display())))
        }
    }

    /// Whether the path still leads to the main file.
    pub(super) fn is_at_path(&self) -> bool {
        identity_at(&self.path) == Some(self.identity)
    }

    /// Whether the main file was removed, and not only moved.
    pub(super) fn is_removed(&self) -> bool {
        self.main.metadata().is_ok_and(|main| main.nlink() == 0)
    }

    /// Stores the state of the files after SQLite has used them.
    pub(super) fn note(&mut self) {
        self.seen = FileState::of(&self.main, &self.index).ok();
    }

    /// Whether the content of the main file was replaced since [`note`](Self::note). A write by SQLite itself always
    /// changes the log's index too. A changed modification time is enough evidence only if all rows of the log are in the
    /// main file, because the caller then removes the log.
    pub(super) fn is_overwritten(&self) -> bool {
        let (Some(seen), Ok(now)) = (&self.seen, FileState::of(&self.main, &self.index)) else { return false };
        let is_other = now.bytes != seen.bytes || now.header != seen.header;
        let is_in_main = number(&seen.log, 16) == seen.copied[0];
        let is_touched = now.modified != seen.modified && is_in_main;
        now.log == seen.log && now.copied == seen.copied && (is_other || is_touched)
    }

    /// Removes the log, after the connection was closed.
    pub(super) fn remove_log(&self) {
        for (suffix, identity) in [("-wal", self.log_identity), ("-shm", self.index_identity)] {
            let file = beside(&self.path, suffix);
            if identity.is_some() && identity_at(&file) == identity {
                // If this fails, the next start reports it.
                fs::remove_file(file).ok();
            }
        }
        self.remove_owner();
    }

    /// Removes the `-owner` file if the log no longer exists.
    pub(super) fn remove_owner(&self) {
        if identity_at(&beside(&self.path, "-wal")) != self.log_identity || self.log_identity.is_none() {
            fs::remove_file(beside(&self.path, "-owner")).ok();
        }
    }
}

impl FileState {
    fn of(main: &File, index: &File) -> io::Result<Self> {
        let found = main.metadata()?;
        let mut header = [0; HEADER];
        main.read_exact_at(&mut header, 0)?;
        let mut shared = [0; INDEX];
        index.read_exact_at(&mut shared, 0)?;
        let mut log = [0; 48];
        log.copy_from_slice(&shared[..48]);
        let copied = [96, 128].map(|at| number(&shared, at));
        Ok(Self { modified: found.modified()?, bytes: found.len(), header, log, copied })
    }
}

/// The number at position `at` of the log's index.
fn number(index: &[u8], at: usize) -> u32 {
    index[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// Refuses a directory, a pipe or a device. Opening a pipe could wait for ever.
pub(super) fn require_regular(path: &Path, metadata: &fs::Metadata) -> Result<(), SinkError> {
    let Some(what) = other_kind(metadata) else { return Ok(()) };
    Err(SinkError::unusable(format!(
        "{} is {what}: name a regular file, or a file that does not exist",
        path.display()
    )))
}

/// Refuses to open a database beside a log that belongs to another file.
pub(super) fn check_log(path: &Path) -> Result<(), SinkError> {
    let log = beside(path, "-wal");
    let Some(log) = fs::metadata(log).ok().filter(|log| log.len() > 0) else { return Ok(()) };
    // SQLite would remove a log beside an empty file.
    let main = fs::metadata(path).ok().filter(|main| main.len() > 0);
    let owner = fs::read_to_string(beside(path, "-owner")).unwrap_or_default();
    let is_of_another = match (main, owner.split_once(' ')) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(main), Some((its_main, its_log))) => {
            let [main, log] = [main, log].map(|file| written(Some(identity(&file))));
            its_log == log && its_main != main
        }
    };
    if !is_of_another {
        return Ok(());
    }
    let path = path.display();
    Err(SinkError::unusable(format!(
        "{path}-wal has rows of another file: {path} was moved or replaced before these rows were written into it; if you \
         have the other file, move {path}-wal next to it, and name it like that file with -wal at the end; otherwise remove \
         {path}-wal and {path}-shm"
    )))
}

/// The path of the file beside the main file with this suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn written(identity: Option<Identity>) -> String {
    identity.map_or_else(String::new, |(device, number)| format!("{device}:{number}"))
}
