//! Passes the batches that the channel reads to every lane that keeps up.
//!
//! # Invariants
//!
//! * **A slow lane does not delay the others.** If a lane's queue stays full for [`MAX_WAIT`] while another queue has room,
//!   the lane is detached. This also applies to late events. A detached lane reads for itself from its own cursor, and
//!   rejoins when it has caught up.
//! * **One lane stays attached.** The last attached lane is never detached. If all lanes are slow, reading waits for them. If
//!   the last attached lane ends, reading waits until another lane is attached.
//! * **No gap after a rejoin.** A lane is never attached while a batch is being passed on. A detached lane delivers nothing beyond the
//!   last batch that was passed on before it sent its first request. It rejoins when its cursor is at the end of the last batch
//!   that was passed on, and then receives every later batch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use litemap::LiteMap;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, info};

use crate::deliver::batch::{Batch, Cause, LateRecord, Work};
use net::tasks::lock;
use proof::event::Offset;
use record::ChannelRef;

/// The number of batches that the queue of one lane can contain.
pub(crate) const QUEUE_BATCHES: usize = 2;

/// How long lanes with room in their queues wait for a lane with a full queue.
const MAX_WAIT: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Hub {
    channel: ChannelRef,
    inner: Mutex<Inner>,
    /// Notified when a lane was attached, and when a lane took work from its queue.
    changed: Notify,
    /// Notified when a lane took work from its queue, for the late events that wait for room.
    taken: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last offset that was passed on.
    position: Option<Offset>,
    /// The feeds of the lanes, by sink. Empty after the hub is closed.
    lanes: LiteMap<Arc<str>, Feed>,
}

#[derive(Debug)]
struct Feed {
    queue: mpsc::Sender<Work>,
    attached: bool,
    /// When a late event first found no room in the queue, since the lane last took work from the queue.
    full_since: Option<Instant>,
}

/// The receiving end of a lane's feed. If it is dropped, the hub removes the lane.
#[derive(Debug)]
pub(crate) struct LaneInput {
    hub: Arc<Hub>,
    sink: Arc<str>,
    queue: mpsc::Receiver<Work>,
    /// The number of batches that were taken from the queue and are being prepared.
    pub(super) ready: Arc<AtomicUsize>,
}

/// The queue of a lane, for counting the batches that wait for its sink.
#[derive(Debug)]
pub(crate) struct Waiting {
    queue: mpsc::WeakSender<Work>,
    ready: Arc<AtomicUsize>,
}

impl Hub {
    pub(crate) fn new(channel: ChannelRef) -> Self {
        Self { channel, inner: Mutex::default(), changed: Notify::new(), taken: Notify::new() }
    }

    pub(crate) fn begin_at(&self, position: Option<Offset>) {
        lock(&self.inner).position = position;
    }

    pub(crate) fn position(&self) -> Option<Offset> {
        lock(&self.inner).position
    }

    /// Adds a lane for a sink that has none. The lane is attached if its cursor is at or above the hub's position.
    pub(crate) fn add(self: &Arc<Self>, sink: &Arc<str>, cursor: Option<Offset>) -> (LaneInput, Waiting) {
        let (sender, queue) = mpsc::channel(QUEUE_BATCHES);
        let waiting = Waiting { queue: sender.downgrade(), ready: Arc::default() };
        let mut inner = lock(&self.inner);
        let attached = cursor >= inner.position;
        inner.lanes.insert(sink.clone(), Feed { queue: sender, attached, full_since: None });
        self.changed.notify_one();
        (LaneInput { hub: self.clone(), sink: sink.clone(), queue, ready: waiting.ready.clone() }, waiting)
    }

