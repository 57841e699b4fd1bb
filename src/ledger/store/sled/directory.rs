//! The state directory: its lock, whose it is, and the files in it.
//!
//! # Invariants
//!
//! * **The owner's alone.** The directory belongs to this user and has mode 0700; what channeld keeps in it belongs to this
//!   user, and no part of it is a symbolic link. Anything else is an error, before anything is opened.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::mirror::{self, Mirror};
use crate::ledger::StateError;

const DATABASE: &str = "sled";
const LOCK: &str = "lock";

/// Opens no symbolic link.
pub(super) const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The locked directory. The lock goes with the process, however it ends.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Which directory it is, wherever the path leads later.
    id: (u64, u64),
    _lock: File,
}

impl Directory {
    /// Creates the directory where it is missing, checks that it is ours alone, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, StateError> {
        let failed =
            |doing: &str, error| StateError::io(format!("{doing} the state directory {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed("creating", error))?;
        let metadata = fs::metadata(path).map_err(|error| failed("reading", error))?;
        check_owner(path, &metadata)?;
        check_mode(path, &metadata)?;
        for name in [LOCK, DATABASE, mirror::NAME, mirror::NEXT] {
            check_contents(&path.join(name))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_FOLLOW);
        let mut lock = options.open(path.join(LOCK)).map_err(|error| failed("writing to", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, lock)),
            Err(TryLockError::Error(error)) => return Err(failed("locking", error)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(|e| failed("writing to", e))?;
        Ok(Self { path: path.to_owned(), id: (metadata.dev(), metadata.ino()), _lock: lock })
    }

    pub(super) fn mirror(&self) -> Mirror {
        Mirror::in_directory(&self.path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// The files that must be synced for a commit to be on disk.
    pub(super) fn database_files(&self) -> DatabaseFiles {
        DatabaseFiles { directory: self.database(), synced_blobs: BTreeSet::new() }
    }

    /// Whether the directory, and the database in it, are where they were.
    pub(super) fn check(&self) -> Result<(), StateError> {
        let gone = |path: &Path| StateError::Unsafe {
            path: path.display().to_string(),
            problem:
                "has gone: what is recorded from now on would be lost; stop the daemon, and restore the directory \
                      or begin anew"
                    .to_owned(),
        };
        let found = fs::metadata(&self.path).map_err(|_| gone(&self.path))?;
        if (found.dev(), found.ino()) != self.id {
            return Err(gone(&self.path));
        }
        let log = self.database().join("db");
        fs::metadata(&log).map_err(|_| gone(&log))?;
        Ok(())
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), StateError> {
    let (owner, ours) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner == ours {
        return Ok(());
    }
    let path = path.display().to_string();
    Err(StateError::Unsafe { problem: format!("belongs to user {owner}, and this is user {ours}: chown it"), path })
}

fn check_mode(path: &Path, metadata: &Metadata) -> Result<(), StateError> {
    let mode = metadata.permissions().mode() & 0o777;
    if mode.trailing_zeros() >= 6 {
        return Ok(());
    }
    let path = path.display().to_string();
    let problem = format!("has mode {mode:04o}, and others must not reach into it: run `chmod 700 {path}`");
    Err(StateError::Unsafe { problem, path })
}

/// Checks a file of ours, or a directory and what is in it, where there is one.
fn check_contents(path: &Path) -> Result<(), StateError> {
    let failed = |error| StateError::io(format!("reading {}", path.display()), error);
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_symlink() {
        let problem = "is a symbolic link, which channeld does not make: look who did, and remove it".to_owned();
        return Err(StateError::Unsafe { path: path.display().to_string(), problem });
    }
    check_owner(path, &metadata)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            check_contents(&entry.map_err(failed)?.path())?;
        }
    }
    Ok(())
}

fn in_use(path: &Path, mut lock: File) -> StateError {
    let mut holder = String::new();
    let read = lock.rewind().and_then(|()| lock.read_to_string(&mut holder));
    let holder = if read.is_ok() && !holder.trim().is_empty() { holder.trim() } else { "unknown" };
    StateError::InUse { path: path.display().to_string(), holder: holder.to_owned() }
}

/// sled's files, synced by name: its own flush does not.
#[derive(Debug)]
pub(super) struct DatabaseFiles {
    directory: PathBuf,
    synced_blobs: BTreeSet<OsString>,
}

impl DatabaseFiles {
    /// Syncs the log, and the values too large for it, which sled keeps in files of their own and never syncs.
    pub(super) fn sync(&mut self) -> Result<(), StateError> {
        let log = self.directory.join("db");
        self.sync_blobs()
            .and_then(|()| File::open(&log)?.sync_data())
            .map_err(|error| StateError::io(format!("syncing {}", self.directory.display()), error))
    }

    fn sync_blobs(&mut self) -> io::Result<()> {
        let blobs = self.directory.join("blobs");
        let names: BTreeSet<OsString> =
            fs::read_dir(&blobs)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<_>>()?;
        let mut new = names.difference(&self.synced_blobs).peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        for name in new {
            match File::open(blobs.join(name)) {
                Ok(blob) => blob.sync_data()?,
                // Already garbage again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        File::open(&blobs)?.sync_all()?;
        self.synced_blobs = names;
        Ok(())
    }
}
