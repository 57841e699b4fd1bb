//! What an operator chooses about a file. Checked where it is read; everything here trusts it.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::compression::Compression;
use super::name::ClosedName;
use super::place::Place;

/// A file that events are appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// Where it is. No other sink has the same path.
    pub path: PathBuf,
    /// Mode and owner of the files that are made.
    pub access: Access,
    /// When it is closed and another one begun; without one, never.
    pub rotation: Option<Rotation>,
}

impl FileSettings {
    /// What its closed files are called. Also where none is closed any more: some may be there from before.
    pub fn closed_name(&self) -> ClosedName {
        self.rotation.as_ref().map_or_else(|| ClosedName::beside(&self.path), |rotation| rotation.name.clone())
    }

    /// The link to the file in use.
    pub fn latest_link(&self) -> Option<&Path> {
        self.rotation.as_ref()?.latest_link.as_deref()
    }

    /// Whether something else at this place would be in the way of the file, or taken for a closed one.
    pub fn takes(&self, other: &Place) -> bool {
        let claims = |name: &OsStr| self.closed_name().claims(&name.to_string_lossy());
        let place = Place::of(&self.path);
        other.is(&place) || (other.is_beside(&place) && other.name().is_some_and(claims))
    }
}

/// Mode and owner of a file that is made. What is not set is as the system has it: 0640 less the process's umask, the
/// process's user and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The permissions, exactly.
    pub mode: Option<u32>,
    /// The owner's number.
    pub owner: Option<u32>,
    /// The group's number.
    pub group: Option<u32>,
}

/// When a file is closed, and what becomes of it then. At least one of `size` and `every` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Before it would become longer than this, in bytes. Only a batch that is longer by itself makes a longer file.
    pub size: Option<u64>,
    /// At each multiple of this time of the day in UTC.
    pub every: Option<Duration>,
    /// What closed files are called.
    pub name: ClosedName,
    /// How closed files are compressed.
    pub compression: Option<Compression>,
    /// Which of them stay.
    pub keep: Keep,
    /// A symbolic link to the file closed last.
    pub latest_link: Option<PathBuf>,
}

impl Rotation {
    /// The number of the period that a time is in, counted from 1970, and so from the beginning of a day in UTC. `None` if
    /// files are not closed by time.
    pub(super) fn period(&self, at: Timestamp) -> Option<i64> {
        let every = i64::try_from(self.every?.as_secs()).unwrap_or(i64::MAX);
        Some(at.as_second().div_euclid(every.max(1)))
    }
}

/// Which closed files stay. Each bound that is set holds; none that is not set does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// How many. With [`Rotation::every`], those that were closed in so many periods, the present one included, and at least
    /// so many.
    pub files: Option<NonZeroUsize>,
    /// For how long after they were closed.
    pub time: Option<Duration>,
    /// How many bytes in all.
    pub size: Option<u64>,
}
