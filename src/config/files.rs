//! The files whose content went into a configuration, and whether they have changed since.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Secrets, certificates and keys beside the configuration file, as they were just before they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Option<Stamp>>);

/// What tells one content from another without reading it. Of a link it is that of what it leads to: this is how a
/// mounted secret is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds: of the content, and of everything about the file.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Files {
    /// Notes a file that is about to be read.
    pub(super) fn note(&mut self, path: &Path) {
        self.0.entry(path.to_owned()).or_insert_with(|| Stamp::of(path));
    }

    /// Whether any of them is not as it was.
    #[must_use]
    pub fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let stamp = |metadata: Metadata| Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        std::fs::metadata(path).ok().map(stamp)
    }
}
