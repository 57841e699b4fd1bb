//! Appends events to a file, one line per event and each event exactly once.
//!
//! The blocking [`Journal`] does the work. This module runs it off the async threads, one batch at a time.
//!
//! ```text
//! deliver ──► journal ──► tail          appends to the active file and syncs it
//!                │  └───► opening       locks and mends the active file; refuses unsuitable files
//! resume ────────┴──────► read_back     compares the content of the files with the recorded state
//!                            │
//!             index, lines ◄─┘          selects the closed files to search; parses the event of a line
//!               ▲
//! upkeep ───────┴───────► compression   compresses, links and deletes closed files
//!                └──────► closed, name  lists the closed files in the directory, and names them
//! oldest, holds ────────► holdings      finds events in the files, for a comparison with the service
//! ```
//!
//! # Invariants
//!
//! * **Synced before `Ok`.** A batch counts as delivered when its bytes are on the disk.
//! * **Exactly once across crashes.** At [`resume`](Sink::resume) the sink searches the active file and its closed files
//!   for events that are not recorded, and skips these events when they are offered again.
//! * **A file that has lost lines is noticed.** This happens if the file is restored from a backup or replaced, while the
//!   daemon is stopped or while it runs. `resume` then returns the position of the newest remaining line (see
//!   `read_back.rs`), and the lane delivers the rest again. A running sink notices the loss before the next batch
//!   ([`SinkError::Displaced`]).
//! * **Events are compared by offset and id.** Two events at one offset are both written.
//! * **One writer.** The file is locked while it is open. A second daemon, or a second sink with the same path, is
//!   refused.
//!
//! # Other programs that rotate
//!
//! Before each batch the sink checks whether its file was moved or removed, and if so continues in a new file. It also
//! checks this at each `reopen`, which SIGHUP triggers even if no event arrives. The sink does not know where the old file
//! is now. If the daemon crashes during its last batch, and the file is moved before the daemon starts again, that batch is
//! written again. Therefore rotate while the daemon runs, or after it was stopped normally.
//!
//! A program that compresses a file immediately after moving it may do so while a batch is still being written. With
//! logrotate, `delaycompress` avoids this. If a program copies the file and then empties it (logrotate's `copytruncate`),
//! lines that are written between the two steps are lost. The sink cannot prevent this. Such programs leave an active file
//! that is absent, is empty or has no recorded event of a channel. This does not change a position.
//!
//! # Cancellation
//!
//! Work that has started is finished under the lock, even if its future is dropped. No reader sees a half-written batch. If
//! the future of a delivery is dropped, the delivery may or may not have happened. Only a new `resume` can tell.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::{Delivery, LaneRef, Oldest, Position, Recorded, Resumed, Sink, SinkError, Tested, Undelivered, blocking};
use proof::event::{ChannelId, EventKey};
use telemetry::metrics::UpkeepFailures;

mod closed;
mod holdings;
mod journal;
mod lines;
mod opening;
mod place;
mod read_back;
mod settings;
mod system;
mod tail;
mod upkeep;

pub use closed::name::{ClosedName, Compression};
pub use place::{OpenFiles, Place};
pub use settings::{Access, FileSettings, Keep, Rotation};

use journal::Journal;
use read_back::Comparison;

/// Appends events to a file, shared by any number of channels.
#[derive(Debug)]
pub struct File {
    journal: Arc<Mutex<Journal>>,
    settings: FileSettings,
    /// Started at the first use, because it needs an async runtime.
    upkeep: OnceLock<AbortOnDropHandle<()>>,
}

impl File {
    /// Creates the sink. The file is opened on the first use, and created if its directory exists. Until the file can be
    /// opened, each use returns [`SinkError::Io`].
    /// The file is not opened if its names could be confused with the names of other files in `open`.
    /// `failures` counts the failures in the upkeep of the files.
    pub fn new(settings: FileSettings, open: OpenFiles, failures: UpkeepFailures) -> Self {
        let journal = Arc::new(Mutex::new(Journal::new(settings.clone(), open, failures)));
        Self { journal, settings, upkeep: OnceLock::new() }
    }

    /// Runs `work` on the journal. The lock is held until the work has ended, even if this future is dropped.
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
        // Reading back a large file can take long. The lock is not held, so that other channels are not delayed.
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

    /// Writes nothing, because each line of the file is considered an event, and each event must be there only once.
    async fn test(&self, _: &Delivery<'_>) -> Result<Tested, SinkError> {
        let seen = self.probe().await?;
        Ok(Tested::Looked(format!("{seen}; no test event is written, because each line of the file is an event")))
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
