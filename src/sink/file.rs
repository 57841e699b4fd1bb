//! Appends events to a file, one line per event and each event exactly once.
//!
//! The blocking [`Journal`] does the work. This module runs it off the async threads, one batch at a time.
//!
//! ```text
//! deliver ──► journal ──► append        appends to the active file and syncs it
//!                │  └───► opening       locks and mends the active file; refuses unsuitable files
//! resume ────────┴──────► read_back     compares the content of the files with the recorded state and the service
//!                            │
//!             index, lines ◄─┘          selects the closed files to search; parses the event of a line
//!               ▲
//! upkeep ───────┴───────► closed, name  lists, compresses, reads and names closed files
//! watch ────► journal                    looks whether another program has changed the active file
//! ```
//!
//! # Invariants
//!
//! * **Synced before `Ok`.** A batch counts as delivered when its bytes are on the disk.
//! * **Exactly once across crashes.** At [`resume`](Sink::resume) the sink searches the active file and its closed files
//!   for events that are not recorded as delivered, and skips these events when they are offered again.
//! * **Lost lines are noticed,** at `resume`, before each batch ([`SinkError::Displaced`]), and every few seconds. A file
//!   loses lines if it is replaced, or restored from a backup. The lane delivers everything after the newest remaining line
//!   again (see `read_back.rs`).
//! * **Events are compared by offset and id.** Two events at one offset are both written.
//! * **One writer.** The file is locked while it is open. A second daemon or sink with the same path is refused.
//!
//! # Other programs that rotate
//!
//! Before each batch, and at each `reopen` (SIGHUP), the sink checks whether its file was moved or removed, and if so
//! continues in a new file. The sink does not know where the old file is. If the daemon crashes during a batch, and the
//! file is moved before the next start, that batch is written again. Therefore rotate while the daemon runs, or after the
//! daemon was stopped normally.
//!
//! A program that compresses a file immediately after moving it may do so while a batch is still being written
//! (`delaycompress` avoids this). A program that copies the file and then empties it (`copytruncate`) loses the lines that
//! are written between the two steps.
//!
//! # Cancellation
//!
//! Work that has started is finished under the lock, even if its future is dropped. No reader sees a half-written batch.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Delivery, LaneRef, Oldest, Position, Recorded, Resumed, Sink, SinkError, Undelivered, blocking, with_warning,
};
use crate::system::early_ack;
use proof::event::{ChannelId, EventKey};
use telemetry::metrics::UpkeepFailures;

mod append;
mod closed;
mod journal;
mod lines;
mod opening;
mod read_back;
mod settings;
mod upkeep;

pub use closed::name::{ClosedName, Compression};
pub use settings::{Access, FileLocation, FileSettings, Keep, OpenFiles, Rotation};

use journal::Journal;

/// The time between two looks at the active file.
const LOOK: Duration = Duration::from_secs(3);

/// Appends events to a file, shared by any number of channels.
#[derive(Debug)]
pub struct File {
    journal: Arc<Mutex<Journal>>,
    settings: FileSettings,
    /// The watcher and the upkeep. Started at the first use, because they need an async runtime.
    tasks: OnceLock<Vec<AbortOnDropHandle<()>>>,
}

impl File {
    /// Creates the sink. The file is opened at the first use. The file is not opened if another sink in `open` has files
    /// that could be confused with this file or its closed files. Until the file can be opened, each use returns
    /// [`SinkError::Io`].
    pub fn new(settings: FileSettings, open: OpenFiles, failures: UpkeepFailures) -> Self {
        let journal = Arc::new(Mutex::new(Journal::new(settings.clone(), open, failures)));
        Self { journal, settings, tasks: OnceLock::new() }
    }

    /// Runs `work` on the journal. The lock is held until the work has ended, even if this future is dropped.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        self.tasks.get_or_init(|| {
            let journal = || Arc::downgrade(&self.journal);
            let watcher = tokio::spawn(watch(journal()));
            let upkeep = self.settings.rotation.clone();
            let upkeep = upkeep.map(|rotation| tokio::spawn(upkeep::look_after(journal(), rotation)));
            [watcher].into_iter().chain(upkeep).map(AbortOnDropHandle::new).collect()
        });
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
        let resumed = blocking(move || snapshot.compare(&recorded)).await?;
        // The lane does not offer these events. If an operator replays one of them later, it must be written.
        let is_offered = |key: &&EventKey| !read_back::is_settled(lane, key);
        let held = resumed.held.iter().filter(is_offered).copied().collect();
        self.locked(move |journal| {
            journal.pass_over(channel, held, compared_at);
            Ok(())
        })
        .await?;
        Ok(resumed)
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let channel = lane.channel.id;
        let snapshot = self.locked(Journal::snapshot).await?;
        blocking(move || snapshot.position(channel)).await
    }

    async fn oldest(&self, channel: ChannelId) -> Result<Oldest, SinkError> {
        let settings = self.settings.clone();
        blocking(move || read_back::oldest(&settings, channel)).await
    }

    async fn holds(&self, channel: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        let (settings, keys) = (self.settings.clone(), keys.clone());
        blocking(move || read_back::holds(&settings, channel, &keys)).await
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let settings = self.settings.clone();
        let said = blocking(move || opening::probe(&settings)).await?;
        Ok(with_warning(said, self.early_ack().await))
    }

    async fn early_ack(&self) -> Option<String> {
        early_ack(self.settings.path.clone()).await
    }

    async fn reopen(&self) -> Result<(), SinkError> {
        self.locked(Journal::open).await
    }

    async fn displaced(&self, lane: &LaneRef) {
        let compared = self.journal.lock().await.compared(lane.channel.id);
        let Some((compared_at, mut count)) = compared else { return std::future::pending().await };
        // The sender lives as long as the sink.
        let _ = count.wait_for(|count| *count != compared_at).await;
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let (channel, batch) = (delivery.lane.channel.id, delivery.messages.to_vec());
        let appended = self.locked(move |journal| journal.append(channel, &batch)).await;
        appended.map_err(|error| Undelivered::after(0, error))
    }
}

/// Looks at the active file at regular intervals, until the sink is dropped. A file that another program has restored or
/// replaced would otherwise be noticed only at the next batch, and a quiet channel has none for hours.
async fn watch(journal: Weak<Mutex<Journal>>) {
    let mut other = None;
    loop {
        sleep(LOOK).await;
        let Some(journal) = journal.upgrade() else { return };
        let mut journal = journal.lock_owned().await;
        other = blocking(move || journal.look(other)).await;
    }
}

#[cfg(test)]
mod tests;
