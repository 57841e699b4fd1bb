//! The sled store, for a single process. It keeps its database in its own directory, with a readable mirror next to it.
//!
//! # Invariants
//!
//! * **Durable before it counts.** A commit is acknowledged after the database's files and then the mirror have been
//!   synced.
//! * **One process.** The directory is locked while the store exists.
//! * **A shortage is waited out.** If the disk is full, or no file can be opened, the commit is written again later. Room on the
//!   disk is reserved before each write, and a few descriptors are kept for the state.
//! * **Any other failed write is final.** After a failed sync the contents of the disk are unknown, and sled refuses to
//!   continue. The daemon therefore ends, and the next start reads the stored state. Events that were not recorded are
//!   read again from the service.
//! * **Off the async threads.** All work runs on blocking threads.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::directory::{self, Directory, Used};
use super::{CommitOutcome, Lease, LostEntries, Store, blocking};
use crate::{Effects, Entries, Key, StateError};
use net::tasks::lock;
use proof::event::ChannelId;

mod bodies;
mod database;
mod mirror;
mod recovery;
mod reserve;
mod room;
#[cfg(test)]
mod tests;

use database::Database;
use mirror::MirrorText;
use reserve::Reserve;

/// The open state directory. Clones share it.
#[derive(Clone, Debug)]
pub struct Sled {
    database: Arc<Database>,
    /// The last written mirror. Locked while a commit is written.
    mirror: Arc<Mutex<MirrorText>>,
    /// The losses in the mirror. This is a separate field because reading it must not wait for the disk.
    lost: watch::Sender<Option<LostEntries>>,
    reserve: Arc<Reserve>,
    /// The last field, because the directory must stay locked until the database is closed.
    directory: Arc<Directory>,
}

impl Sled {
    /// Opens the state in `path`. Creates it if it does not exist, and restores the cursors from the mirror if the
    /// database is damaged. Blocks.
    ///
    /// # Errors
    /// [`StateError`]: the daemon does not start on a state that may be wrong.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let directory = Directory::lock(path)?;
        recovery::check(path)?;
        Self::open_locked(directory)
    }

    /// Opens the state as the target of a copy. Removes the leftovers of an interrupted copy. Blocks.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open_for_copy(path: &Path) -> Result<Self, StateError> {
        let directory = Directory::lock(path)?;
        recovery::discard_incomplete(&directory)?;
        Self::open_locked(directory)
    }

    fn open_locked(directory: Directory) -> Result<Self, StateError> {
        let reserve = Arc::new(Reserve::open()?);
        room::check_to_open(&directory.path)?;
        let (database, mirror) = recovery::open(&directory)?;
        Used::change(&directory.path, |used| used.sled = true).inspect_err(|_| database.abandon())?;
        let lost = watch::Sender::new(mirror.lost.clone());
        let (database, mirror) = (Arc::new(database), Arc::new(Mutex::new(mirror)));
        Ok(Self { database, mirror, lost, reserve, directory: Arc::new(directory) })
    }

    /// Describes what [`open`](Self::open) would find or create at `path`. Does not create or open anything.
    pub(super) fn examine(path: &Path) -> Result<String, StateError> {
        let found = Directory::examine(path)?;
        recovery::check(path)?;
        // `open_locked` reads this file too.
        Used::read(path)?;
        if path.exists() {
            room::check_to_open(path)?;
        }
        Ok(found)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        let sled = self.clone();
        blocking(move || work(&sled)).await
    }

    /// Writes effects to the database and then to the mirror, so that the mirror is never ahead.
    fn write(&self, group: &[(Lease, Effects)]) -> Result<(), StateError> {
        let mut mirror = lock(&self.mirror);
        self.database.apply(group)?;
        for (lease, effects) in group {
            mirror.insert(lease.channel, &effects.summary);
        }
        mirror.write(&self.directory.path).inspect_err(|error| {
            if error.shortage().is_none() {
                self.database.abandon();
            }
        })
    }

    fn change_mirror(&self, change: impl FnOnce(&mut MirrorText)) -> Result<(), StateError> {
        let mut mirror = lock(&self.mirror);
        let mut changed = mirror.clone();
        change(&mut changed);
        changed.write(&self.directory.path)?;
        *mirror = changed;
        Ok(())
    }
}

#[async_trait]
impl Store for Sled {
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError> {
        Ok(Some((Lease::for_ever(channel), self.entries(channel).await?)))
    }

    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError> {
        self.blocking(move |sled| sled.database.entries(channel)).await
    }

    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<CommitOutcome> {
        let channels = group.len();
        match self.blocking(move |sled| sled.reserve.during(|| sled.write(&group))).await {
            Ok(()) => vec![CommitOutcome::Ok; channels],
            // The same effects are written again until the shortage ends, perhaps in smaller groups.
            Err(error) if error.shortage().is_some() && !self.database.is_abandoned() => {
                vec![CommitOutcome::Unavailable(error); channels]
            }
            Err(error) => vec![CommitOutcome::Fatal(error.until_restart()); channels],
        }
    }

    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError> {
        self.blocking(move |sled| sled.reserve.during(|| sled.database.get(channel, &key))).await
    }

    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        self.blocking(|sled| sled.database.channels()).await
    }

    async fn check(&self) -> Result<(), StateError> {
        self.blocking(|sled| {
            sled.directory.check()?;
            let log = sled.directory.database().join("db");
            std::fs::metadata(&log).map(drop).map_err(|_| directory::gone(&log))
        })
        .await
    }

    async fn is_incomplete(&self) -> Result<bool, StateError> {
        self.blocking(|sled| Ok(lock(&sled.mirror).incomplete)).await
    }

    async fn begin_copy(&self) -> Result<(), StateError> {
        self.blocking(|sled| sled.change_mirror(|mirror| mirror.incomplete = true)).await
    }

    async fn end_copy(&self) -> Result<(), StateError> {
        self.blocking(|sled| sled.change_mirror(|mirror| mirror.incomplete = false)).await
    }

    fn lost(&self) -> Option<LostEntries> {
        self.lost.borrow().clone()
    }

    async fn acknowledge_lost(&self) -> Result<Option<LostEntries>, StateError> {
        self.blocking(|sled| {
            sled.change_mirror(|mirror| mirror.lost = None)?;
            Ok(sled.lost.send_replace(None))
        })
        .await
    }
}
