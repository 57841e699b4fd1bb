//! What sinks took lately, for operators who watch.
//!
//! # Invariants
//!
//! * **Kept only while it is watched:** for [`WATCHED`] after the last look. Otherwise a lane pays for one comparison.
//! * **Bounded** by [`MAX_EVENTS`] and [`MAX_BYTES`]: the oldest deliveries are dropped, and each reader is told how many it missed.
//! * **No lane waits for it.** What is kept is a copy, so that it holds none of the memory of a page.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use net::tasks::lock;
use proof::event::{ChannelId, Offset};
use record::{Message, Record};

/// How long after a look it counts as watched.
const WATCHED: Duration = Duration::from_secs(10);

/// The most deliveries that are kept.
const MAX_EVENTS: usize = 2_000;

/// No more is kept than this, in bytes of records. An event that is longer by itself is missed.
const MAX_BYTES: usize = 4 << 20;

/// The deliveries of all channels, the latest of them kept.
#[derive(Debug)]
pub struct Tail {
    began: Instant,
    /// Until when it is watched, in milliseconds since it began.
    watched_until: AtomicU64,
    is_empty: AtomicBool,
    kept: Mutex<Kept>,
    /// Fires when something was delivered.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    deliveries: VecDeque<Delivered>,
    /// The number of the next delivery.
    next: u64,
    /// The records of the first deliveries among them: those to further sinks share them.
    records: HashMap<(ChannelId, Offset), Arc<Record>>,
    bytes: usize,
}

/// An event that a sink took.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Counts the deliveries of the process.
    pub number: u64,
    /// The sink.
    pub sink: Arc<str>,
    /// Whether it is the first sink that took the event, as far as that is kept.
    pub is_first: bool,
    /// Whether the sink had taken events above it before.
    pub is_late: bool,
    /// The event.
    pub record: Arc<Record>,
}

/// Deliveries, ascending, and where the next look goes on.
#[derive(Debug)]
pub struct Seen {
    /// The deliveries.
    pub deliveries: Vec<Delivered>,
    /// Deliveries before them that were not kept.
    pub missed: u64,
    /// The number of the next delivery.
    pub next: u64,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            watched_until: AtomicU64::default(),
            is_empty: AtomicBool::new(true),
            kept: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl Tail {
    /// Keeps a copy of a delivery, where a reader asked for copies lately.
    pub(super) fn note<'a>(&self, sink: &Arc<str>, taken: impl Iterator<Item = (&'a Message, bool)>) {
        if !self.is_watched() {
            if !self.is_empty.swap(true, Ordering::Relaxed) {
                lock(&self.kept).forget();
            }
            return;
        }
        self.is_empty.store(false, Ordering::Relaxed);
        let mut kept = lock(&self.kept);
        for (message, is_late) in taken {
            kept.push(sink, message.record(), is_late);
        }
        drop(kept);
        self.changed.notify_waiters();
    }

    /// What was delivered from that number on, at most so many; without a number only where to go on from. It is watched
    /// from now on, for a while.
    pub fn look(&self, from: Option<u64>, limit: usize) -> Seen {
        let until = self.began.elapsed() + WATCHED;
        self.watched_until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        lock(&self.kept).from(from, limit)
    }

    /// Waits until something is delivered that has that number or a higher one, but not for longer than `wait`.
    pub async fn reaches(&self, number: u64, wait: Duration) {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Before the look: what is delivered after it is not overlooked.
                changed.as_mut().enable();
                if lock(&self.kept).next > number {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(wait, reached).await;
    }

    fn is_watched(&self) -> bool {
        u128::from(self.watched_until.load(Ordering::Relaxed)) > self.began.elapsed().as_millis()
    }
}

impl Kept {
    fn push(&mut self, sink: &Arc<str>, record: &Record, is_late: bool) {
        let number = self.next;
        self.next += 1;
        if record.json.len() > MAX_BYTES {
            return;
        }
        let key = (record.channel.id, record.offset);
        let known = self.records.get(&key).cloned();
        let (is_first, record) = (known.is_none(), known.unwrap_or_else(|| Arc::new(record.detached())));
        if is_first {
            self.bytes += record.json.len();
            self.records.insert(key, record.clone());
        }
        self.deliveries.push_back(Delivered { number, sink: sink.clone(), is_first, is_late, record });
        while self.deliveries.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.deliveries.pop_front() else { break };
            if oldest.is_first {
                self.bytes -= oldest.record.json.len();
                self.records.remove(&(oldest.record.channel.id, oldest.record.offset));
            }
        }
    }

    fn from(&self, from: Option<u64>, limit: usize) -> Seen {
        let Some(from) = from.filter(|from| *from < self.next) else {
            return Seen { deliveries: Vec::new(), missed: 0, next: self.next };
        };
        let at = self.deliveries.partition_point(|delivered| delivered.number < from);
        let deliveries: Vec<_> = self.deliveries.range(at..).take(limit).cloned().collect();
        let next = match deliveries.last() {
            Some(last) if deliveries.len() == limit => last.number + 1,
            _ => self.next,
        };
        let shown = u64::try_from(deliveries.len()).unwrap_or(u64::MAX);
        Seen { deliveries, missed: (next - from).saturating_sub(shown), next }
    }

    /// Forgets what is kept. The numbers go on.
    fn forget(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }
}

#[cfg(test)]
mod tests;
