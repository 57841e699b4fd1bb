//! Maintains closed files while deliveries continue: compresses closed files, updates the link to the newest one, and
//! deletes files that exceed the operator's bounds.
//!
//! The upkeep runs at the start and after each rotation. If the rotation or a bound depends on time, it also checks the clock
//! at regular intervals. It does not sleep until a computed time, because the clock may be set, or the machine suspended.
//!
//! # Invariants
//!
//! * **The directory determines the work,** also after a crash. An unfinished file is removed. If a file exists plain and
//!   compressed, and both have the same content, the plain one is removed. If the contents differ, both stay, and a warning is
//!   logged once.
//! * **One failure does not stop the other tasks.** A failure is logged once, and the upkeep is run again.
//! * **No event is lost or repeated.** A file is deleted only if it exceeds the bounds, or if its content exists twice. The
//!   file that was closed last always stays: after a crash it may contain lines that are not recorded.
//! * **The age of a file comes from its name,** which contains a time of the daemon's clock. The times that a file system
//!   or a file server stores are not used. If files are closed by time, `keep_files` counts periods. Additional files
//!   within one period therefore do not displace older files.
//!
//! # Cancellation
//!
//! The task ends with its sink, at any wait. The task then cancels `stop`. The blocking part checks `stop` between files
//! and chunks. Neither the task nor the blocking part keeps the sink's file open, so the next sink at the same path can
//! lock the file.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::blocking;
use super::closed::index::Index;
use super::closed::name::{file_name, unfinished};
use super::closed::{ClosedFile, ClosedFiles, is_same, pack};
use super::journal::Journal;
use super::settings::Rotation;
use crate::SinkError;
use crate::system::{IoContext, directory_of, if_there, lock};
use net::Chain;
use net::retry::{Retry, RetryPolicy};
use telemetry::metrics::{Upkeep as Task, UpkeepFailures};

/// The longest time between two checks of the clock.
const CLOCK: Duration = Duration::from_secs(30);

const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// Maintains the closed files of a sink until the sink is dropped.
pub(super) async fn look_after(journal: Weak<Mutex<Journal>>, rotation: Rotation) {
    let stop = CancellationToken::new();
    let _ends_with_the_task = stop.clone().drop_guard();
    let mut retry = Retry::new(RETRY);
    let by_the_clock = rotation.every.is_some() || rotation.keep.time.is_some();
    let clock = if by_the_clock { rotation.every.map_or(CLOCK, |every| every.min(CLOCK)) } else { Duration::MAX };
    let mut upkeep = Upkeep { rotation, stop, reported: HashSet::new() };
    while let Some(journal) = journal.upgrade() {
        let mut journal = journal.lock_owned().await;
        let (opened, failures) = (Arc::clone(&journal.opened), journal.failures.clone());
        let done;
        (upkeep, done) = blocking(move || {
            let files = journal.close_by_the_clock();
            // Deliveries can continue from here.
            drop(journal);
            let done = files.and_then(|files| files.map_or(Ok(()), |files| upkeep.run(&files, &failures)));
            (upkeep, done)
        })
        .await;
        let failures = retry.attempt();
        let wait = if let Err(error) = done {
            let wait = retry.next_wait(None);
            if failures == 0 {
                tracing::warn!(wait_ms = wait.as_millis(), error = %Chain(&error),
                    "closed files cannot be maintained: retrying, events are not affected");
            }
            wait
        } else {
            if failures > 0 {
                tracing::info!("closed files are maintained again");
            }
            retry.reset();
            clock
        };
        tokio::select! { () = opened.notified() => {}, () = tokio::time::sleep(wait) => {} }
    }
}

#[derive(Debug)]
pub(super) struct Upkeep {
    pub(super) rotation: Rotation,
    pub(super) stop: CancellationToken,
    /// The names of the files whose plain and compressed forms differ, and for which this was already logged.
    pub(super) reported: HashSet<String>,
}

impl Upkeep {
    /// Runs all tasks once. Returns the first error, after the other tasks were still run.
    pub(super) fn run(&mut self, files: &ClosedFiles, failures: &UpkeepFailures) -> Result<(), SinkError> {
        let done = [
            (Task::Other, remove_unfinished(files)),
            (Task::Other, self.link(files)),
            // Delete before compressing, because compressing needs disk space.
            (Task::Delete, self.delete(files)),
            (Task::Other, Index::update(files, &self.stop)),
            (Task::Compress, self.compress_all(files)),
            (Task::Delete, self.delete(files)),
        ];
        if self.stop.is_cancelled() {
            return Ok(());
        }
        let count = |(task, done): (Task, Result<_, _>)| done.inspect_err(|_| failures.count(task));
        done.map(count).into_iter().collect()
    }

    /// Points the link to the file that was closed last: to its compressed form if it exists, otherwise to the plain form.
    fn link(&self, files: &ClosedFiles) -> Result<(), SinkError> {
        let Some(link) = &self.rotation.latest_link else { return Ok(()) };
        let Some(last) = files.list()?.pop() else { return Ok(()) };
        point(link, &files.path(&last.name, last.packed())).doing("replacing the link", link)
    }

