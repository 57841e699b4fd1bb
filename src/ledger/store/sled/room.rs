//! Checks that the disk has room before sled writes, because a full disk makes sled unusable in the middle of a write.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, fstat, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::StateError;

/// The free space without which the database is not opened, because opening it writes.
const TO_OPEN: u64 = 2 << 20;

/// The free space that is left for other writes to the disk during a commit. sled extends its log by 512 KiB at a time.
const SPARE: u64 = 1 << 20;

/// Checks that a database can be opened in this directory.
pub(super) fn check_to_open(directory: &Path) -> Result<(), StateError> {
    named(directory, is_free(directory, TO_OPEN))
}

/// Reserves room at the end of sled's log for a commit of this size.
pub(super) fn reserve(database: &Path, log: &File, bytes: usize) -> Result<(), StateError> {
    let needed = 2 * bytes as u64 + SPARE;
    let reserved = || {
        is_free(database, needed)?;
        let length = fstat(log)?.st_size.cast_unsigned();
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < length + needed) {
            return Err(Errno::FBIG);
        }
        // A quota is known only when the room is reserved. Some file systems cannot reserve room.
        match fallocate(log, FallocateFlags::KEEP_SIZE, length, needed) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error),
            _ => Ok(()),
        }
    };
    named(database, reserved())
}

fn is_free(path: &Path, bytes: u64) -> Result<(), Errno> {
    let system = statvfs(path)?;
    if system.f_bavail * system.f_frsize < bytes { Err(Errno::NOSPC) } else { Ok(()) }
}

fn named(path: &Path, checked: Result<(), Errno>) -> Result<(), StateError> {
    checked.map_err(|error| StateError::io(format!("writing to {}", path.display()), error.into()))
}

#[cfg(test)]
mod tests {
    use std::fs::metadata;

    use super::*;
    use net::shortage::Shortage;

    #[test]
    fn room_is_reserved_without_a_longer_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let log = File::create(&path).unwrap();
        reserve(directory.path(), &log, 10).unwrap();
        assert_eq!(metadata(&path).unwrap().len(), 0);
        let lacking = reserve(directory.path(), &log, 1 << 60).unwrap_err();
        assert_eq!(lacking.shortage(), Some(Shortage::Space), "{lacking:?}");
        check_to_open(directory.path()).unwrap();
    }
}
