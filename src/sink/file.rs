//! A file: one line an event, each event exactly once.
//!
//! The work is done by the blocking [`Journal`]; here it is taken off the async threads, one batch at a time.
//!
//! # Invariants
//!
//! * **Synced before `Ok`.** A batch counts as delivered when its bytes are on the disk.
//! * **All or nothing.** A batch that failed half-way is cut off again before anything else is written, so that the next
//!   attempt repeats no line.
//! * **Exactly once across crashes.** At [`resume`](Sink::resume) the sink reads what the file holds beyond what is
//!   recorded, and passes over it when it is offered again. This needs the whole run since the last record to be in the
//!   file at the path: a file that is renamed (rotated) between a crash and the restart takes that knowledge with it.
//!   Rotate while the daemon runs, or after it has been stopped.
//! * **One writer.** The file is locked as long as it is open; a second daemon, or a second sink with the same path, is
//!   refused.
//!
//! # Cancellation
//!
//! Work that was begun is finished under the lock, whether or not it is still awaited: nobody ever meets a half-written
//! batch. A delivery that is not awaited to its end may or may not have happened; only a new `resume` can tell.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::{Recorded, Sink, SinkError, Undelivered, blocking};
use crate::record::{ChannelRef, Message};

mod journal;
mod lines;
mod opening;
mod tail;

use journal::Journal;

/// Appends events to a file, shared by any number of channels.
#[derive(Debug)]
pub struct File {
    slot: Arc<Mutex<Slot>>,
}

/// The journal, once it has been opened.
#[derive(Debug)]
struct Slot {
    path: PathBuf,
    journal: Option<Journal>,
}

impl Slot {
    fn journal(&mut self) -> Result<&mut Journal, SinkError> {
        match &mut self.journal {
            Some(journal) => Ok(journal),
            empty => Ok(empty.insert(Journal::open(self.path.clone())?)),
        }
    }
}

impl File {
    /// The file at `path`, opened when it is first used, and created (mode 0640) in a directory that exists.
    ///
    /// What a crash has torn at its end is cut off; everything else is kept. Until it can be opened, each use of it is a
    /// [`SinkError::Io`]: it cannot be read, synced or locked, is no regular file (a symbolic link to one is followed),
    /// or holds something other than lines of JSON.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { slot: Arc::new(Mutex::new(Slot { path: path.into(), journal: None })) }
    }

    /// Runs `work` on the journal, and holds the lock until it has ended, awaited or not.
    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        blocking(move || work(slot.journal()?)).await
    }
}

#[async_trait]
impl Sink for File {
    async fn resume(&self, recorded: &Recorded) -> Result<(), SinkError> {
        let channel = recorded.channel.id;
        let recorded = recorded.clone();
        let written = self.locked(Journal::written).await?;
        // Reading back may take a while in a large file, and holds back no other channel.
        let unrecorded = blocking(move || written.unrecorded(&recorded)).await?;
        self.locked(move |journal| {
            journal.pass_over(channel, unrecorded);
            Ok(())
        })
        .await
    }

    async fn deliver(&self, channel: &ChannelRef, batch: &[Message]) -> Result<(), Undelivered> {
        let (channel, batch) = (channel.id, batch.to_vec());
        let result = self.locked(move |journal| journal.append(channel, &batch)).await;
        result.map_err(|error| Undelivered::after(0, error))
    }
}

#[cfg(test)]
mod tests;