    fn delete(&self, files: &ClosedFiles) -> Result<(), SinkError> {
        let mut deleted = Ok(());
        for closed in past(&files.list()?, &self.rotation, Timestamp::now()) {
            for (form, bytes) in &closed.forms {
                let path = files.path(&closed.name, *form);
                let removed = remove(&path).doing("deleting", &path);
                if removed.is_ok() {
                    tracing::info!(path = %path.display(), bytes, "closed file deleted: it exceeded keep_files, keep_for or keep_size");
                }
                deleted = deleted.and(removed);
            }
        }
        deleted
    }

    fn compress_all(&mut self, files: &ClosedFiles) -> Result<(), SinkError> {
        let mut compressed = Ok(());
        for closed in files.list()? {
            if !self.stop.is_cancelled() && closed.forms.contains_key(&None) && !closed.marked {
                compressed = compressed.and(self.compress(files, &closed));
            }
        }
        compressed
    }

    /// Replaces the plain form of a closed file with the compressed form. Does nothing if the file has no compressed form
    /// and files are not compressed.
    fn compress(&mut self, files: &ClosedFiles, closed: &ClosedFile) -> Result<(), SinkError> {
        let Some(compression) = closed.packed().or(self.rotation.compression) else { return Ok(()) };
        let (plain, packed) = (files.path(&closed.name, None), files.path(&closed.name, Some(compression)));
        if closed.packed().is_none() {
            match pack(&plain, &packed, compression, &self.stop) {
                // The file was deleted or moved away in the meantime.
                Err(error) if error.kind() == ErrorKind::NotFound && !plain.exists() => return Ok(()),
                made => made.doing("compressing", &plain)?,
            }
        }
        match is_same(&plain, &packed, compression, &self.stop) {
            Ok(true) => {
                // The link must point to the compressed file before the plain one is removed.
                self.link(files)?;
                remove(&plain).doing("removing", &plain)?;
                let (bytes, left) = (closed.forms[&None], fs::metadata(&packed).map_or(0, |packed| packed.len()));
                tracing::info!(path = %packed.display(), bytes, left, "closed file compressed");
            }
            Err(error) if error.kind() == ErrorKind::NotFound || self.stop.is_cancelled() => {}
            differ if self.reported.insert(closed.name.clone()) => {
                let error = differ.err().map(|error| error.to_string());
                tracing::warn!(path = %plain.display(), compressed = %packed.display(), error,
                    "closed file exists plain and compressed, and the contents differ: both are kept, remove one");
            }
            _ => {}
        }
        Ok(())
    }
}

/// The closed files that exceed the bounds, the oldest first. A marked file stays, and does not count toward the bounds.
fn past<'a>(closed: &'a [ClosedFile], rotation: &Rotation, now: Timestamp) -> Vec<&'a ClosedFile> {
    let keep = &rotation.keep;
    let oldest = keep.time.and_then(|time| now.checked_sub(time).ok());
    let periods_since = |time| rotation.period(now)?.checked_sub(rotation.period(time)?);
    let (mut files, mut size) = (0, 0_u64);
    let mut past = Vec::new();
    for (age, closed) in closed.iter().rev().enumerate().filter(|(_, closed)| !closed.marked) {
        files += 1;
        size = size.saturating_add(closed.forms.values().sum());
        let too_many = keep.files.is_some_and(|most| {
            let is_recent = |since| usize::try_from(since).unwrap_or(0) < most.get();
            files > most.get() && !periods_since(closed.time).is_some_and(is_recent)
        });
        let too_large = keep.size.is_some_and(|most| size > most);
        let too_old = oldest.is_some_and(|oldest| closed.time < oldest);
        if age > 0 && (too_many || too_large || too_old) {
            past.push(closed);
        }
    }
    past.reverse();
    past
}

/// Points `link` to a file atomically: a new link is renamed onto it. Only a symbolic link is replaced.
fn point(link: &Path, to: &Path) -> io::Result<()> {
    let is_beside = fs::canonicalize(directory_of(link)).ok().as_deref() == to.parent();
    let target = if is_beside { PathBuf::from(file_name(to)) } else { to.to_owned() };
    let now = if_there(fs::read_link(link)).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            io::Error::new(ErrorKind::AlreadyExists, "it is not a symbolic link: remove it, or choose another name")
        }
        _ => error,
    })?;
    if now.as_ref() == Some(&target) {
        return Ok(());
    }
    let unfinished = unfinished(link);
    remove(&unfinished)?;
    symlink(target, &unfinished)?;
    fs::rename(unfinished, link)
}

/// Removes the unfinished files that a crash left, unless another task is writing them.
fn remove_unfinished(files: &ClosedFiles) -> Result<(), SinkError> {
    let remove = |path: &Path| match if_there(File::open(path))? {
        Some(file) => lock(&file).and_then(|()| remove(path)),
        None => Ok(()),
    };
    files.unfinished()?.iter().map(|path| remove(path).doing("removing", path)).fold(Ok(()), Result::and)
}

/// Removes a file. A file that no longer exists counts as removed.
fn remove(path: &Path) -> io::Result<()> {
    if_there(fs::remove_file(path)).map(drop)
}

#[cfg(test)]
mod tests;
