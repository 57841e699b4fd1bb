//! Bounds the memory of all channels together: pages, events in progress, and events that wait for sinks.
//!
//! The limit covers the bodies of the service's responses, the lines of records, and the copies of events that are
//! pending or quarantined. Each byte counts twice. When a reservation is dropped, its bytes are free again.
//!
//! # Invariants
//!
//! * **Every channel has a floor:** an amount of memory that the channel can always use, no matter how much the other
//!   channels use. All floors together are at most half of the memory.
//! * **The rest is common.** All channels share the memory above the floors, and together they use at most this memory.
//!   Each channel uses at most a quarter of the common memory, except that a single body may be larger. With fewer than
//!   four channels, the common memory is divided by the number of channels instead.
//! * **In order of arrival.** While a channel waits for common memory, no other channel gets common memory. After at
//!   most five seconds the channel goes to the back of the queue, so two channels never wait for each other forever.
//! * **Data that was read does not wait.** Lines and copies are counted, but their reservations never wait. Lines and
//!   copies take no more bytes than the bodies that they are made of.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::tasks::lock;

/// Each byte counts once for itself and once for the data made from it: records from a body, a sink's own encoding of a
/// record, a store's pages for a copy.
const COPIES: usize = 2;

/// The largest floor, in bytes.
const FLOOR: usize = 1 << 20;

/// How long a channel waits for its own memory to be freed before it joins the queue for common memory. Also how long a
/// channel stays next in line while the other channels wait.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The number of shares of the common memory. Each channel may use one.
const SHARES: usize = 4;

/// The memory of all channels. It has no limit until [`Memory::share_among`] sets one.
#[derive(Debug, Default)]
pub struct Memory {
    bounds: Mutex<Bounds>,
    /// Notified when common memory is freed while no channel is next in line for it.
    freed: Notify,
    /// Notified when common memory is freed, for the channel that is next in line.
    freed_for_next: Notify,
    /// Locked by the channel that is next in line for common memory.
    turn: tokio::sync::Mutex<()>,
    /// Locked while a channel reads an event that exceeds the limit.
    beyond: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Bounds {
    floor: usize,
    common: usize,
    /// The maximum amount of common memory that one channel may use.
    share: usize,
    used: usize,
    /// The memory that all channels together use within their floors.
    in_floors: usize,
    /// Whether a channel is next in line for common memory.
    awaited: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { floor: 0, common: usize::MAX, share: usize::MAX, used: 0, in_floors: 0, awaited: false }
    }
}

/// The memory of one channel.
#[derive(Debug, Default)]
pub struct ChannelMemory {
    all: Arc<Memory>,
    held: Mutex<ReservedBytes>,
    waits: Mutex<Waits>,
    freed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReservedBytes {
    floor: usize,
    common: usize,
}

/// The waits of a channel for memory.
#[derive(Debug, Default)]
struct Waits {
    /// The number of tasks that wait now.
    now: usize,
    /// When the last wait ended.
    ended: Option<Instant>,
}

/// Calls the function when this value is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Memory that is reserved for a channel until this value is dropped.
#[derive(Debug)]
pub struct Reserved {
    of: Arc<ChannelMemory>,
    held: ReservedBytes,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Limited to free memory.
    Free,
    /// Limited to free memory. This reservation is next in line, so the channel's share does not apply.
    Awaited,
    /// Not limited.
    None,
}

impl Memory {
    /// Sets the limit in bytes and the number of channels. Existing reservations stay.
    pub fn share_among(&self, limit: u64, channels: usize) {
        let (limit, channels) = (usize::try_from(limit).unwrap_or(usize::MAX), channels.max(1));
        let floor = FLOOR.min(limit / 2 / channels);
        let common = limit - floor * channels;
        let mut bounds = lock(&self.bounds);
        (bounds.floor, bounds.common, bounds.share) = (floor, common, common / SHARES.min(channels));
        drop(bounds);
        self.freed.notify_waiters();
        self.freed_for_next.notify_waiters();
    }

    /// Begins the turn of a channel that waits for common memory. The turn ends when the result is dropped.
    fn awaited(&self) -> OnDrop<impl Fn()> {
        lock(&self.bounds).awaited = true;
        OnDrop(|| {
            lock(&self.bounds).awaited = false;
            self.freed.notify_waiters();
        })
    }

    /// The counted bytes in use, of all channels together.
    pub fn held(&self) -> usize {
        let bounds = lock(&self.bounds);
        bounds.used.saturating_add(bounds.in_floors)
    }
}

impl ChannelMemory {
    /// Creates the memory of a channel, with nothing reserved.
    pub fn of(all: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { all: all.clone(), ..Self::default() })
    }

    /// Creates an empty reservation that can grow while memory is free.
    pub fn free(self: &Arc<Self>) -> Reserved {
        self.nothing(Limit::Free)
    }

    fn nothing(self: &Arc<Self>, limit: Limit) -> Reserved {
        Reserved { of: self.clone(), held: ReservedBytes::default(), limit }
    }

