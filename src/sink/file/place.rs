//! Identifies the file that a path leads to, regardless of how the path is written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The device and the inode number of a file.
type Identity = (u64, u64);

/// A file that exists or will be created, identified by its directory and its name in that directory.
#[derive(Debug)]
pub struct Place {
    /// An absolute path. Symbolic links are resolved in the part that exists.
    path: PathBuf,
    /// `None` if the file does not exist.
    file: Option<Identity>,
    directory: Option<Identity>,
}

impl Place {
    /// The file that a path leads to. Symbolic links are followed.
    pub fn of(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| beside(path));
        Self { file: identity(&path), ..Self::at(path) }
    }

    /// The place of a symbolic link itself, not of its target.
    pub fn of_link(path: &Path) -> Self {
        Self::at(beside(path))
    }

    fn at(path: PathBuf) -> Self {
        let directory = path.parent().and_then(identity);
        Self { path, file: None, directory }
    }

    /// Whether both are the same file, including a file with two names (a hard link).
    pub fn is(&self, other: &Self) -> bool {
        let same_name = self.name() == other.name() && self.is_beside(other);
        same_name || (self.file.is_some() && self.file == other.file)
    }

    /// Whether both are in the same directory.
    pub fn is_beside(&self, other: &Self) -> bool {
        match (self.directory, other.directory) {
            // The paths can differ if a file system is mounted in two places.
            (Some(one), Some(other)) => one == other,
            _ => self.path.parent() == other.path.parent(),
        }
    }

    pub(super) fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }
}

/// The absolute path, with symbolic links resolved in the part of its directory that exists.
fn beside(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = absolute.ancestors().skip(1).find_map(|parent| Some((parent, fs::canonicalize(parent).ok()?)));
    let rest = |parent| absolute.strip_prefix(parent).ok();
    there.and_then(|(parent, found)| Some(found.join(rest(parent)?))).unwrap_or(absolute)
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
