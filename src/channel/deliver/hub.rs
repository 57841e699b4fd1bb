//! The hub hands what the channel reads to every lane that keeps up.
//!
//! # Invariants
//!
//! * **A slow lane holds up no other.** A lane whose queue stays full for [`MAX_WAIT`] while another has room is detached:
//!   it reads for itself from its own cursor, and rejoins when it has caught up.
//! * **One lane stays attached.** The last attached lane is never detached: where all lanes are slow, reading waits. It also
//!   waits when the last attached lane has ended.
//! * **No gap at the seam.** Attaching and handing on exclude each other: a lane rejoins with its cursor at the last batch
//!   that was handed on, and is handed every batch from then on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::channel::QUEUE_BATCHES;
use crate::channel::deliver::batch::{Batch, Work};
use crate::event::Offset;
use crate::record::{ChannelRef, Record};

/// How long the other lanes wait for one whose queue is full.
const MAX_WAIT: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(in crate::channel) struct Hub {
    channel: ChannelRef,
    inner: Mutex<Inner>,
    /// Fires when a lane has been attached, or has taken something from its queue.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last offset that was handed on.
    position: Option<Offset>,
    /// By sink.
    lanes: BTreeMap<Arc<str>, Feed>,
}

#[derive(Debug)]
struct Feed {
    /// `None` once the hub is closed.
    queue: Option<mpsc::Sender<Work>>,
    attached: bool,
}

/// The lane's end of its feed. Without it, the hub forgets the lane.
#[derive(Debug)]
pub(in crate::channel) struct LaneInput {
    hub: Arc<Hub>,
    sink: Arc<str>,
    queue: mpsc::Receiver<Work>,
}

impl Hub {
    /// Before the first event, with no lanes.
    pub(in crate::channel) fn new(channel: ChannelRef) -> Self {
        Self { channel, inner: Mutex::default(), changed: Notify::new() }
    }

    /// Begins at `position`.
    pub(in crate::channel) fn begin_at(&self, position: Option<Offset>) {
        self.lock().position = position;
    }

    /// The last offset that was handed on.
    pub(in crate::channel) fn position(&self) -> Option<Offset> {
        self.lock().position
    }

    /// Adds the lane of a sink that has none; it is attached if its cursor is where the hub is. With its input comes the
    /// other end of the queue, which knows how full it is.
    pub(in crate::channel) fn add(
        self: &Arc<Self>,
        sink: &Arc<str>,
        cursor: Option<Offset>,
    ) -> (LaneInput, mpsc::WeakSender<Work>) {
        let (sender, queue) = mpsc::channel(QUEUE_BATCHES);
        let length = sender.downgrade();
        let mut inner = self.lock();
        let attached = cursor >= inner.position;
        inner.lanes.insert(sink.clone(), Feed { queue: Some(sender), attached });
        self.changed.notify_one();
        (LaneInput { hub: self.clone(), sink: sink.clone(), queue }, length)
    }

    /// Hands a batch to every attached lane, once one of them has room; `false` where `stop` fired first.
    pub(in crate::channel) async fn hand_on(&self, batch: Batch, stop: &CancellationToken) -> bool {
        // When lanes without room are no longer waited for.
        let mut give_up = None;
        while !stop.is_cancelled() {
            {
                let mut inner = self.lock();
                let room = |lane: &Feed| lane.queue.as_ref().is_some_and(|queue| queue.capacity() > 0);
                let rooms: Vec<_> = inner.attached().map(|(_, lane)| room(lane)).collect();
                if rooms.contains(&true) {
                    let give_up = *give_up.get_or_insert_with(|| Instant::now() + MAX_WAIT);
                    if !rooms.contains(&false) || Instant::now() >= give_up {
                        self.hand_to_attached(&mut inner, batch);
                        return true;
                    }
                } else {
                    give_up = None;
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.changed.notified() => {}
                () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {}
            }
        }
        false
    }

    /// Hands a batch to the attached lanes that have room, and detaches the others.
    fn hand_to_attached(&self, inner: &mut Inner, batch: Batch) {
        let (through, trace_id) = (batch.through, batch.trace_at(batch.through).id());
        inner.position = Some(through);
        let work = Work::Batch(Arc::new(batch));
        for (sink, lane) in inner.attached() {
            lane.attached = lane.offer(work.clone());
            if !lane.attached {
                info!(channel = %self.channel.name, %sink, "lane falls behind: it reads for itself until it has caught up");
            }
        }
        debug!(channel = %self.channel.name, %trace_id, offset = %through, "batch handed on");
    }

    /// Offers a late event to the attached lanes; `true` where each had room. A detached lane asks for what it is owed when
    /// it rejoins.
    pub(in crate::channel) fn offer_late(&self, record: &Arc<Record>) -> bool {
        let mut inner = self.lock();
        inner.attached().filter(|(_, lane)| !lane.offer(Work::Late(record.clone()))).count() == 0
    }

    /// Attaches a lane if it has caught up; whether it had.
    pub(in crate::channel) fn rejoin(&self, sink: &Arc<str>, cursor: Option<Offset>) -> bool {
        let mut inner = self.lock();
        if cursor < inner.position {
            return false;
        }
        let Some(lane) = inner.lanes.get_mut(sink) else { return false };
        lane.attached = true;
        info!(channel = %self.channel.name, %sink, "lane has caught up");
        self.changed.notify_one();
        true
    }

    /// Ends the feeds: each lane ends when its queue is empty.
    pub(in crate::channel) fn close(&self) {
        self.lock().lanes.values_mut().for_each(|lane| lane.queue = None);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The attached lanes, without those that have ended.
    fn attached(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Feed)> {
        self.lanes.retain(|_, lane| lane.queue.as_ref().is_none_or(|queue| !queue.is_closed()));
        self.lanes.iter_mut().filter(|(_, lane)| lane.attached)
    }
}

impl Feed {
    fn offer(&self, work: Work) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send(work).is_ok())
    }
}

impl LaneInput {
    /// The next work; `None` once nothing more will come. A lane that is detached has to catch up when its queue is empty:
    /// the batches in it come before those that the lane has to read for itself.
    pub(in crate::channel) async fn next(&mut self) -> Option<Work> {
        // Looked up first: nothing is put into the queue of a lane that is detached.
        let detached = self.hub.lock().lanes.get(&self.sink).is_some_and(|lane| !lane.attached);
        match self.try_recv() {
            Ok(work) => Some(work),
            Err(TryRecvError::Empty) if detached => Some(Work::CatchUp),
            Err(_) => self.recv().await,
        }
    }

    /// Takes work from the queue, once there is any.
    pub(super) async fn recv(&mut self) -> Option<Work> {
        let work = self.queue.recv().await;
        self.hub.changed.notify_one();
        work
    }

    /// Takes work that is in the queue.
    pub(super) fn try_recv(&mut self) -> Result<Work, TryRecvError> {
        let work = self.queue.try_recv();
        self.hub.changed.notify_one();
        work
    }
}
