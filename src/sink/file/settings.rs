//! The settings of a file sink. The configuration checks them when it reads them; this module does not check them again.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::closed::name::{ClosedName, Compression};
use super::place::Place;

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
    /// How closed files are named. This is defined even if rotation is off: closed files may exist from an earlier
    /// configuration.
    pub fn closed_name(&self) -> ClosedName {
        self.rotation.as_ref().map_or_else(|| ClosedName::beside(&self.path), |rotation| rotation.name.clone())
    }

    /// The symbolic link to the file that was closed last, if one is configured.
    pub fn latest_link(&self) -> Option<&Path> {
        self.rotation.as_ref()?.latest_link.as_deref()
    }

    /// Whether another file at this place would collide with the active file, or would be mistaken for a closed file.
    pub fn takes(&self, other: &Place) -> bool {
        let claims = |name: &OsStr| self.closed_name().claims(&name.to_string_lossy());
        let place = Place::of(&self.path);
        other.is(&place) || (other.is_beside(&place) && other.name().is_some_and(claims))
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
    /// The file is closed at each multiple of this duration, counted from midnight UTC.
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
    /// The number of the period that contains a time. Periods are counted from the start of 1970, and therefore from the
    /// start of a day in UTC. Returns `None` if files are not closed by time.
    pub(super) fn period(&self, at: Timestamp) -> Option<i64> {
        let every = i64::try_from(self.every?.as_secs()).unwrap_or(i64::MAX);
        Some(at.as_second().div_euclid(every.max(1)))
    }
}

/// Which closed files are kept. Every bound that is set applies. A bound that is `None` does not limit anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The number of files to keep. With [`Rotation::every`], it is a number of periods: files that were closed in the last
    /// N periods are kept, including the current period, and at least N files.
    pub files: Option<NonZeroUsize>,
    /// How long a file is kept after it was closed.
    pub time: Option<Duration>,
    /// The total size of the kept files, in bytes.
    pub size: Option<u64>,
}
