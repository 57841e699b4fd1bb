//! sled: the store of one process, in a directory of its own, with a readable mirror beside the database.
//!
//! # Invariants
//!
//! * **On disk before it counts.** A commit is answered after the database's files, and then the mirror, have been synced.
//!   sled's own flush ends in `sync_file_range`, which is no durability barrier.
//! * **One process.** The directory is locked as long as the store lives.
//! * **A failed write is final.** What a failed sync left on disk is unknown, and sled refuses to go on: the daemon ends,
//!   and the next start reads what is there. What was not recorded is read again from the service.
//! * **Off the async threads.** All of it runs on blocking threads.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Lease, Lost, Outcome, Store};
use crate::event::ChannelId;
use crate::ledger::{Effects, Key, StateError, Value};

mod database;
mod directory;
mod mirror;
mod recovery;
#[cfg(test)]
mod tests;

use database::Database;
use directory::{DatabaseFiles, Directory};
use mirror::{Contents, Mirror};

/// The open state directory.
#[derive(Clone, Debug)]
pub struct Sled {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    database: Database,
    disk: Mutex<Disk>,
    directory: Directory,
}

/// What has to be synced for a commit to be on disk.
#[derive(Debug)]
struct Disk {
    files: DatabaseFiles,
    mirror: Mirror,
    contents: Contents,
    /// The write that failed: it was the last.
    failed: Option<StateError>,
}

impl Sled {
    /// Opens the state in `path`, creating it where there is none, and restoring the cursors from the mirror where the
    /// database is damaged. Blocks.
    ///
    /// # Errors
    /// [`StateError`]: nothing is started on a state that is not known to be right.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let directory = Directory::lock(path)?;
        let (database, contents) = recovery::open(&directory)?;
        let (files, mirror) = (directory.database_files(), directory.mirror());
        // So that there is one from the first moment on.
        mirror.write(&contents).inspect_err(|_| database.abandon())?;
        let disk = Mutex::new(Disk { files, mirror, contents, failed: None });
        Ok(Self { inner: Arc::new(Inner { database, disk, directory }) })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        let inner = self.inner.clone();
        let worked = tokio::task::spawn_blocking(move || work(&inner)).await;
        worked.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())))
    }
}

#[async_trait]
impl Store for Sled {
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Vec<(Key, Value)>)>, StateError> {
        let entries = self.blocking(move |inner| inner.database.entries(channel)).await?;
        Ok(Some((Lease::for_ever(channel), entries)))
    }

    async fn commit(&self, group: Arc<[(Lease, Effects)]>) -> Vec<Outcome> {
        let channels = group.len();
        match self.blocking(move |inner| inner.write(&group)).await {
            Ok(()) => vec![Outcome::Ok; channels],
            Err(error) => vec![Outcome::Fatal(error); channels],
        }
    }

    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError> {
        self.blocking(move |inner| inner.database.get(channel, &key)).await
    }

    async fn release(&self, _: Lease) {}

    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        self.blocking(|inner| inner.database.channels()).await
    }

    async fn check(&self) -> Result<(), StateError> {
        self.blocking(|inner| inner.directory.check()).await
    }

    fn lost(&self) -> Option<Lost> {
        self.inner.disk().contents.lost.clone()
    }

    async fn acknowledge_lost(&self) -> Result<Option<Lost>, StateError> {
        self.blocking(|inner| {
            let mut disk = inner.disk();
            let lost = disk.contents.lost.take();
            disk.mirror.write(&disk.contents)?;
            Ok(lost)
        })
        .await
    }
}

impl Inner {
    /// Writes effects and syncs them. Nothing follows a failure: neither the mirror, which would be ahead of the database,
    /// nor another commit.
    fn write(&self, group: &[(Lease, Effects)]) -> Result<(), StateError> {
        let mut disk = self.disk();
        if let Some(failed) = &disk.failed {
            return Err(failed.clone());
        }
        let written = self.database.apply(group).and_then(|()| disk.sync(group));
        written.inspect_err(|error| {
            disk.failed = Some(error.clone());
            self.database.abandon();
        })
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn sync(&mut self, group: &[(Lease, Effects)]) -> Result<(), StateError> {
        self.files.sync()?;
        for (lease, effects) in group {
            self.contents.channels.insert(lease.channel, effects.summary.clone());
        }
        self.mirror.write(&self.contents)
    }
}
