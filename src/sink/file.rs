//! A file: one line an event, each event exactly once.
//!
//! The work is done by the blocking [`Journal`]; here it is taken off the async threads, one batch at a time.
//!
//! ```text
//! deliver ──► journal ──► tail          the active file: appended to, synced
//!                │  └───► opening       locked, mended; which files are refused
//! resume ────────┴──────► read_back     what the files hold, compared with what is recorded
//!                            │
//!             index, lines ◄─┘          which closed files to search; which event a line holds
//!               ▲
//! upkeep ───────┴───────► compression   closed files: compressed, linked to, deleted
//!                └──────► closed, name  which stand in the directory, and what they are called
//! oldest, holds ────────► holdings      which events the files hold, for a comparison with the service
//! ```
//!
//! # Invariants
//!
//! * **Synced before `Ok`.** A batch counts as delivered when its bytes are on the disk.
//! * **Exactly once across crashes.** At [`resume`](Sink::resume) the sink reads what the files hold beyond what is
//!   recorded, the active one and those it has closed, and passes over it when it is offered again.
//! * **A file that has lost lines is noticed.** It was restored from a backup or replaced, while the daemon was stopped or
//!   while it runs. `resume` then returns the position of the newest line that is left, see `read_back.rs`, and the lane
//!   delivers the rest again. A running sink notices it before the next batch ([`SinkError::Displaced`]).
//! * **Events are compared by offset and id.** Two events at one offset are both written.
//! * **One writer.** The file is locked as long as it is open. A second daemon, or a second sink with the same path, is
//!   refused.
//!
//! # Other programs that rotate
//!
//! Before each batch, and at each `reopen` (so on SIGHUP, even when no event comes), the sink notices that its file was
//! moved or removed, and goes on in a new one. It does not know where the old one is now: if the daemon crashed within its
//! last batch, and the file is moved before it starts again, that batch is written again. Rotate while the daemon runs, or
//! after it was stopped. A program that compresses a file as soon as it has moved it may do so while a batch is still
//! written to it: with logrotate, `delaycompress` avoids that. A program that copies the file and then empties it
//! (logrotate's `copytruncate`) loses what is written between the two; the sink cannot prevent that. An active file that is
//! absent, is empty or holds no recorded event of a channel is what such programs leave: it does not change a position.
//!
//! # Cancellation
//!
//! Work that was begun is finished under the lock, whether or not it is still awaited: no reader meets a half-written
//! batch. A delivery that is not awaited to its end may or may not have happened; only a new `resume` can tell.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::{Delivery, LaneRef, Oldest, Position, Recorded, Resumed, Sink, SinkError, Tested, Undelivered, blocking};
use proof::event::{ChannelId, EventKey};
use telemetry::metrics::UpkeepFailures;

mod closed;
mod compression;
mod holdings;
mod index;
mod journal;
mod lines;
mod name;
mod open_files;
mod opening;
mod place;
mod read_back;
mod settings;
mod tail;
mod upkeep;

pub use compression::Compression;
pub use name::ClosedName;
pub use open_files::OpenFiles;
pub use place::Place;
pub use settings::{Access, FileSettings, Keep, Rotation};

use journal::Journal;
use read_back::Comparison;

/// Appends events to a file, shared by any number of channels.
#[derive(Debug)]
pub struct File {
    journal: Arc<Mutex<Journal>>,
    settings: FileSettings,
    /// Begun at the first use, which is in a runtime.
    upkeep: OnceLock<AbortOnDropHandle<()>>,
}

impl File {
    /// The file, opened when it is first used, and created in a directory that exists. Until it can be opened, each use of
    /// it is a [`SinkError::Io`].
    /// It refuses to be opened where its files would be mixed up with others among `open`.
    /// `failures` counts what fails in the upkeep of its files.
    pub fn new(settings: FileSettings, open: OpenFiles, failures: UpkeepFailures) -> Self {
        let journal = Arc::new(Mutex::new(Journal::new(settings.clone(), open, failures)));
        Self { journal, settings, upkeep: OnceLock::new() }
    }

    /// Runs `work` on the journal, and holds the lock until it has ended, awaited or not.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        if let Some(rotation) = &self.settings.rotation {
            self.upkeep.get_or_init(|| {
                let upkeep = upkeep::look_after(Arc::downgrade(&self.journal), rotation.clone());
                AbortOnDropHandle::new(tokio::spawn(upkeep))
            });
        }
        let mut journal = Arc::clone(&self.journal).lock_owned().await;
        blocking(move || work(&mut journal)).await
    }
}

#[async_trait]
impl Sink for File {
    async fn resume(&self, lane: &Recorded) -> Result<Resumed, SinkError> {
        let (channel, recorded) = (lane.lane.channel.id, lane.clone());
        let snapshot = self.locked(Journal::snapshot).await?;
        let compared_at = snapshot.displacements;
        // Reading back may take a while in a large file, and holds back no other channel.
        let Comparison { position, held } = blocking(move || snapshot.compare(&recorded)).await?;
        let skipped = held.clone();
        self.locked(move |journal| {
            journal.pass_over(channel, skipped, compared_at);
            Ok(())
        })
        .await?;
        Ok(Resumed { position, held })
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let channel = lane.channel.id;
        let snapshot = self.locked(Journal::snapshot).await?;
        blocking(move || snapshot.position(channel)).await
    }

    async fn oldest(&self, channel: ChannelId) -> Result<Oldest, SinkError> {
        let settings = self.settings.clone();
        blocking(move || holdings::oldest(&settings, channel)).await
    }

    async fn holds(&self, channel: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        let (settings, keys) = (self.settings.clone(), keys.clone());
        blocking(move || holdings::holds(&settings, channel, &keys)).await
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let path = self.settings.path.clone();
        blocking(move || opening::probe(&path)).await
    }

    /// Writes nothing: what stands in the file is taken for an event, each of which is there once.
    async fn test(&self, _: &Delivery<'_>) -> Result<Tested, SinkError> {
        let seen = self.probe().await?;
        Ok(Tested::Looked(format!("{seen}; nothing is written, because each of its lines is an event, once")))
    }

    async fn reopen(&self) -> Result<(), SinkError> {
        self.locked(Journal::open).await
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let (channel, batch) = (delivery.lane.channel.id, delivery.messages.to_vec());
        let appended = self.locked(move |journal| journal.append(channel, &batch)).await;
        appended.map_err(|error| Undelivered::after(0, error))
    }
}

#[cfg(test)]
mod tests;
