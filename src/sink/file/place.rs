//! Which file a path leads to, however it is spelled.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file's device and its number there.
type Identity = (u64, u64);

/// A file that is there or will be made, by its directory and its name there.
#[derive(Debug)]
pub struct Place {
    /// Absolute, and without links as far as it exists.
    path: PathBuf,
    /// `None` where there is no such file.
    file: Option<Identity>,
    directory: Option<Identity>,
}

impl Place {
    /// Where a path leads. Its links are followed.
    pub fn of(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| beside(path));
        Self { file: identity(&path), ..Self::at(path) }
    }

    /// The place of a link itself, wherever it leads.
    pub fn of_link(path: &Path) -> Self {
        Self::at(beside(path))
    }

    fn at(path: PathBuf) -> Self {
        let directory = path.parent().and_then(identity);
        Self { path, file: None, directory }
    }

    /// Whether it is the same file, also by a second name.
    pub fn is(&self, other: &Self) -> bool {
        let same_name = self.name() == other.name() && self.is_beside(other);
        same_name || (self.file.is_some() && self.file == other.file)
    }

    /// Whether both are in the same directory.
    pub fn is_beside(&self, other: &Self) -> bool {
        match (self.directory, other.directory) {
            // Also where one is mounted in two places.
            (Some(one), Some(other)) => one == other,
            _ => self.path.parent() == other.path.parent(),
        }
    }

    pub(super) fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }
}

/// The path without links in its directory, as far as that exists.
fn beside(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = absolute.ancestors().skip(1).find_map(|parent| Some((parent, fs::canonicalize(parent).ok()?)));
    let rest = |parent| absolute.strip_prefix(parent).ok();
    there.and_then(|(parent, found)| Some(found.join(rest(parent)?))).unwrap_or(absolute)
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
