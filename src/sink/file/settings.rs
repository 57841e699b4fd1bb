//! The settings of a file sink, and which files they lead to.
//!
//! The files of all sinks are compared when the configuration is read. Symbolic links may change later, so the files are
//! compared again when a file is opened.

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;

use super::closed::ClosedFiles;
use super::closed::name::{ClosedName, Compression};
use crate::system::{Identity, identity_at, invalid};
use net::tasks::lock;

/// A file that events are appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The path of the active file. No other sink has the same path.
    pub path: PathBuf,
    /// Mode and owner of the files that the sink creates.
    pub access: Access,
    /// When the file is closed and a new one is started. `None` means never.
    pub rotation: Option<Rotation>,
}

impl FileSettings {
    /// How closed files are named. Without rotation, closed files may exist from an earlier configuration.
    pub fn closed_name(&self) -> ClosedName {
        self.rotation.as_ref().map_or_else(|| ClosedName::beside(&self.path), |rotation| rotation.name.clone())
    }

    /// The symbolic link to the file that was closed last, if one is configured.
    pub fn latest_link(&self) -> Option<&Path> {
        self.rotation.as_ref()?.latest_link.as_deref()
    }

    /// Whether a file at `other` would collide with the active file, or would be mistaken for a closed file.
    pub fn takes(&self, other: &FileLocation) -> bool {
        FileLocation::of(&self.path).takes(&self.closed_name(), other)
    }
}

/// Mode and owner of a file that the sink creates. The defaults are mode 0640 minus the process's umask, and the process's
/// user and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The exact permissions. The umask does not apply.
    pub mode: Option<u32>,
    /// The user id of the owner.
    pub owner: Option<u32>,
    /// The group id.
    pub group: Option<u32>,
}

/// When a file is closed, and how closed files are kept. At least one of `size` and `every` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The file is closed before a batch would make it longer than this, in bytes. A file is longer only if a single batch
    /// is longer.
    pub size: Option<u64>,
    /// The file is closed at each multiple of this duration, counted from the start of 1970 in UTC.
    pub every: Option<Duration>,
    /// How closed files are named.
    pub name: ClosedName,
    /// How closed files are compressed. `None` means not at all.
    pub compression: Option<Compression>,
    /// Which closed files are kept.
    pub keep: Keep,
    /// The path of a symbolic link to the file that was closed last.
    pub latest_link: Option<PathBuf>,
}

impl Rotation {
    /// The number of the period that contains a time, counted from the start of 1970 in UTC. `None` if files are not closed
    /// by time.
    pub(super) fn period(&self, at: Timestamp) -> Option<i64> {
        let every = i64::try_from(self.every?.as_secs()).unwrap_or(i64::MAX);
        Some(at.as_second().div_euclid(every.max(1)))
    }
}

/// Which closed files are kept. Every bound that is set applies. A bound that is `None` does not limit anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The number of files to keep. With [`Rotation::every`], the number N counts periods: all files that were closed in
    /// the current period and in the N - 1 periods before it are kept. This bound always keeps at least the newest N files.
    pub files: Option<NonZeroUsize>,
    /// How long a file is kept after it was closed.
    pub time: Option<Duration>,
    /// The total size of the kept files, in bytes.
    pub size: Option<u64>,
}

/// A file that exists or will be created, identified by its directory and its name in that directory.
#[derive(Debug)]
pub struct FileLocation {
    /// An absolute path. Symbolic links are resolved in the part that exists.
    path: PathBuf,
    /// `None` if the file does not exist.
    file: Option<Identity>,
    directory: Option<Identity>,
}

impl FileLocation {
    /// The file that a path leads to. Symbolic links are followed.
    pub fn of(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| beside(path));
        Self { file: identity_at(&path), ..Self::at(path) }
    }

    /// The place of a symbolic link itself, not of its target.
    pub fn of_link(path: &Path) -> Self {
        Self::at(beside(path))
    }

    fn at(path: PathBuf) -> Self {
        let directory = path.parent().and_then(identity_at);
        Self { path, file: None, directory }
    }

    /// Whether both are the same file, including a file with two names (a hard link).
    pub fn is(&self, other: &Self) -> bool {
        let same_name = self.path.file_name() == other.path.file_name() && self.is_beside(other);
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

    /// Whether a file at `other` would collide with the active file at this place, or would be mistaken for a closed file.
    pub(super) fn takes(&self, closed: &ClosedName, other: &Self) -> bool {
        let is_claimed = || other.path.file_name().is_some_and(|name| closed.claims(&name.to_string_lossy()));
        other.is(self) || (other.is_beside(self) && is_claimed())
    }
}

/// The files that the sinks of this process have open. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles(Arc<Mutex<Vec<Weak<ClosedFiles>>>>);

impl OpenFiles {
    /// Registers a file as open until the result is dropped. Refuses files that could be confused with other open
    /// files.
    pub(super) fn claim(&self, files: ClosedFiles) -> io::Result<Arc<ClosedFiles>> {
        let mut open = lock(&self.0);
        open.retain(|other| other.strong_count() > 0);
        if let Some(other) = open.iter().filter_map(Weak::upgrade).find(|other| mixes(&files, other)) {
            return Err(invalid(format!(
                "the files of this sink are, or could be mistaken for, files of the sink that writes to {}",
                other.active.display()
            )));
        }
        let files = Arc::new(files);
        open.push(Arc::downgrade(&files));
        Ok(files)
    }
}

fn mixes(one: &ClosedFiles, other: &ClosedFiles) -> bool {
    let (place, other_place) = (FileLocation::of(&one.active), FileLocation::of(&other.active));
    place.takes(&one.name, &other_place)
        || other_place.takes(&other.name, &place)
        || (place.is_beside(&other_place) && one.name.overlaps(&other.name))
}

/// The absolute path, with symbolic links resolved in the part of its directory that exists.
fn beside(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = absolute.ancestors().skip(1).find_map(|parent| Some((parent, fs::canonicalize(parent).ok()?)));
    let rest = |parent| absolute.strip_prefix(parent).ok();
    there.and_then(|(parent, found)| Some(found.join(rest(parent)?))).unwrap_or(absolute)
}
