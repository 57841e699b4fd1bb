//! Opens the active file, and refuses anything that is not a file of lines.
//!
//! # Invariants
//!
//! * **The name is durable.** The directory is synced each time a file is opened. Otherwise a file that was created before
//!   a crash could vanish together with the lines that were synced into it.
//! * **Mode and owner are set before an event is written,** on every empty file. An empty file was created just now, before
//!   a crash, or by a program that rotates. Other files keep their mode and owner.
//! * **The file type is checked before the file is opened.** Opening a pipe or a device can have side effects, and neither
//!   can be synced.
//! * **Only the remains of a failed write are cut off.** A lane records a batch before it writes the next one, so all recorded
//!   lines come before the first byte that can be damaged by a crash. A line that parses is never cut off, because another
//!   program may have written it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{OFlags, access};
use rustix::io::Errno;

use super::lines::{is_remains, look_back};
use super::settings::{Access, FileSettings};
use crate::SinkError;
use crate::system::{IoContext, directory_of, if_there, invalid, lock, other_kind, sync_directory, target_of};

/// Only the owner and the group may read events.
const MODE: u32 = 0o640;

/// Opens or creates the file, locks it, mends its end, and makes its name durable.
pub(super) fn open(path: &Path, access: Access) -> Result<File, SinkError> {
    let file = open_lines(path).doing("opening", path)?;
    let metadata = file.metadata().doing("examining", path)?;
    if metadata.len() == 0 {
        set_access(access, &file, &metadata).doing("setting the mode and owner of", path)?;
    }
    sync_directory(path).doing("syncing the directory of", path)?;
    mend_lines(&file, path)?;
    Ok(file)
}

/// Mends the end of a file that was just opened, or that another program has changed, so that lines can be appended.
pub(super) fn mend_lines(file: &File, path: &Path) -> Result<(), SinkError> {
    require_lines(file).doing("opening", path)?;
    mend(file, path).doing("repairing the end of", path)?;
    // A process that was killed may have left whole lines that were never synced.
    file.sync_data().doing("syncing", path)
}

fn open_lines(path: &Path) -> io::Result<File> {
    if let Ok(metadata) = fs::metadata(path) {
        require_regular(&metadata)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(MODE);
    // Open without `create` first: in a sticky directory the system may refuse `create` for an existing file of another
    // user.
    let file = match if_there(options.open(path))? {
        Some(file) => file,
        None => if_there(options.create(true).open(path))?
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, "its directory does not exist: create it first"))?,
    };
    require_regular(&file.metadata()?)?;
    lock(&file).map_err(|error| io::Error::new(error.kind(), format!("it cannot be locked: {error}")))?;
    require_lines(&file)?;
    Ok(file)
}

/// Refuses a file that does not contain lines of JSON, so that a mistyped path does not damage another file. After a crash,
/// the file begins with a record, or with zeros in place of a record that never reached the disk.
fn require_lines(file: &File) -> io::Result<()> {
    let mut first = [b'{'];
    file.read_at(&mut first, 0)?;
    if matches!(first, [b'{' | 0]) { Ok(()) } else { Err(invalid("its content is not lines of JSON".to_owned())) }
}

pub(super) fn require_regular(metadata: &Metadata) -> io::Result<()> {
    let Some(what) = other_kind(metadata) else { return Ok(()) };
    Err(invalid(format!("it is not a regular file but {what}: name a regular file, or use a sink of type stdout")))
}

/// Sets the configured mode, owner and group. An owner or a group that is already correct is not set again.
fn set_access(access: Access, file: &File, metadata: &Metadata) -> io::Result<()> {
    let owner = access.owner.filter(|owner| *owner != metadata.uid());
    let group = access.group.filter(|group| *group != metadata.gid());
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                let message = "only root, or a process with CAP_CHOWN, may change the owner of a file: run channeld with that right, or remove owner and group";
                io::Error::new(ErrorKind::PermissionDenied, message)
            }
            _ => error,
        })?;
    }
    access.mode.map_or(Ok(()), |mode| file.set_permissions(fs::Permissions::from_mode(mode)))
}

/// Cuts off the remains that a crash left at the end. Adds the line break to the last line if only the line break is
/// missing.
fn mend(mut file: &File, path: &Path) -> io::Result<()> {
    let length = file.metadata()?.len();
    // The end of the last line that is not torn.
    let mut end = 0;
    look_back(file, length, |mut at, lines| {
        for line in lines {
            let line = line?;
            at += line.len() as u64 + 1;
            end = if is_remains(&line) { end } else { at };
        }
        Ok(end > 0)
    })?;
    if end < length {
        tracing::warn!(path = %path.display(), bytes = length - end, "removing an incomplete batch that a crash left");
        file.set_len(end)?;
    }
    if end > length { file.write_all(b"\n") } else { Ok(()) }
}

/// Checks whether lines could be appended to the file, as [`open`] would. Does not create, lock or change the file, because a
/// daemon may have it open. Writing is tried on an unnamed file in its directory.
pub(super) fn probe(settings: &FileSettings) -> Result<String, SinkError> {
    use rustix::fs::Access;
    let (path, wanted) = (&*settings.path, settings.access);
    let may = |path: &Path, how| access(path, how).map_err(io::Error::from);
    let Some(metadata) = if_there(fs::metadata(path)).doing("examining", path)? else {
        let path = target_of(path);
        let directory = directory_of(&path);
        may(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
            .and_then(|()| try_unnamed(directory, wanted))
            .doing("no file can be created in", directory)?;
        return Ok(format!("it will be created in {}", directory.display()));
    };
    require_regular(&metadata).doing("examining", path)?;
    may(path, Access::READ_OK | Access::WRITE_OK).doing("this user may not read and write", path)?;
    File::open(path).and_then(|file| require_lines(&file)).doing("opening", path)?;
    let target = fs::canonicalize(path).doing("examining", path)?;
    let directory = directory_of(&target);
    may(directory, Access::READ_OK | Access::EXEC_OK).doing("this user may not open the directory", directory)?;
    if settings.rotation.is_some() {
        may(directory, Access::WRITE_OK).doing("no file can be closed in", directory)?;
    }
    if may(directory, Access::WRITE_OK).is_ok() {
        // The mode and the owner are set only on an empty file.
        let wanted = if metadata.len() == 0 { wanted } else { super::Access::default() };
        try_unnamed(directory, wanted).doing("no line can be written in", directory)?;
    }
    Ok(format!("it has {} bytes, and this user may write to it", metadata.len()))
}

/// Writes a byte to a file without a name, which vanishes when it is closed. Does nothing if the file system does not
/// support such files.
fn try_unnamed(directory: &Path, wanted: Access) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE).custom_flags(OFlags::TMPFILE.bits().cast_signed());
    let mut file = match options.open(directory) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL)) => {
            return Ok(());
        }
        opened => opened?,
    };
    set_access(wanted, &file, &file.metadata()?)?;
    file.write_all(b"{")?;
    file.sync_all()
}
