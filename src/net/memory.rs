//! The memory that pages, events in hand and what waits for sinks take, of all channels together.
//!
//! Counted are the bodies of the service's answers, the lines of records, and the copies of events that are set aside or
//! quarantined. Each byte counts twice, and what is counted gives them back when it is dropped.
//!
//! # Invariants
//!
//! * **Every channel has a floor.** A channel may always hold as much as its floor, whatever the others hold. Floors are half
//!   of the memory, at the most.
//! * **The rest is common.** What channels hold above their floors stays within it. Where there are several channels, each
//!   holds a quarter of it at the most, or a single body.
//! * **In order of arrival.** While a channel waits for common memory, no other is given any. It waits so for five seconds at
//!   the most, and then goes behind the others: no two channels wait for each other for ever.
//! * **What has been read goes on.** Lines and copies are counted, and never wait. There are no more of them than of the
//!   bodies that they are made of.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::tasks::lock;

/// A byte is counted for itself, and for what is made of it: records of a body, a sink's own form of a record, a store's
/// pages of a copy.
const COPIES: usize = 2;

/// The largest floor.
const FLOOR: usize = 1 << 20;

/// How long a channel waits for what it holds itself, and how long others wait for it when it is its turn.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The parts of the common memory, of which each channel may hold one.
const SHARES: usize = 4;

/// The memory of all channels; without a limit until one is set.
#[derive(Debug, Default)]
pub struct Memory {
    bounds: Mutex<Bounds>,
    /// Fires when common memory was given back, and no channel waits for its turn.
    freed: Notify,
    /// Fires when common memory was given back, for the channel whose turn it is.
    freed_for_next: Notify,
    /// Held by the channel that waits for common memory.
    turn: tokio::sync::Mutex<()>,
    /// Held while an event is read that there is no memory for.
    beyond: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Bounds {
    floor: usize,
    common: usize,
    /// The most common memory of one channel.
    share: usize,
    /// What is held of the common memory.
    used: usize,
    /// What is held of the floors.
    in_floors: usize,
    /// A channel waits for common memory.
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
    held: Mutex<Held>,
    waits: Mutex<Waits>,
    /// Fires when this channel has given back memory.
    freed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    floor: usize,
    common: usize,
}

/// How a channel waits for memory.
#[derive(Debug, Default)]
struct Waits {
    /// So many of its parts wait now.
    now: usize,
    /// When one of them last ended its wait.
    ended: Option<Instant>,
}

/// A wait for memory. Dropping it ends the wait.
struct Waiting<'a>(&'a Mutex<Waits>);

impl<'a> Waiting<'a> {
    fn begin(memory: &'a ChannelMemory) -> Self {
        lock(&memory.waits).now += 1;
        Self(&memory.waits)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = lock(self.0);
        waits.now -= 1;
        waits.ended = Some(Instant::now());
    }
}

/// Memory of a channel, until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    of: Arc<ChannelMemory>,
    held: Held,
    limit: Limit,
}

/// What limits a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// What is free.
    Free,
    /// What is free, and awaited by this one.
    Awaited,
    /// Nothing.
    None,
}

impl Memory {
    /// Sets the limit, in bytes, and the number of channels. What is held stays.
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

    /// How many bytes are held, of all channels together, as they are counted.
    pub fn held(&self) -> usize {
        let bounds = lock(&self.bounds);
        bounds.used.saturating_add(bounds.in_floors)
    }
}

