//! Who is fed with what the channel reads: every lane that keeps up.
//!
//! # Invariants
//!
//! * **A slow lane holds up nobody.** A lane whose queue stays full for [`PATIENCE`] while another has room is detached:
//!   it reads for itself from its own cursor, and rejoins when it has come as far as the others.
//! * **Somebody is fed.** The last attached lane is never detached: where all are slow, reading waits. So it does where
//!   the last one has left.
//! * **No gap at the seam.** Attaching and handing on exclude each other: a lane rejoins with a cursor at the last batch
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

use crate::event::Offset;
use crate::record::{ChannelRef, Record};

use super::QUEUE_BATCHES;
use super::batch::{Batch, Work};

/// How long the other lanes wait for one whose queue is full.
const PATIENCE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Hub {
    channel: ChannelRef,
    inner: Mutex<Inner>,
    rejoined: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last offset that was handed on.
    position: Option<Offset>,
    /// By the number of its seat, of which none is given twice.
    lanes: BTreeMap<usize, Feed>,
    seats: usize,
}

#[derive(Debug)]
struct Feed {
    sink: Arc<str>,
    /// `None` once nothing more will come.
    queue: Option<mpsc::Sender<Work>>,
    attached: bool,
    detached: Arc<Notify>,
}

/// A lane's end of its feed. While there is one, the hub has the lane.
#[derive(Debug)]
pub(super) struct Seat {
    hub: Arc<Hub>,
    number: usize,
    pub(super) queue: mpsc::Receiver<Work>,
    /// The other end of the queue, for whoever wants to know how full it is.
    pub(super) filled_by: mpsc::WeakSender<Work>,
    /// Fires when the lane has been detached.
    pub(super) detached: Arc<Notify>,
}

/// A lane, and room in its queue.
type Room = (usize, OwnedPermit<Work>);

impl Hub {
    /// Begins before the first event, with no lanes.
    pub(super) fn new(channel: ChannelRef) -> Self {
        Self { channel, inner: Mutex::default(), rejoined: Notify::new() }
    }

    /// Begins at `position`.
    pub(super) fn begin_at(&self, position: Option<Offset>) {
        self.lock().position = position;
    }

    /// The last offset that was handed on.
    pub(super) fn position(&self) -> Option<Offset> {
        self.lock().position
    }

    /// Adds a lane that has come as far as `cursor`: attached, if that is where the hub is.
    pub(super) fn add(self: &Arc<Self>, sink: Arc<str>, cursor: Option<Offset>) -> Seat {
        let (sender, queue) = mpsc::channel(QUEUE_BATCHES);
        let detached = Arc::new(Notify::new());
        let filled_by = sender.downgrade();
        let mut inner = self.lock();
        let attached = cursor >= inner.position;
        if !attached {
            detached.notify_one();
        }
        let number = inner.seats;
        inner.seats += 1;
        inner.lanes.insert(number, Feed { sink, queue: Some(sender), attached, detached: detached.clone() });
        if attached {
            self.rejoined.notify_one();
        }
        Seat { hub: self.clone(), number, queue, filled_by, detached }
    }

    /// Hands a batch to every attached lane, once one of them has room; `false` where `stop` fired first.
    pub(super) async fn hand_on(&self, batch: Batch, stop: &CancellationToken) -> bool {
        let (mut inner, mut rooms) = loop {
            let rooms = tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                rooms = self.rooms() => rooms,
            };
            let inner = self.lock();
            // Some may have left meanwhile.
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
                // Full; or it rejoined a moment ago, and has room.
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

    /// Room in the queues of the attached lanes: of one at least, of the others as far as it comes within [`PATIENCE`].
    async fn rooms(&self) -> Vec<Room> {
        loop {
            let rejoined = self.rejoined.notified();
            let mut waiting: FuturesUnordered<_> = self.attached().into_iter().map(room_of).collect();
            let first = tokio::select! {
                biased;
                Some(first) = waiting.next() => first,
                // One more to ask, or one at all.
                () = rejoined => continue,
            };
            // One that has left needs none.
            let mut rooms: Vec<_> = first.into_iter().collect();
            let patience = Instant::now() + PATIENCE;
            while !rooms.is_empty() {
                tokio::select! {
                    biased;
                    next = waiting.next() => match next {
                        Some(room) => rooms.extend(room),
                        None => return rooms,
                    },
                    () = sleep_until(patience) => return rooms,
                }
            }
        }
    }

    fn attached(&self) -> Vec<(usize, mpsc::Sender<Work>)> {
        let inner = self.lock();
        let lanes = inner.lanes.iter().filter(|(_, lane)| lane.attached);
        lanes.filter_map(|(number, lane)| Some((*number, lane.queue.clone()?))).collect()
    }

    /// Offers a late event to the attached lanes; whether each had room. A detached lane asks for what it is owed when it
    /// rejoins.
    pub(super) fn offer_late(&self, record: &Arc<Record>) -> bool {
        let inner = self.lock();
        let attached = inner.lanes.values().filter(|lane| lane.attached);
        attached.filter(|lane| !lane.offer(Work::Late(record.clone()))).count() == 0
    }

    /// Attaches a lane that has come as far as the others; whether it had.
    pub(super) fn rejoin(&self, seat: &Seat, cursor: Option<Offset>) -> bool {
        let mut inner = self.lock();
        if cursor < inner.position {
            return false;
        }
        let Some(lane) = inner.lanes.get_mut(&seat.number) else { return false };
        lane.attached = true;
        info!(channel = %self.channel.name, sink = %lane.sink, "lane has caught up");
        self.rejoined.notify_one();
        true
    }

    /// Nothing more will come: each lane ends when it has done what is in its queue.
    pub(super) fn close(&self) {
        self.lock().lanes.values_mut().for_each(|lane| lane.queue = None);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.lock().lanes.remove(&self.number);
    }
}

impl Feed {
    fn offer(&self, work: Work) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send(work).is_ok())
    }
}

/// None for a lane that has left.
async fn room_of((number, queue): (usize, mpsc::Sender<Work>)) -> Option<Room> {
    queue.reserve_owned().await.ok().map(|room| (number, room))
}
