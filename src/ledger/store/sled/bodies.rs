//! Large bodies, each in a file of its own, with a marker in the database.
//!
//! sled keeps what it has written in memory. It lets go of an entry only after some thousand others, and never of a leaf
//! that is too large for its log: 64 MiB of quarantined events of 200 kB took as much memory, in each channel.
//!
//! # Invariants
//!
//! * **On disk before its marker,** and removed after it. What a crash leaves without a marker goes at the next start.
//! * **Whole or not there.** A file is written beside its place, synced, and moved. One of another length than its marker
//!   says counts as missing.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;

use super::directory::NO_FOLLOW;
use crate::tasks::lock;

/// A shorter body stands in the database: sixteen of them are a leaf that fits into sled's log.
const LARGE: usize = 4 << 10;

/// In the database of each large body: this, and its length. No event begins so.
const MARK: u8 = 0;

/// The files of large bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    path: PathBuf,
    names: Mutex<BTreeSet<String>>,
}

/// The length of the large body that an entry of the database stands for; `None` where it is no marker.
pub(super) fn marked(entry: &[u8]) -> Option<u64> {
    std::str::from_utf8(entry.strip_prefix(&[MARK])?).ok()?.parse().ok()
}

/// The entry for a body in the database; `None` where the body itself stands there.
pub(super) fn marker(body: &[u8]) -> Option<Vec<u8>> {
    (body.len() > LARGE).then(|| [&[MARK], body.len().to_string().as_bytes()].concat())
}

impl Bodies {
    /// The files in `path`. Removes those that have no marker.
    pub(super) fn open(path: PathBuf, marked: &BTreeSet<String>) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let mut names = BTreeSet::new();
        for file in fs::read_dir(&path)? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if marked.contains(&name) {
                names.insert(name);
            } else {
                fs::remove_file(path.join(name))?;
            }
        }
        Ok(Self { path, names: Mutex::new(names) })
    }

    /// Whether the body is there, whole.
    pub(super) fn has(&self, name: &str, length: u64) -> bool {
        fs::metadata(self.path.join(name)).is_ok_and(|file| file.len() == length)
    }

    /// The body; `None` where it is not there.
    pub(super) fn read(&self, name: &str, length: u64) -> io::Result<Option<Bytes>> {
        match fs::read(self.path.join(name)) {
            Ok(body) => Ok(Some(body.into()).filter(|body: &Bytes| body.len() as u64 == length)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes bodies. They are on disk when this returns.
    pub(super) fn write<'a>(&self, bodies: impl Iterator<Item = (&'a String, &'a Bytes)>) -> io::Result<()> {
        let mut written = BTreeSet::new();
        for (name, body) in bodies {
            let unfinished = self.path.join(format!("{name}.new"));
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).custom_flags(NO_FOLLOW).open(&unfinished)?;
            file.write_all(body)?;
            file.sync_data()?;
            fs::rename(&unfinished, self.path.join(name))?;
            written.insert(name.clone());
        }
        if !written.is_empty() {
            self.sync()?;
            lock(&self.names).extend(written);
        }
        Ok(())
    }

    /// Removes those of the bodies that have a file.
    pub(super) fn remove<'a>(&self, names: impl Iterator<Item = &'a String>) -> io::Result<()> {
        let mut known = lock(&self.names);
        names.filter(|name| known.remove(*name)).try_for_each(|name| fs::remove_file(self.path.join(name)))
    }

    /// Syncs the directory.
    pub(super) fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }
}

/// Syncs the names in a directory.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
