//! The state directory: its lock, and whose it is.
//!
//! # Invariants
//!
//! * **The owner's alone.** The directory belongs to this user and has mode 0700; what channeld keeps in it belongs to this
//!   user, and no part of it is a symbolic link. Anything else is an error, before anything is opened.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::mirror;
use crate::ledger::StateError;

const DATABASE: &str = "sled";
const LOCK: &str = "lock";

/// Opens no symbolic link.
pub(super) const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The locked directory. The lock goes with the process, however it ends.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
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
        let mode = metadata.permissions().mode() & 0o777;
        if mode.trailing_zeros() < 6 {
            let remedy = format!("run `chmod 700 {}`", path.display());
            return Err(unsafe_to_use(
                path,
                &format!("has mode {mode:04o}, and others must not reach into it: {remedy}"),
            ));
        }
        for name in [LOCK, DATABASE, mirror::NAME, mirror::NEXT] {
            check_contents(&path.join(name))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_FOLLOW);
        let mut lock = options.open(path.join(LOCK)).map_err(|error| failed("writing to", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &lock)),
            Err(TryLockError::Error(error)) => return Err(failed("locking", error)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(|e| failed("writing to", e))?;
        Ok(Self { path: path.to_owned(), id: (metadata.dev(), metadata.ino()), _lock: lock })
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Whether the directory, and the database in it, are where they were.
    pub(super) fn check(&self) -> Result<(), StateError> {
        let problem = "has gone: what is recorded from now on would be lost; stop the daemon, and restore the directory or \
                       begin anew";
        let found = fs::metadata(&self.path).map_err(|_| unsafe_to_use(&self.path, problem))?;
        if (found.dev(), found.ino()) != self.id {
            return Err(unsafe_to_use(&self.path, problem));
        }
        let log = self.database().join("db");
        fs::metadata(&log).map(drop).map_err(|_| unsafe_to_use(&log, problem))
    }
}

fn unsafe_to_use(path: &Path, problem: &str) -> StateError {
    StateError::Unusable(format!("the state directory {} {problem}", path.display()))
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), StateError> {
    let (owner, ours) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner == ours {
        return Ok(());
    }
    Err(unsafe_to_use(path, &format!("belongs to user {owner}, and this is user {ours}: chown it")))
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
        return Err(unsafe_to_use(
            path,
            "is a symbolic link, which channeld does not make: look who did, and remove it",
        ));
    }
    check_owner(path, &metadata)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            check_contents(&entry.map_err(failed)?.path())?;
        }
    }
    Ok(())
}

fn in_use(path: &Path, lock: &File) -> StateError {
    let holder = io::read_to_string(lock).unwrap_or_default();
    let holder = if holder.trim().is_empty() { "unknown" } else { holder.trim() };
    StateError::InUse { path: path.display().to_string(), holder: holder.to_owned() }
}
