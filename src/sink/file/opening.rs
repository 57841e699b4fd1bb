//! Opening the file of a file sink, and nothing that is not a file.
//!
//! # Invariants
//!
//! * **The name is durable.** The directory is synced at every opening, so that a file which was created before a crash
//!   cannot vanish with what has been synced into it.
//! * **Mode and owner are there before an event is.** They are given to every file that is empty: one that was made just
//!   now, or before a crash, or by a program that rotates. A file that holds something keeps what it has.
//! * **Looked at before touched.** What is no regular file is refused before it is opened: opening a pipe or a device
//!   can have effects of its own, and none of them can be synced.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::settings::{Access, FileSettings};
use crate::sink::SinkError;

/// Others than the owner and the group have no business with the events.
const MODE: u32 = 0o640;

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Which file stands at `path` now; `None` where there is none.
    pub(super) fn at(path: &Path) -> Result<Option<Self>, SinkError> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("looking at", path)(error)),
        }
    }
}

/// Opens the file, or creates it, locks it, and makes its name durable.
pub(super) fn open(settings: &FileSettings) -> Result<(File, Identity), SinkError> {
    let path = &*settings.path;
    if let Ok(metadata) = fs::metadata(path) {
        require_regular(&metadata).map_err(failed("opening", path))?;
    }
    let file = open_or_create(path).map_err(failed("opening", path))?;
    let metadata = file.metadata().map_err(failed("opening", path))?;
    require_regular(&metadata).map_err(failed("opening", path))?;
    lock(&file).map_err(failed("locking", path))?;
    require_json_lines(&file).map_err(failed("opening", path))?;
    if metadata.len() == 0 {
        give(settings.access, &file, &metadata).map_err(failed("setting the mode and owner of", path))?;
    }
    sync_directory(path).map_err(failed("syncing the directory of", path))?;
    Ok((file, Identity::of(&metadata)))
}

/// An error of the system, with what was being done to the file.
pub(super) fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> SinkError {
    let doing = format!("{doing} {}", path.display());
    |source| SinkError::Io { doing, source }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(MODE);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => options.create(true).open(path).map_err(no_directory),
        opened => opened,
    }
}

/// Creating fails with "not found" only where the directory is missing.
fn no_directory(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotFound => io::Error::new(ErrorKind::NotFound, "its directory does not exist: create it first"),
        _ => error,
    }
}

fn require_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() { "it is a directory" } else { "it is a pipe, a socket or a device" };
    Err(invalid(format!("{what}: name a regular file, or use a sink of type stdout")))
}

/// Sets what was chosen and is not so already.
fn give(access: Access, file: &File, metadata: &Metadata) -> io::Result<()> {
    let owner = access.owner.filter(|owner| *owner != metadata.uid());
    let group = access.group.filter(|group| *group != metadata.gid());
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group).map_err(not_ours_to_give)?;
    }
    match access.mode {
        Some(mode) => file.set_permissions(fs::Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

fn not_ours_to_give(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            let message = "only root, or a process with CAP_CHOWN, may give files to others: run channeld so, or leave \
                           out owner and group";
            io::Error::new(ErrorKind::PermissionDenied, message)
        }
        _ => error,
    }
}

/// Two writers would cut off each other's lines.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(invalid("another sink or another channeld writes to it".to_owned())),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A mistyped path must not cost the operator a file of something else. What a crash leaves begins with a record, or
/// with the zeros of one that never reached the disk.
fn require_json_lines(file: &File) -> io::Result<()> {
    let mut first = [b'{'];
    file.read_at(&mut first, 0)?;
    match first {
        [b'{' | 0] => Ok(()),
        _ => Err(invalid("it holds something other than lines of JSON".to_owned())),
    }
}

/// Renames a file, and never onto another.
///
/// # Errors
/// `AlreadyExists` where there is a file of that name; whatever the system says.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some network file systems do not know this. Nobody else makes files of such names.
        Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(ErrorKind::AlreadyExists.into()),
        renamed => Ok(renamed?),
    }
}

/// Makes the name of a file durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    // The path may be a symbolic link: it is the directory of the file itself that holds the new name.
    let path = fs::canonicalize(path)?;
    let directory = path.parent().ok_or_else(|| invalid("it has no directory".to_owned()))?;
    File::open(directory)?.sync_all()
}

fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message)
}
