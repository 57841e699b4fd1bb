//! Prepares a lane's next batch while its sink is busy.
//!
//! ```text
//! queue ──► joined batch ──► messages      one for each event that the sink receives, encoded in the lane's shape
//! ```
//!
//! # Invariants
//!
//! * **In queue order.** A batch that was queued after a late event is never joined to a batch that was queued before this
//!   event.
//! * **Bounded.** At most [`MAX_JOINED`] batches are joined. Joining stops earlier if the sink accepts no more messages at
//!   once, or if the batches store [`MAX_KEPT_BYTES`]. Only this joined batch is prepared.
//! * **A slow sink leaves memory to others.** While the sink is busy, no work is taken from the queue if half of the
//!   channel's memory is in use, or half of the memory that all channels share.
//! * **Safe to cancel** at any point: work that was taken from the queue is kept.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::{Instant, timeout_at};

use crate::channel::settings::LaneSettings;
use crate::deliver::batch::{Batch, Work};
use crate::deliver::hub::LaneInput;
use net::memory::ChannelMemory;
use proof::event::Offset;
use record::Message;

/// The maximum number of batches that share one commit.
pub(crate) const MAX_JOINED: usize = 10;

/// If the pending and rejected events of a batch have this many bytes, no further batch is joined to it, because one commit
/// stores all these bytes.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The number of messages that are built before the lane's task yields. The number is small, because the future of the sink's
/// delivery runs in the same task, and progresses only when this one yields.
const SHAPED_WITHOUT_YIELD: usize = 16;

pub(crate) struct Upcoming {
    input: LaneInput,
    settings: LaneSettings,
    memory: Arc<ChannelMemory>,
    /// The cursor at which the lane began. This cursor can be above every offset that was read, because an operator can set
    /// it.
    began_at: Option<Offset>,
    batch: Option<PreparedBatch>,
    /// When the first of the joined batches was taken from the queue.
    since: Instant,
    /// Work that was taken from the queue after `batch`. While this field is set, no further batch is joined.
    behind: Option<Work<PreparedBatch>>,
}

/// A batch, and the messages for the events that the sink receives.
pub(super) struct PreparedBatch {
    pub(super) batch: Arc<Batch>,
    pub(super) messages: Vec<Message>,
    /// The number of records that were examined. An examined record has a message, or the lane does not deliver it.
    looked_at: usize,
    /// The number of examined records that the lane does not deliver only because they have no confidence.
    pub(super) without_confidence: u64,
}

impl Upcoming {
    pub(super) fn new(
        input: LaneInput,
        settings: LaneSettings,
        memory: Arc<ChannelMemory>,
        began_at: Option<Offset>,
    ) -> Self {
        Self { input, settings, memory, began_at, batch: None, since: Instant::now(), behind: None }
    }

    /// Waits for the next work. If a batch has messages, but fewer than the sink accepts at once, also waits for more batches
    /// during the sink's linger time. Returns `None` when the queue is closed and empty.
    pub(super) async fn next(&mut self) -> Option<Work<PreparedBatch>> {
        if self.batch.is_none() && self.behind.is_none() {
            let work = self.input.next().await?;
            self.take(work);
        }
        let linger = self.settings.sink.linger();
        loop {
            self.shape().await;
            if !self.has_room() {
                break;
            }
            let work = match self.input.try_recv() {
                // Only a batch that has messages waits for more batches.
                Err(TryRecvError::Empty) if self.offers() > 0 && !linger.is_zero() => {
                    timeout_at(self.since + linger, self.input.recv()).await.ok().flatten()
                }
                work => work.ok(),
            };
            let Some(work) = work else { break };
            self.take(work);
        }
        self.input.ready.store(0, Ordering::Relaxed);
        self.batch.take().map(Work::Batch).or_else(|| self.behind.take())
    }

    /// Runs `work` to its end, and prepares the next batch meanwhile.
    pub(super) async fn during<T>(&mut self, mut work: Pin<Box<impl Future<Output = T>>>) -> T {
        tokio::select! { biased; done = &mut work => return done, () = self.make_ready() => {} }
        work.await
    }

    /// Prepares work while the memory and the batch have room. Does not detect that the lane must catch up: only
    /// [`next`](Self::next) does.
    async fn make_ready(&mut self) {
        loop {
            self.shape().await;
            if !self.has_room() || !self.memory.is_half_free() {
                return;
            }
            let Some(work) = self.input.recv().await else { return };
            self.take(work);
        }
    }

    /// Discards the prepared and the queued work. Used when the lane's cursor was moved back, because the lane then reads for
    /// itself.
    pub(super) fn discard(&mut self) {
        while self.input.try_recv().is_ok() {}
        (self.batch, self.behind, self.began_at) = (None, None, None);
        self.input.ready.store(0, Ordering::Relaxed);
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Batch(next) => {
                if let Some(PreparedBatch { batch, .. }) = &mut self.batch {
                    Arc::make_mut(batch).join(&next);
                } else {
                    self.since = Instant::now();
                    self.batch = Some(PreparedBatch::of(next));
                }
                self.input.ready.fetch_add(1, Ordering::Relaxed);
            }
            Work::Late(late) => self.behind = Some(Work::Late(late)),
            Work::CatchUp => self.behind = Some(Work::CatchUp),
        }
    }

    async fn shape(&mut self) {
        if let Some(prepared) = &mut self.batch {
            prepared.shape(&self.settings, self.began_at).await;
        }
    }

    fn has_room(&self) -> bool {
        let has_room = |PreparedBatch { batch, .. }: &PreparedBatch| {
            batch.parts.len() < MAX_JOINED && batch.kept_bytes() < MAX_KEPT_BYTES
        };
        self.behind.is_none()
            && self.batch.as_ref().is_none_or(has_room)
            && self.offers() < self.settings.sink.at_once()
    }

    fn offers(&self) -> usize {
        self.batch.as_ref().map_or(0, |prepared| prepared.messages.len())
    }
}

impl PreparedBatch {
    pub(super) fn of(batch: Arc<Batch>) -> Self {
        Self { batch, messages: Vec::new(), looked_at: 0, without_confidence: 0 }
    }

    /// Builds the messages for the records above `cursor` that the lane's filter accepts. Yields to other tasks regularly.
    pub(super) async fn shape(&mut self, settings: &LaneSettings, cursor: Option<Offset>) {
        while let Some(record) = self.batch.records.get(self.looked_at) {
            self.looked_at += 1;
            if Some(record.offset) <= cursor {
                continue;
            }
            if settings.takes(record) {
                self.messages.push(Message::new(record, &settings.shape));
                if self.messages.len().is_multiple_of(SHAPED_WITHOUT_YIELD) {
                    tokio::task::yield_now().await;
                }
            } else if settings.misses_confidence(record) {
                self.without_confidence += 1;
            }
        }
    }
}
