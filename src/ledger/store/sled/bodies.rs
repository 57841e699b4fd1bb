//! Large bodies, each in a file of its own, with a marker in the database.
//!
//! sled keeps what it has written in memory. It lets go of an entry only after some thousand others, and never of a leaf
//! that is too large for its log: 64 MiB of quarantined events of 200 kB took as much memory, in each channel.
//!
//! # Invariants
//!
//! * **On disk before its marker,** and removed after it. Its length is in its name: another body of the same event is another
//!   file. What a crash leaves without a marker goes at the next start.
//! * **Whole or not there.** A file is written beside its place, synced, and moved. One of another length than its marker
//!   says counts as missing.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;

use crate::store::directory::NO_FOLLOW;
use net::tasks::lock;

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

/// The file of an event's body.
pub(super) fn file_name(event: &str, length: u64) -> String {
    format!("{event}-{length}")
}

impl Bodies {
    /// The files in `path`. Removes those that have no marker.
    pub(super) fn open(path: PathBuf, marked: &BTreeSet<String>) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let mut names = BTreeSet::new();
        for file in fs::read_dir(&path)? {
            let file = file?;
            match file.file_name().into_string() {
                Ok(name) if marked.contains(&name) => drop(names.insert(name)),
                _ if file.file_type()?.is_file() => fs::remove_file(file.path())?,
                // Not made here.
                _ => {}
            }
        }
        Ok(Self { path, names: Mutex::new(names) })
    }

    /// Whether the body is there, whole.
    pub(super) fn has(&self, event: &str, length: u64) -> bool {
        fs::metadata(self.path.join(file_name(event, length))).is_ok_and(|file| file.len() == length)
    }

    /// The body; `None` where it is not there.
    pub(super) fn read(&self, event: &str, length: u64) -> io::Result<Option<Bytes>> {
        match fs::read(self.path.join(file_name(event, length))) {
            Ok(body) => Ok(Some(body.into()).filter(|body: &Bytes| body.len() as u64 == length)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the bodies of events. They are on disk when this returns.
    pub(super) fn write<'a>(&self, bodies: impl Iterator<Item = (&'a String, &'a Bytes)>) -> io::Result<()> {
        let mut written = BTreeSet::new();
        for (event, body) in bodies {
            let name = file_name(event, body.len() as u64);
            let unfinished = self.path.join(format!("{name}.new"));
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).custom_flags(NO_FOLLOW).open(&unfinished)?;
            file.write_all(body)?;
            file.sync_data()?;
            fs::rename(&unfinished, self.path.join(&name))?;
            written.insert(name);
        }
        if !written.is_empty() {
            self.sync()?;
            lock(&self.names).extend(written);
        }
        Ok(())
    }

    /// Removes the files of events, but for those of the bodies that they have now.
    pub(super) fn remove_others<'a>(
        &self,
        bodies: impl Iterator<Item = (&'a String, Option<&'a Bytes>)>,
    ) -> io::Result<()> {
        let mut known = lock(&self.names);
        for (event, body) in bodies {
            let kept = body.map(|body| file_name(event, body.len() as u64));
            let of_event = format!("{event}-");
            let others: Vec<_> =
                known.range(of_event.clone()..).take_while(|name| name.starts_with(&of_event)).cloned().collect();
            for name in others.into_iter().filter(|name| Some(name) != kept.as_ref()) {
                known.remove(&name);
                match fs::remove_file(self.path.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
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