    /// Waits until `bytes` can be reserved. A request above the [largest](Self::largest) body waits only for that size.
    ///
    /// # Cancellation
    ///
    /// Can be cancelled at any point. Nothing stays reserved.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Reserved {
        let _waiting = self.waiting();
        let mut free = self.free();
        loop {
            // First wait until the channel has freed enough of its own common memory. This can take long, for example if a
            // sink refuses records, so other channels go first.
            let mine = async {
                loop {
                    let (mine, any) = (self.freed.notified(), self.all.freed.notified());
                    if free.grow(bytes) || lock(&self.held).common == 0 {
                        return;
                    }
                    tokio::select! { () = mine => {}, () = any => {} }
                }
            };
            let _ = timeout(MAX_WAIT, mine).await;
            if free.bytes() >= bytes {
                return free;
            }
            let _turn = tokio::select! {
                biased;
                // While other channels are ahead in the queue, the channel may free enough of its own memory.
                () = until(&self.freed, || free.grow(bytes)) => return free,
                turn = self.all.turn.lock() => turn,
            };
            let _awaited = self.all.awaited();
            let mut awaited = self.nothing(Limit::Awaited);
            let enough = until(&self.all.freed_for_next, || awaited.grow(bytes.min(self.largest())));
            if timeout(MAX_WAIT, enough).await.is_ok() {
                awaited.limit = Limit::Free;
                return awaited;
            }
        }
    }

    /// Reserves `bytes` even if they are not free. The reservation can also grow without a limit.
    pub fn exceed(self: &Arc<Self>, bytes: usize) -> Reserved {
        let mut reserved = self.nothing(Limit::None);
        reserved.grow(bytes);
        reserved
    }

    /// Begins a wait for memory. The wait ends when the result is dropped.
    fn waiting(&self) -> OnDrop<impl Fn()> {
        lock(&self.waits).now += 1;
        OnDrop(|| {
            let mut waits = lock(&self.waits);
            waits.now -= 1;
            waits.ended = Some(Instant::now());
        })
    }

    /// Waits until no other channel reads an event that exceeds the limit.
    pub async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let _waiting = self.waiting();
        self.all.beyond.lock().await
    }

    /// Whether the channel waits for memory.
    pub fn waits(&self) -> bool {
        lock(&self.waits).now > 0
    }

    /// When the channel last waited for memory: now, if it still waits. `None` if it never waited.
    pub fn waited_until(&self) -> Option<Instant> {
        let waits = lock(&self.waits);
        if waits.now > 0 { Some(Instant::now()) } else { waits.ended }
    }

    /// Copies an event's JSON. The copy is counted as long as it is kept.
    pub fn copy(self: &Arc<Self>, json: &[u8]) -> Bytes {
        Bytes::from_owner(EventCopy { json: json.into(), _reserved: self.exceed(json.len()) })
    }

    /// The longest body that fits into free memory now, including the records that are made from it. Half of the floor is
    /// reserved for events that are read again.
    pub fn room(&self) -> usize {
        let (bounds, held) = (lock(&self.all.bounds), lock(&self.held));
        let floor = (bounds.floor / 2).saturating_sub(held.floor);
        let free = bounds.common.saturating_sub(bounds.used).min(bounds.share.saturating_sub(held.common));
        floor.saturating_add(if bounds.awaited { 0 } else { free }) / COPIES / 2
    }

    /// Whether the channel uses at most half of its share, and all channels together use at most half of the common memory.
    pub fn is_half_free(&self) -> bool {
        let (bounds, held) = (lock(&self.all.bounds), lock(&self.held));
        held.common <= bounds.share / 2 && bounds.used <= bounds.common / 2
    }

    /// The longest body that can ever fit.
    pub fn largest(&self) -> usize {
        lock(&self.all.bounds).common / COPIES
    }
}

impl Reserved {
    /// The number of reserved bytes. Here each byte counts once.
    pub fn bytes(&self) -> usize {
        (self.held.floor + self.held.common) / COPIES
    }

    /// Gives back the memory above `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = (self.bytes() - bytes.min(self.bytes())) * COPIES;
        let common = surplus.min(self.held.common);
        let surplus = ReservedBytes { floor: surplus - common, common };
        self.held.floor -= surplus.floor;
        self.held.common -= surplus.common;
        drop(Self { of: self.of.clone(), held: surplus, limit: self.limit });
    }

    /// Adds `bytes`. Returns `false` and adds nothing if the limit does not allow it.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let (mut bounds, mut held) = (lock(&self.of.all.bounds), lock(&self.of.held));
        let bytes = bytes.saturating_mul(COPIES);
        let floor = bytes.min(bounds.floor.saturating_sub(held.floor));
        let common = bytes - floor;
        let is_free = bounds.used.saturating_add(common) <= bounds.common;
        let is_share = held.common == 0 || held.common.saturating_add(common) <= bounds.share;
        let may_be_had = match self.limit {
            Limit::Free => common == 0 || is_free && is_share && !bounds.awaited,
            Limit::Awaited => is_free,
            Limit::None => true,
        };
        if may_be_had {
            bounds.used = bounds.used.saturating_add(common);
            bounds.in_floors += floor;
            for held in [&mut *held, &mut self.held] {
                held.floor += floor;
                held.common = held.common.saturating_add(common);
            }
        }
        may_be_had
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let (mut bounds, mut held) = (lock(&self.of.all.bounds), lock(&self.of.held));
        bounds.used -= self.held.common;
        bounds.in_floors -= self.held.floor;
        held.floor -= self.held.floor;
        held.common -= self.held.common;
        let all = &self.of.all;
        let freed = if bounds.awaited { &all.freed_for_next } else { &all.freed };
        drop((bounds, held));
        self.of.freed.notify_waiters();
        if self.held.common > 0 {
            freed.notify_waiters();
        }
    }
}

/// Waits until a condition is true. The condition is checked again each time that memory is freed.
async fn until(freed: &Notify, mut holds: impl FnMut() -> bool) {
    loop {
        let freed = freed.notified();
        if holds() {
            return;
        }
        freed.await;
    }
}

struct EventCopy {
    json: Box<[u8]>,
    _reserved: Reserved,
}

impl AsRef<[u8]> for EventCopy {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

#[cfg(test)]
mod tests;
