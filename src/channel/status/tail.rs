//! Keeps the latest deliveries for operators who watch them.
//!
//! # Invariants
//!
//! * **Kept only while watched:** for [`WATCHED`] after the last request. Otherwise a delivery costs a lane one comparison.
//! * **Bounded** by [`MAX_EVENTS`] and [`MAX_BYTES`]. The oldest deliveries are dropped, and each reader learns how many it
//!   missed.
//! * **No lane waits.** Kept records are copies, so that they do not keep a page in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use net::tasks::lock;
use proof::event::{ChannelId, Offset};
use record::{Message, Record};

/// How long deliveries are kept after a reader's last request.
const WATCHED: Duration = Duration::from_secs(10);

/// The maximum number of deliveries kept.
const MAX_EVENTS: usize = 2_000;

/// The maximum bytes of records kept. A single record above this limit is not kept, and counts as missed.
const MAX_BYTES: usize = 4 << 20;

/// The latest deliveries of all channels.
#[derive(Debug)]
pub struct Tail {
    began: Instant,
    /// The end of the watched time, in milliseconds after `began`.
    watched_until: AtomicU64,
    is_empty: AtomicBool,
    kept: Mutex<Kept>,
    /// Notified after every delivery.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    deliveries: VecDeque<Delivered>,
    /// The number of the next delivery.
    next: u64,
    /// One copy of each kept record. Deliveries of the same event to several sinks share it.
    records: HashMap<(ChannelId, Offset), Arc<Record>>,
    bytes: usize,
}

/// An event that was delivered to a sink.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The number of this delivery, counted over the process.
    pub number: u64,
    /// The sink.
    pub sink: Arc<str>,
    /// Whether this is the first kept delivery of the event.
    pub is_first: bool,
    /// Whether it is a late delivery: the sink had accepted later events before.
    pub is_late: bool,
    /// The event.
    pub record: Arc<Record>,
}

/// Deliveries in ascending order, and the start of the next request.
#[derive(Debug)]
pub struct Seen {
    /// The deliveries.
    pub deliveries: Vec<Delivered>,
    /// The number of requested deliveries that were not kept.
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
    /// Keeps copies of deliveries, if a reader requested them recently.
    pub(crate) fn note<'a>(&self, sink: &Arc<str>, taken: impl Iterator<Item = (&'a Message, bool)>) {
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

    /// Returns at most `limit` deliveries, beginning with the number `from`. Without a number, returns only the number at
    /// which to begin. Deliveries are kept from now on, for ten seconds.
    pub fn look(&self, from: Option<u64>, limit: usize) -> Seen {
        let until = self.began.elapsed() + WATCHED;
        self.watched_until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        lock(&self.kept).from(from, limit)
    }

    /// Waits until a delivery has this number or a higher one, but at most for `wait`.
    pub async fn reaches(&self, number: u64, wait: Duration) {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Enable before the check, so that a delivery after the check is noticed.
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

    /// Removes everything that is kept. The numbering continues.
    fn forget(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }
}

#[cfg(test)]
mod tests;
