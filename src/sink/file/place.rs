//! Identifies the file that a path leads to, regardless of how the path is written, and compares it with the files that the
//! sinks of this process have open.
//!
//! Symbolic links may change after the configuration was read. Therefore the files are compared again when a file is
//! opened.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::closed::ClosedFiles;
use net::tasks::lock;

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

/// The files that the sinks of this process have open. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles(Arc<Mutex<Vec<Arc<ClosedFiles>>>>);

/// A file that counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    files: Arc<ClosedFiles>,
    open: OpenFiles,
}

impl OpenFiles {
    /// Registers a file as open. Refuses it if its path or its closed files could be confused with the path or the closed
    /// files of another open file.
    pub(super) fn claim(&self, files: &ClosedFiles) -> io::Result<Claim> {
        let mut open = lock(&self.0);
        if let Some(other) = open.iter().find(|other| mixes(files, other)) {
            let other = other.active.display();
            let message =
                format!("its closed files could not be distinguished from those of the sink that writes to {other}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let files = Arc::new(files.clone());
        open.push(files.clone());
        Ok(Claim { files, open: self.clone() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.open.0).retain(|other| !Arc::ptr_eq(other, &self.files));
    }
}

fn mixes(one: &ClosedFiles, other: &ClosedFiles) -> bool {
    let claims =
        |one: &ClosedFiles, other: &Place| other.name().is_some_and(|name| one.name.claims(&name.to_string_lossy()));
    let (place, other_place) = (Place::of(&one.active), Place::of(&other.active));
    let overlap = one.name.overlaps(&other.name) || claims(one, &other_place) || claims(other, &place);
    place.is(&other_place) || (place.is_beside(&other_place) && overlap)
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
