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

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, OwnedPermit};
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
    rejoined: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last offset that was handed on.
    position: Option<Offset>,
    /// By the number of the lane's input. No number is used twice.
    lanes: BTreeMap<usize, Feed>,
    next_number: usize,
}

#[derive(Debug)]
struct Feed {
    sink: Arc<str>,
    /// `None` once the hub is closed.
    queue: Option<mpsc::Sender<Work>>,
    attached: bool,
    detached: Arc<Notify>,
}

/// The lane's end of its feed. Dropping it removes the lane from the hub.
#[derive(Debug)]
pub(in crate::channel) struct LaneInput {
    hub: Arc<Hub>,
    number: usize,
    pub(in crate::channel) queue: mpsc::Receiver<Work>,
    /// The other end of the queue, which knows how full it is.
    pub(in crate::channel) sender: mpsc::WeakSender<Work>,
    /// Fires when the lane has been detached.
    pub(in crate::channel) detached: Arc<Notify>,
}

/// A lane, and room in its queue.
type Room = (usize, OwnedPermit<Work>);

impl Hub {
    /// Before the first event, with no lanes.
    pub(in crate::channel) fn new(channel: ChannelRef) -> Self {
        Self { channel, inner: Mutex::default(), rejoined: Notify::new() }
    }

    /// Begins at `position`.
    pub(in crate::channel) fn begin_at(&self, position: Option<Offset>) {
        self.lock().position = position;
    }

    /// The last offset that was handed on.
    pub(in crate::channel) fn position(&self) -> Option<Offset> {
        self.lock().position
    }

    /// Adds a lane; it is attached if its cursor is where the hub is.
    pub(in crate::channel) fn add(self: &Arc<Self>, sink: Arc<str>, cursor: Option<Offset>) -> LaneInput {
        let (sender, queue) = mpsc::channel(QUEUE_BATCHES);
        let detached = Arc::new(Notify::new());
        let weak_sender = sender.downgrade();
        let mut inner = self.lock();
        let attached = cursor >= inner.position;
        if !attached {
            detached.notify_one();
        }
        let number = inner.next_number;
        inner.next_number += 1;
        inner.lanes.insert(number, Feed { sink, queue: Some(sender), attached, detached: detached.clone() });
        if attached {
            self.rejoined.notify_one();
        }
        LaneInput { hub: self.clone(), number, queue, sender: weak_sender, detached }
    }

    /// Hands a batch to every attached lane, once one of them has room; `false` where `stop` fired first.
    pub(in crate::channel) async fn hand_on(&self, batch: Batch, stop: &CancellationToken) -> bool {
        let (mut inner, mut rooms) = loop {
            let rooms = tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                rooms = self.rooms() => rooms,
            };
            let inner = self.lock();
            // A lane may have ended meanwhile.
            if rooms.iter().any(|(number, _)| inner.lanes.contains_key(number)) {
                break (inner, rooms);
            }
        };
        inner.position = Some(batch.through);
        let (through, trace_id) = (batch.through, batch.trace_at(batch.through).id());
        let work = Work::Batch(Arc::new(batch));
        for (number, lane) in inner.lanes.iter_mut().filter(|(_, lane)| lane.attached) {
            let room = rooms.iter().position(|(of, _)| of == number).map(|at| rooms.swap_remove(at).1);
            let handed = match room {
                Some(room) => {
                    room.send(work.clone());
                    true
                }
                // Its queue was full; or it has just rejoined, and has room.
                None => lane.offer(work.clone()),
            };
            if !handed {
                info!(channel = %self.channel.name, sink = %lane.sink, "lane falls behind: it reads for itself until it has caught up");
                lane.attached = false;
                lane.detached.notify_one();
            }
        }
        debug!(channel = %self.channel.name, %trace_id, offset = %through, "batch handed on");
        true
    }

    /// Room in the queues of the attached lanes: of at least one, and of the others that have room within [`MAX_WAIT`].
    async fn rooms(&self) -> Vec<Room> {
        loop {
            let rejoined = self.rejoined.notified();
            let mut waiting: FuturesUnordered<_> = self.attached().into_iter().map(room_of).collect();
            let first = tokio::select! {
                biased;
                Some(first) = waiting.next() => first,
                // There is another lane to wait for.
                () = rejoined => continue,
            };
            // A lane that has ended gives none.
            let mut rooms: Vec<_> = first.into_iter().collect();
            let give_up = Instant::now() + MAX_WAIT;
            while !rooms.is_empty() {
                tokio::select! {
                    biased;
                    next = waiting.next() => match next {
                        Some(room) => rooms.extend(room),
                        None => return rooms,
                    },
                    () = sleep_until(give_up) => return rooms,
                }
            }
        }
    }

    fn attached(&self) -> Vec<(usize, mpsc::Sender<Work>)> {
        let inner = self.lock();
        let lanes = inner.lanes.iter().filter(|(_, lane)| lane.attached);
        lanes.filter_map(|(number, lane)| Some((*number, lane.queue.clone()?))).collect()
    }

    /// Offers a late event to the attached lanes; `true` where each had room. A detached lane asks for what it is owed when
    /// it rejoins.
    pub(in crate::channel) fn offer_late(&self, record: &Arc<Record>) -> bool {
        let inner = self.lock();
        let attached = inner.lanes.values().filter(|lane| lane.attached);
        attached.filter(|lane| !lane.offer(Work::Late(record.clone()))).count() == 0
    }

    /// Attaches a lane if it has caught up; whether it had.
    pub(in crate::channel) fn rejoin(&self, input: &LaneInput, cursor: Option<Offset>) -> bool {
        let mut inner = self.lock();
        if cursor < inner.position {
            return false;
        }
        let Some(lane) = inner.lanes.get_mut(&input.number) else { return false };
        lane.attached = true;
        info!(channel = %self.channel.name, sink = %lane.sink, "lane has caught up");
        self.rejoined.notify_one();
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

impl Drop for LaneInput {
    fn drop(&mut self) {
        self.hub.lock().lanes.remove(&self.number);
    }
}

impl Feed {
    fn offer(&self, work: Work) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send(work).is_ok())
    }
}

/// `None` for a lane that has ended.
async fn room_of((number, queue): (usize, mpsc::Sender<Work>)) -> Option<Room> {
    queue.reserve_owned().await.ok().map(|room| (number, room))
}
