//! What a lane delivers next, made ready while its sink is at work.
//!
//! ```text
//! queue ──► batch, of several joined ──► messages      one for each event that the sink is to have, in its shape
//! ```
//!
//! # Invariants
//!
//! * **In the order of the queue.** Nothing is joined to a batch from behind a late event.
//! * **Bounded.** A batch is joined of [`MAX_JOINED`] at the most, and of no more once it offers as much as the sink takes at
//!   once. Nothing else is made ready.
//! * **A slow sink leaves memory to others.** While the sink is at work, nothing more is taken from the queue where half of the
//!   channel's memory, or of what all channels have in common, is taken.
//!
//! # Cancellation
//!
//! At any point: what was taken from the queue is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::WeakSender;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::{Instant, timeout_at};

use crate::deliver::batch::{Batch, LateRecord, Work};
use crate::deliver::hub::LaneInput;
use crate::settings::Outlet;
use net::memory::ChannelMemory;
use proof::event::Offset;
use record::Message;

/// The most batches that share one commit: two thousand events, where each is a full page.
pub(crate) const MAX_JOINED: usize = 10;

/// No batch is joined to one that has so many bytes to set aside and to quarantine, which are recorded in one commit.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// Messages that are made before other tasks run. Few: the sink, which is at work in the same task, goes on in between.
const SHAPED_WITHOUT_YIELD: usize = 16;

/// What comes next on one lane.
pub(crate) struct Upcoming {
    input: LaneInput,
    outlet: Outlet,
    memory: Arc<ChannelMemory>,
    /// Where the lane began. An operator may have put its cursor above what is read.
    began_at: Option<Offset>,
    batch: Option<Prepared>,
    /// When the first of the batch was taken from the queue.
    since: Instant,
    /// What was taken from the queue behind the batch. Nothing is joined any more.
    behind: Option<Next>,
    /// Of how many batches the batch was joined.
    ready: Arc<AtomicUsize>,
}

/// What waits for a lane's sink.
#[derive(Debug)]
pub(crate) struct Waiting {
    queue: WeakSender<Work>,
    ready: Arc<AtomicUsize>,
}

/// What a lane does next.
pub(super) enum Next {
    Batch(Prepared),
    Late(LateRecord),
    CatchUp,
}

/// A batch, and the messages for those of its events that a sink is to have.
pub(super) struct Prepared {
    pub(super) batch: Arc<Batch>,
    pub(super) messages: Vec<Message>,
    /// How many of its records have been looked at: each has a message, or gets none.
    looked_at: usize,
}

impl Upcoming {
    pub(super) fn new(input: LaneInput, outlet: Outlet, memory: Arc<ChannelMemory>, began_at: Option<Offset>) -> Self {
        let (batch, since, behind, ready) = (None, Instant::now(), None, Arc::default());
        Self { input, outlet, memory, began_at, batch, since, behind, ready }
    }

    /// What waits for the sink: in the queue, and ready.
    pub(super) fn waiting(&self, queue: WeakSender<Work>) -> Waiting {
        Waiting { queue, ready: self.ready.clone() }
    }

    /// Waits for what comes next and, where a batch offers less than the sink takes at once, for the sink's linger; `None` once
    /// nothing more will come.
    pub(super) async fn next(&mut self) -> Option<Next> {
        if self.batch.is_none() && self.behind.is_none() {
            let work = self.input.next().await?;
            self.take(work);
        }
        let linger = self.outlet.sink.linger();
        loop {
            self.shape().await;
            if !self.has_room() {
                break;
            }
            let work = match self.input.try_recv() {
                // A batch waits for more only where it has events to offer.
                Err(TryRecvError::Empty) if self.offers() > 0 && !linger.is_zero() => {
                    timeout_at(self.since + linger, self.input.recv()).await.ok().flatten()
                }
                work => work.ok(),
            };
            let Some(work) = work else { break };
            self.take(work);
        }
        self.ready.store(0, Ordering::Relaxed);
        self.batch.take().map(Next::Batch).or_else(|| self.behind.take())
    }

    /// Makes ready what comes while something else is done.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = Box::pin(work);
        tokio::select! { biased; done = &mut work => return done, () = self.make_ready() => {} }
        work.await
    }

    /// Makes ready what there is room for. Only [`next`](Self::next) finds that the lane has to catch up.
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

    /// Throws away what is ready and what is queued, for a lane whose cursor was moved back: it reads for itself.
    pub(super) fn discard(&mut self) {
        self.input.discard();
        (self.batch, self.behind, self.began_at) = (None, None, None);
        self.ready.store(0, Ordering::Relaxed);
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Batch(next) => {
                if let Some(Prepared { batch, .. }) = &mut self.batch {
                    Arc::make_mut(batch).join(&next);
                } else {
                    self.since = Instant::now();
                    self.batch = Some(Prepared::of(next));
                }
                self.ready.fetch_add(1, Ordering::Relaxed);
            }
            Work::Late(late) => self.behind = Some(Next::Late(late)),
            Work::CatchUp => self.behind = Some(Next::CatchUp),
        }
    }

    async fn shape(&mut self) {
        if let Some(prepared) = &mut self.batch {
            prepared.shape(&self.outlet, self.began_at).await;
        }
    }

    /// Whether more may be joined.
    fn has_room(&self) -> bool {
        let has_room =
            |Prepared { batch, .. }: &Prepared| batch.parts.len() < MAX_JOINED && batch.kept_bytes() < MAX_KEPT_BYTES;
        self.behind.is_none() && self.batch.as_ref().is_none_or(has_room) && self.offers() < self.outlet.sink.at_once()
    }

    /// How many messages are ready.
    fn offers(&self) -> usize {
        self.batch.as_ref().map_or(0, |prepared| prepared.messages.len())
    }
}

impl Waiting {
    /// How many batches were read and wait for the sink; none once the lane has ended.
    pub(crate) fn batches(&self) -> usize {
        let queued = self.queue.upgrade().map(|queue| queue.max_capacity() - queue.capacity());
        queued.map_or(0, |queued| queued + self.ready.load(Ordering::Relaxed))
    }
}

impl Prepared {
    /// A batch without its messages.
    pub(super) fn of(batch: Arc<Batch>) -> Self {
        Self { batch, messages: Vec::new(), looked_at: 0 }
    }

    /// Makes the messages for the records above `cursor` that the outlet's filter takes. It yields to other tasks in between.
    pub(super) async fn shape(&mut self, outlet: &Outlet, cursor: Option<Offset>) {
        while let Some(record) = self.batch.records.get(self.looked_at) {
            self.looked_at += 1;
            if Some(record.offset) > cursor && outlet.takes(record) {
                self.messages.push(Message::new(record, &outlet.shape));
                if self.messages.len().is_multiple_of(SHAPED_WITHOUT_YIELD) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}
