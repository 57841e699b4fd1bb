//! Operations of the file system, and their errors.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with, statfs};
use rustix::io::Errno;

use crate::{SinkError, blocking};

/// Adds the operation and the file to an error of the operating system.
pub(super) trait IoContext<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T, SinkError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T, SinkError> {
        self.map_err(|source| SinkError::io(format!("{what} {}", path.display()), source))
    }
}

/// The device and the inode number of a file. They identify the file independently of its name.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

pub(super) fn identity_at(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().as_ref().map(identity)
}

/// The directory of a path, which may be relative.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Why a sink that syncs its files at this path acknowledges events before they are on a disk. The reason is a file system
/// that keeps its files in memory: it acknowledges a sync, but loses its files when the machine loses power or restarts. If
/// the path does not exist, its directory is examined. `None` for other file systems.
pub(super) async fn early_ack(path: PathBuf) -> Option<String> {
    const TMPFS: i128 = 0x0102_1994;
    let shown = path.display().to_string();
    let found = blocking(move || statfs(&path).or_else(|_| statfs(directory_of(&path)))).await.ok()?;
    // The type of this number differs between machines.
    (i128::from(found.f_type) == TMPFS)
        .then(|| format!("the file system of {shown} is in memory (tmpfs): a restart of the machine loses its events"))
}

/// The kind of a file. `None` for a regular file.
pub(super) fn other_kind(metadata: &Metadata) -> Option<&'static str> {
    match metadata {
        metadata if metadata.is_file() => None,
        metadata if metadata.is_dir() => Some("a directory"),
        _ => Some("a pipe, a socket or a device"),
    }
}

/// The path at which a missing file will be created. If the path is a symbolic link, the file is created at the link's target.
pub(super) fn target_of(path: &Path) -> PathBuf {
    fs::read_link(path).map_or_else(|_| path.to_owned(), |target| directory_of(path).join(target))
}

/// Turns the error `NotFound` into `None`.
pub(super) fn if_there<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        looked => looked.map(Some),
    }
}

/// Locks a file, because two writers would cut off each other's lines.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(invalid("another sink or another channeld writes to it".to_owned())),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Renames a file. The error is `AlreadyExists` if a file named `to` exists.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some network file systems do not support this flag. The check and the rename are then not atomic. This is safe,
        // because no other program creates files with such names.
        Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(ErrorKind::AlreadyExists.into()),
        renamed => Ok(renamed?),
    }
}

/// Makes the name of a file durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    // The path may be a symbolic link. The directory of the link's target contains the new name.
    let path = fs::canonicalize(path)?;
    let directory = path.parent().ok_or_else(|| invalid("it has no directory".to_owned()))?;
    File::open(directory)?.sync_all()
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message)
}
