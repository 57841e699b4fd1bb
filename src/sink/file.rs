//! A file: one line an event, each event exactly once.
//!
//! The work is done by the blocking [`Journal`]; here it is taken off the async threads, one batch at a time. What becomes
//! of files that were closed is the [`keeper`]'s business.
//!
//! ```text
//! deliver ──► journal ──► tail          the active file: appended to, synced
//!                │  ├───► cache         what of it the system shall not keep in memory
//!                │  └───► rotation      when it is closed, and in which steps
//!                └──────► finding       resume: what files hold beyond what is recorded
//! keeper ───► upkeep ──┬─► compression, retention, latest, index
//!                      └─► closed       what stands in the directory; name: what closed files are called
//! ```
//!
//! # Invariants
//!
//! * **Synced before `Ok`.** A batch counts as delivered when its bytes are on the disk.
//! * **All or nothing.** A batch that failed half-way is cut off again before anything else is written, so that the next
//!   attempt repeats no line. A batch is never torn over two files.
//! * **Exactly once across crashes.** At [`resume`](Sink::resume) the sink reads what the files hold beyond what is
//!   recorded, the active one and those it has closed, and passes over it when it is offered again.
//! * **One writer.** The file is locked as long as it is open; a second daemon, or a second sink with the same path, is
//!   refused.
//!
//! # Other programs that rotate
//!
//! The sink notices before each batch, and at each `reopen` (so on SIGHUP, whether or not an event comes), that its
//! path was moved or removed, and goes on in a new file. What it cannot know is where another program has moved the old
//! one: if the daemon crashed within its last batch, and the file is moved before it starts again, that batch is written
//! again. Rotate while the daemon runs, or after it has been stopped. A program that compresses at once what it has moved
//! may do so while a batch is still written to it: with logrotate, `delaycompress` avoids that. One that copies the file
//! and then empties it (logrotate's `copytruncate`) loses what is written between the two: nothing here can help that.
//!
//! # Cancellation
//!
//! Work that was begun is finished under the lock, whether or not it is still awaited: nobody ever meets a half-written
//! batch. A delivery that is not awaited to its end may or may not have happened; only a new `resume` can tell.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Recorded, Sink, SinkError, Undelivered, blocking};
use crate::event::Offset;
use crate::record::{ChannelRef, Message};

mod cache;
mod closed;
mod compression;
mod config;
mod finding;
mod index;
mod journal;
mod keeper;
mod latest;
mod lines;
mod name;
mod opening;
mod probe;
mod retention;
mod rotation;
mod settings;
mod tail;
mod target;
mod upkeep;

pub use compression::Compression;
pub(super) use config::KIND;
pub use name::ClosedName;
pub use settings::{Access, FileSettings, Keep, Rotation};

use journal::Journal;

/// Appends events to a file, shared by any number of channels.
#[derive(Debug)]
pub struct File {
    slot: Arc<Mutex<Slot>>,
    path: PathBuf,
    rotation: Option<Rotation>,
    rotated: Arc<Notify>,
    keeper: OnceLock<JoinSet<()>>,
    /// Ends what the keeper has begun off the async threads.
    stop: DropGuard,
}

/// The journal, once it has been opened.
#[derive(Debug)]
struct Slot {
    settings: FileSettings,
    rotated: Arc<Notify>,
    journal: Option<Journal>,
}

impl Slot {
    fn journal(&mut self) -> Result<&mut Journal, SinkError> {
        match &mut self.journal {
            Some(journal) => Ok(journal),
            empty => Ok(empty.insert(Journal::open(self.settings.clone(), self.rotated.clone())?)),
        }
    }
}

impl File {
    /// The file, opened when it is first used, and created in a directory that exists.
    ///
    /// What a crash has torn at its end is cut off; everything else is kept. Until it can be opened, each use of it is a
    /// [`SinkError::Io`]: it cannot be read, synced or locked, is no regular file (a symbolic link to one is followed),
    /// or holds something other than lines of JSON.
    #[must_use]
    pub fn new(settings: FileSettings) -> Self {
        let rotated = Arc::<Notify>::default();
        let (rotation, stop) = (settings.rotation.clone(), CancellationToken::new().drop_guard());
        let path = settings.path.clone();
        let slot = Slot { settings, rotated: rotated.clone(), journal: None };
        Self { slot: Arc::new(Mutex::new(slot)), path, rotation, rotated, keeper: OnceLock::new(), stop }
    }

    /// Runs `work` on the journal, and holds the lock until it has ended, awaited or not.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        self.keep();
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        blocking(move || work(slot.journal()?)).await
    }

    /// Has closed files looked after, from the first use on.
    fn keep(&self) {
        let Some(rotation) = &self.rotation else { return };
        self.keeper.get_or_init(|| {
            let mut keeper = JoinSet::new();
            let (slot, stop) = (Arc::downgrade(&self.slot), self.stop.token().clone());
            keeper.spawn(keeper::keep(slot, rotation.clone(), self.rotated.clone(), stop));
            keeper
        });
    }
}

#[async_trait]
impl Sink for File {
    async fn resume(&self, recorded: &Recorded) -> Result<BTreeSet<Offset>, SinkError> {
        let channel = recorded.channel.id;
        let recorded = recorded.clone();
        let written = self.locked(Journal::written).await?;
        // Reading back may take a while in a large file, and holds back no other channel.
        let unrecorded = blocking(move || written.unrecorded(&recorded)).await?;
        let held = unrecorded.offsets();
        self.locked(move |journal| {
            journal.pass_over(channel, unrecorded);
            Ok(())
        })
        .await?;
        Ok(held)
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let path = self.path.clone();
        blocking(move || probe::look_at(&path)).await
    }

    async fn reopen(&self) -> Result<(), SinkError> {
        self.locked(Journal::follow_path).await
    }

    async fn deliver(&self, channel: &ChannelRef, batch: &[Message]) -> Result<(), Undelivered> {
        let (channel, batch) = (channel.id, batch.to_vec());
        let result = self.locked(move |journal| journal.append(channel, &batch)).await;
        result.map_err(|error| Undelivered::after(0, error))
    }
}

#[cfg(test)]
mod tests;
