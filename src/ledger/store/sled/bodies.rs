//! Large bodies. Each is stored in a separate file, and the database contains a marker.
//!
//! sled keeps written values in memory. It evicts an entry only after some thousand other entries, and it never evicts
//! a leaf that is too large for its log. In the database, 64 MiB of quarantined events of 200 kB each used 64 MiB of memory
//! in each channel.
//!
//! # Invariants
//!
//! * **A file is on disk before its marker,** and is removed after its marker. The length of the body is part of the file's
//!   name, so another body of the same event has another file. The next start removes files without a marker, which a
//!   crash can leave.
//! * **Complete or missing.** A file is written under another name, synced, and renamed. A file counts as missing if
//!   its length differs from the length in its marker.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use bytes::Bytes;

use crate::store::directory::{sync_directory, write};
use net::tasks::lock;

/// Bodies up to this size are stored in the database: sixteen of them make a leaf that fits into sled's log.
const LARGE: usize = 4 << 10;

/// A database entry for a large body is this byte followed by the length. The JSON of an event never starts with this
/// byte.
const MARK: u8 = 0;

#[derive(Debug)]
pub(super) struct Bodies {
    pub(super) path: PathBuf,
    names: Mutex<BTreeSet<String>>,
}

/// The length of the large body that a database entry refers to. `None` if the entry is not a marker.
pub(super) fn marked(entry: &[u8]) -> Option<u64> {
    std::str::from_utf8(entry.strip_prefix(&[MARK])?).ok()?.parse().ok()
}

/// The database entry for a body. `None` if the body itself is stored in the database.
pub(super) fn marker(body: &[u8]) -> Option<Vec<u8>> {
    (body.len() > LARGE).then(|| [&[MARK], body.len().to_string().as_bytes()].concat())
}

pub(super) fn file_name(event: &str, length: u64) -> String {
    format!("{event}-{length}")
}

impl Bodies {
    /// Opens the files in `path`. Removes files that are not in `marked`.
    pub(super) fn open(path: PathBuf, marked: &BTreeSet<String>) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let mut names = BTreeSet::new();
        for file in fs::read_dir(&path)? {
            let file = file?;
            match file.file_name().into_string() {
                Ok(name) if marked.contains(&name) => drop(names.insert(name)),
                _ if file.file_type()?.is_file() => fs::remove_file(file.path())?,
                // This is not a file, so this store did not create it.
                _ => {}
            }
        }
        Ok(Self { path, names: Mutex::new(names) })
    }

    pub(super) fn has(&self, event: &str, length: u64) -> bool {
        fs::metadata(self.path.join(file_name(event, length))).is_ok_and(|file| file.len() == length)
    }

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
            write(&self.path.join(&name), &self.path.join(format!("{name}.new")), body)?;
            written.insert(name);
        }
        if !written.is_empty() {
            sync_directory(&self.path)?;
            lock(&self.names).extend(written);
        }
        Ok(())
    }

    /// Removes the files of events, except the files of their current bodies.
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
}
