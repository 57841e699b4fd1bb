//! What becomes of closed files: compressed, linked to, deleted when their time is over. Not in the way of deliveries.
//!
//! # Invariants
//!
//! * **The directory says what is to be done.** Each look begins anew with what stands there, so that what a crash has
//!   interrupted needs no memory: an unfinished file is thrown away, a file that is there plain and compressed is compared,
//!   and the plain one goes if the compressed one holds the same; otherwise both stay, and it is said once.
//! * **One failure does not stop the rest.** It is said once, and tried again.
//! * **Nothing here loses or repeats an event.** Deleted is only what the operator's bounds say, and what is there twice.
//!
//! # Cancellation
//!
//! `stop` is looked at between two files, and between the chunks of one.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::closed::{Closed, Shelf};
use super::compression::{Compression, pack, same};
use super::finding;
use super::index::Index;
use super::latest;
use super::opening::failed;
use super::retention;
use super::settings::Rotation;
use crate::sink::SinkError;

/// What is done to closed files, and what has been said about them.
#[derive(Debug)]
pub(super) struct Upkeep {
    rotation: Rotation,
    stop: CancellationToken,
    /// Files that stand there in two forms that differ.
    told: HashSet<String>,
}

impl Upkeep {
    pub(super) fn new(rotation: Rotation, stop: CancellationToken) -> Self {
        Self { rotation, stop, told: HashSet::new() }
    }

    /// Does everything that is to be done now.
    ///
    /// # Errors
    /// The first thing that failed. Everything else has been done.
    pub(super) fn look(&mut self, shelf: &Shelf) -> Result<(), SinkError> {
        let mut failures = Vec::new();
        let mut attempt = |done: Result<(), SinkError>| failures.extend(done.err());
        let standing = shelf.look().map_err(failed("reading", shelf.directory()))?;
        for unfinished in &standing.unfinished {
            attempt(throw_away(unfinished).map_err(failed("removing", unfinished)));
        }
        attempt(self.link(shelf, &standing.closed));
        // Before anything is compressed, which takes room.
        attempt(self.delete(shelf));
        attempt(self.index(shelf));
        for closed in &standing.closed {
            if self.stop.is_cancelled() {
                return Ok(());
            }
            attempt(self.compress(shelf, closed));
        }
        attempt(self.delete(shelf));
        match failures.into_iter().next() {
            Some(failure) if !self.stop.is_cancelled() => Err(failure),
            _ => Ok(()),
        }
    }

    fn link(&self, shelf: &Shelf, closed: &[Closed]) -> Result<(), SinkError> {
        let Some((link, last)) = self.rotation.latest_link.as_deref().zip(closed.last()) else { return Ok(()) };
        latest::point(link, &shelf.form(&last.name, last.lasting())).map_err(failed("replacing the link", link))
    }

    fn delete(&self, shelf: &Shelf) -> Result<(), SinkError> {
        let closed = shelf.look().map_err(failed("reading", shelf.directory()))?.closed;
        let mut deleted = Ok(());
        for closed in retention::past(&closed, &self.rotation.keep, Timestamp::now()) {
            for (form, bytes) in closed.forms() {
                let path = shelf.form(&closed.name, form);
                let removed = remove(&path).map_err(failed("deleting", &path));
                if removed.is_ok() {
                    tracing::info!(path = %path.display(), bytes, "closed file deleted: its time is over");
                }
                deleted = deleted.and(removed);
            }
        }
        deleted
    }

    fn index(&self, shelf: &Shelf) -> Result<(), SinkError> {
        let path = shelf.index();
        let mut index = Index::load(shelf).map_err(failed("reading", &path))?;
        let closed = shelf.look().map_err(failed("reading", shelf.directory()))?.closed;
        let seen = index.seen;
        for closed in closed.iter().filter(|closed| seen.is_none_or(|seen| seen < closed.stamp)) {
            if self.stop.is_cancelled() {
                return Ok(());
            }
            let path = shelf.path(&closed.name);
            let channels = shelf.reader(&closed.name).and_then(|reader| reader.map(finding::channels).transpose());
            index.add(closed.stamp, &channels.map_err(failed("reading", &path))?.unwrap_or_default());
            index.store(shelf).map_err(failed("writing", &shelf.index()))?;
        }
        Ok(())
    }

    /// Leaves one form of a closed file: the compressed one, where files are compressed.
    fn compress(&mut self, shelf: &Shelf, closed: &Closed) -> Result<(), SinkError> {
        if closed.plain.is_none() || closed.marked {
            return Ok(());
        }
        let plain = shelf.path(&closed.name);
        let compression = match (closed.lasting(), self.rotation.compression) {
            (Some(there), _) => there,
            (None, None) => return Ok(()),
            (None, Some(chosen)) => {
                let (unfinished, packed) =
                    (shelf.unfinished(&closed.name, chosen), shelf.form(&closed.name, Some(chosen)));
                match pack(chosen, &plain, &unfinished, &packed, &self.stop) {
                    // Deleted or taken away meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound && !plain.exists() => return Ok(()),
                    packed => packed.map_err(failed("compressing", &plain))?,
                }
                chosen
            }
        };
        self.settle(shelf, closed, compression)
    }

    /// Removes the plain form of a file, if the compressed one holds the same.
    fn settle(&mut self, shelf: &Shelf, closed: &Closed, compression: Compression) -> Result<(), SinkError> {
        let (plain, packed) = (shelf.path(&closed.name), shelf.form(&closed.name, Some(compression)));
        match same(&plain, &packed, compression, &self.stop) {
            Ok(true) => {
                let standing = shelf.look().map_err(failed("reading", shelf.directory()))?;
                self.link(shelf, &standing.closed)?;
                remove(&plain).map_err(failed("removing", &plain))?;
                let bytes = closed.plain.unwrap_or_default();
                let left = fs::metadata(&packed).map_or(0, |metadata| metadata.len());
                tracing::info!(path = %packed.display(), bytes, left, "closed file compressed");
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound || self.stop.is_cancelled() => Ok(()),
            differ => {
                if self.told.insert(closed.name.clone()) {
                    let error = differ.err().map(|error| error.to_string());
                    tracing::warn!(path = %plain.display(), compressed = %packed.display(), error,
                        "closed file stands there plain and compressed, and the two differ: both stay, remove one");
                }
                Ok(())
            }
        }
    }
}

/// Removes an unfinished file, unless somebody is at it.
fn throw_away(unfinished: &PathBuf) -> io::Result<()> {
    let file = match File::open(unfinished) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => remove(unfinished),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(ErrorKind::ResourceBusy, "it is being written")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What has gone already is removed.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