    /// Passes a batch to every attached lane. Waits until all attached lanes have room. Once one lane has room, waits for the
    /// other lanes for at most [`MAX_WAIT`].
    pub(crate) async fn pass_on(&self, batch: Batch) {
        // The end of the wait for the lanes without room.
        let mut deadline = None;
        loop {
            {
                let mut inner = lock(&self.inner);
                let rooms: Vec<_> = inner.attached().map(|(_, lane)| lane.queue.capacity() > 0).collect();
                if rooms.contains(&true) {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + MAX_WAIT);
                    if !rooms.contains(&false) || Instant::now() >= deadline {
                        self.pass_to_attached(&mut inner, batch);
                        return;
                    }
                } else {
                    deadline = None;
                }
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
            }
        }
    }

    /// Passes a batch to the attached lanes that have room, and detaches the others.
    fn pass_to_attached(&self, inner: &mut Inner, batch: Batch) {
        let (through, trace_id) = (batch.through, batch.trace_at(batch.through).id());
        inner.position = Some(through);
        let work = Work::Batch(Arc::new(batch));
        for (sink, lane) in inner.attached() {
            lane.attached = lane.queue.try_send(work.clone()).is_ok();
            if !lane.attached {
                info!(channel = %self.channel.name, %sink, "lane has fallen behind: it reads on its own until it has caught up");
            }
        }
        debug!(channel = %self.channel.name, %trace_id, offset = through.get(), "batch passed to the lanes");
    }

    /// Offers a late event to the attached lanes of these sinks. Returns whether the event needs no further offer: each of the
    /// lanes had room, or was detached. A detached lane requests its late events when it rejoins.
    pub(crate) fn offer_late(&self, late: &LateRecord, is_meant: impl Fn(&Arc<str>) -> bool) -> bool {
        let (mut inner, mut is_full) = (lock(&self.inner), false);
        for (_, lane) in inner.attached().filter(|(sink, _)| is_meant(sink)) {
            if lane.queue.try_send(Work::Late(Box::new(late.clone()))).is_ok() {
                lane.full_since = None;
            } else {
                is_full = true;
                lane.full_since = lane.full_since.or_else(|| Some(Instant::now()));
            }
        }
        // An event whose proof was late is requested again after a longer wait, which delays no other event.
        if is_full && late.cause != Cause::Proof { self.detach_full(&mut inner, is_meant) } else { !is_full }
    }

    /// Detaches a lane if its queue had no room for late events for [`MAX_WAIT`], and another lane has room. Only the lanes of
    /// these sinks are examined. Late events are offered in order, so a full lane delays the late events of all lanes. Returns
    /// whether none of the attached lanes is full any more.
    fn detach_full(&self, inner: &mut Inner, is_meant: impl Fn(&Arc<str>) -> bool) -> bool {
        let has_room = inner.attached().any(|(_, lane)| lane.queue.capacity() > 0);
        let mut none_is_full = true;
        for (sink, lane) in inner.attached().filter(|(sink, _)| is_meant(sink)) {
            let Some(since) = lane.full_since else { continue };
            if has_room && since.elapsed() >= MAX_WAIT {
                (lane.attached, lane.full_since) = (false, None);
                info!(channel = %self.channel.name, %sink, "lane has fallen behind with late events: it reads on its own until it has caught up");
            } else {
                none_is_full = false;
            }
        }
        none_is_full
    }

    /// Waits until the queues of the attached lanes of these sinks are empty, at most for `patience`. If each event of a
    /// series waits here, the queues keep room for batches, so the series neither delays batches nor detaches a lane.
    pub(crate) async fn room_for_late(&self, patience: Duration, is_meant: impl Fn(&Arc<str>) -> bool) {
        let deadline = Instant::now() + patience;
        let is_used =
            |(sink, lane): (&Arc<str>, &mut Feed)| is_meant(sink) && lane.queue.capacity() < lane.queue.max_capacity();
        let has_used = || lock(&self.inner).attached().any(is_used);
        while has_used() && timeout_at(deadline, self.taken.notified()).await.is_ok() {}
    }

    /// Attaches a lane if the lane has caught up. Returns whether it has caught up.
    pub(crate) fn rejoin(&self, sink: &Arc<str>, cursor: Option<Offset>) -> bool {
        let mut inner = lock(&self.inner);
        if cursor < inner.position {
            return false;
        }
        if let Some(lane) = inner.lanes.get_mut(sink) {
            (lane.attached, lane.full_since) = (true, None);
            info!(channel = %self.channel.name, %sink, "lane has caught up");
            self.changed.notify_one();
        }
        true
    }

    /// Detaches a lane whose cursor was moved back. The lane must read for itself, because its queue contains only higher
    /// offsets.
    pub(crate) fn detach(&self, sink: &Arc<str>) {
        if let Some(lane) = lock(&self.inner).lanes.get_mut(sink) {
            lane.attached = false;
        }
    }

    fn note_taken(&self, sink: &Arc<str>) {
        if let Some(lane) = lock(&self.inner).lanes.get_mut(sink) {
            lane.full_since = None;
        }
        self.changed.notify_one();
        self.taken.notify_one();
    }

    /// Closes the feeds. Each lane ends when its queue is empty.
    pub(crate) fn close(&self) {
        lock(&self.inner).lanes.clear();
    }
}

impl Inner {
    /// Returns the attached lanes, and removes the lanes that have ended.
    fn attached(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Feed)> {
        self.lanes.retain(|_, lane| !lane.queue.is_closed());
        self.lanes.iter_mut().filter(|(_, lane)| lane.attached)
    }
}

impl LaneInput {
    /// Returns the next work, or `None` if the feed has ended. A detached lane starts to catch up when its queue is empty,
    /// because the queued batches precede the batches that the lane has to read.
    pub(crate) async fn next(&mut self) -> Option<Work> {
        // Read the flag before the queue: no work is added to the queue of a detached lane.
        let detached = lock(&self.hub.inner).lanes.get(&self.sink).is_some_and(|lane| !lane.attached);
        match self.try_recv() {
            Ok(work) => Some(work),
            Err(TryRecvError::Empty) if detached => Some(Work::CatchUp),
            Err(_) => self.recv().await,
        }
    }

    pub(super) async fn recv(&mut self) -> Option<Work> {
        let work = self.queue.recv().await;
        self.hub.note_taken(&self.sink);
        work
    }

    pub(super) fn try_recv(&mut self) -> Result<Work, TryRecvError> {
        let work = self.queue.try_recv();
        self.hub.note_taken(&self.sink);
        work
    }
}

impl Waiting {
    /// Returns the number of batches that were read and wait for the sink. Returns 0 after the lane has ended.
    pub(crate) fn batches(&self) -> usize {
        let queued = self.queue.upgrade().map(|queue| queue.max_capacity() - queue.capacity());
        queued.map_or(0, |queued| queued + self.ready.load(Ordering::Relaxed))
    }
}