impl ChannelMemory {
    /// The memory of a channel that holds nothing.
    pub fn of(all: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { all: all.clone(), ..Self::default() })
    }

    /// A reservation of nothing, which can grow as far as memory is free.
    pub fn free(self: &Arc<Self>) -> Reserved {
        self.nothing(Limit::Free)
    }

    fn nothing(self: &Arc<Self>, limit: Limit) -> Reserved {
        Reserved { of: self.clone(), held: Held::default(), limit }
    }

    /// Waits for a reservation of so many bytes, or of the [largest](Self::largest) body.
    ///
    /// # Cancellation
    ///
    /// At any point: nothing is held.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Reserved {
        let _waiting = Waiting::begin(self);
        let mut free = self.free();
        loop {
            // First for what the channel holds in common, which a sink that refuses can keep for long: others go first.
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
                // While others are in front, what is free of the floor may do.
                () = until(&self.freed, || free.grow(bytes)) => return free,
                turn = self.all.turn.lock() => turn,
            };
            let _awaited = Awaited::begin(&self.all);
            let mut awaited = self.nothing(Limit::Awaited);
            let enough = until(&self.all.freed_for_next, || awaited.grow(bytes.min(self.largest())));
            if timeout(MAX_WAIT, enough).await.is_ok() {
                awaited.limit = Limit::Free;
                return awaited;
            }
        }
    }

    /// A reservation of so many bytes, free or not. It grows alike.
    pub fn exceed(self: &Arc<Self>, bytes: usize) -> Reserved {
        let mut reserved = self.nothing(Limit::None);
        reserved.grow(bytes);
        reserved
    }

    /// Waits until no other channel reads beyond the limit.
    pub async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let _waiting = Waiting::begin(self);
        self.all.beyond.lock().await
    }

    /// Whether it waits for memory.
    pub fn waits(&self) -> bool {
        lock(&self.waits).now > 0
    }

    /// Until when it has waited for memory: until now, where it waits.
    pub fn waited_until(&self) -> Option<Instant> {
        let waits = lock(&self.waits);
        if waits.now > 0 { Some(Instant::now()) } else { waits.ended }
    }

    /// A copy of an event, counted for as long as it is kept.
    pub fn copy(self: &Arc<Self>, json: &[u8]) -> Bytes {
        Bytes::from_owner(Copied { json: json.into(), _reserved: self.exceed(json.len()) })
    }

    /// For how long a body there is memory now, with the records that are made of it. Half of the floor is left to events
    /// that are read again.
    pub fn room(&self) -> usize {
        let (bounds, held) = (lock(&self.all.bounds), lock(&self.held));
        let floor = (bounds.floor / 2).saturating_sub(held.floor);
        let free = bounds.common.saturating_sub(bounds.used).min(bounds.share.saturating_sub(held.common));
        floor.saturating_add(if bounds.awaited { 0 } else { free }) / COPIES / 2
    }

    /// Whether half of what the channel may hold is free, and half of what is common.
    pub fn is_half_free(&self) -> bool {
        let (bounds, held) = (lock(&self.all.bounds), lock(&self.held));
        held.common <= bounds.share / 2 && bounds.used <= bounds.common / 2
    }

    /// The longest body that there can be memory for.
    pub fn largest(&self) -> usize {
        lock(&self.all.bounds).common / COPIES
    }
}

impl Reserved {
    /// How many bytes it is for.
    pub fn bytes(&self) -> usize {
        (self.held.floor + self.held.common) / COPIES
    }

    /// Gives back what is more than so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = (self.bytes() - bytes.min(self.bytes())) * COPIES;
        let common = surplus.min(self.held.common);
        let surplus = Held { floor: surplus - common, common };
        self.held.floor -= surplus.floor;
        self.held.common -= surplus.common;
        drop(Self { of: self.of.clone(), held: surplus, limit: self.limit });
    }

    /// Adds so many bytes; `false` where they are not free, and none are added.
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

/// Waits until something holds, which can come true whenever memory was freed.
async fn until(freed: &Notify, mut holds: impl FnMut() -> bool) {
    loop {
        let freed = freed.notified();
        if holds() {
            return;
        }
        freed.await;
    }
}

/// A wait for common memory. Dropping it ends the wait.
struct Awaited<'a>(&'a Memory);

impl<'a> Awaited<'a> {
    fn begin(memory: &'a Memory) -> Self {
        lock(&memory.bounds).awaited = true;
        Self(memory)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        lock(&self.0.bounds).awaited = false;
        self.0.freed.notify_waiters();
    }
}

/// An event's JSON, and what it takes.
struct Copied {
    json: Box<[u8]>,
    _reserved: Reserved,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

#[cfg(test)]
mod tests;
