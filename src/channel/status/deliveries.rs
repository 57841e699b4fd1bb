//! Keeps the latest deliveries for operators who watch them, and the late deliveries of each channel.
//!
//! # Invariants
//!
//! * **Kept only while watched.** Deliveries are kept for [`WATCHED`] after the last request of a reader. At other times, a
//!   delivery costs only one lock.
//! * **Bounded** by [`MAX_EVENTS`] and [`MAX_BYTES`]. Each reader learns how many older deliveries it missed.
//! * **No lane waits** for a reader. The kept records are copies, so that they do not keep whole pages in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use net::tasks::lock;
use proof::event::{ChannelId, Offset};
use record::{Message, Record};

/// How long deliveries are kept after a reader's last request.
const WATCHED: Duration = Duration::from_secs(10);

/// The maximum number of deliveries kept.
const MAX_EVENTS: usize = 2_000;

/// The maximum bytes of records kept. A single record above this limit is not kept. Its delivery counts as missed.
const MAX_BYTES: usize = 4 << 20;

/// The maximum number of late deliveries that are kept for each channel. They are kept because the ledger removes a late
/// event when it is settled.
const KEPT: usize = 64;

/// The latest deliveries of all channels.
#[derive(Debug, Default)]
pub struct DeliveryTail {
    kept: Mutex<RecentDeliveries>,
    /// The number of the next delivery, for readers that wait for it.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct RecentDeliveries {
    looked_at: Option<Instant>,
    deliveries: VecDeque<DeliveredEvent>,
    next: u64,
    /// One copy of each kept record. The deliveries of one event to several sinks share the copy.
    records: HashMap<(ChannelId, Offset), Arc<Record>>,
    bytes: usize,
}

/// An event that was delivered to a sink.
#[derive(Clone, Debug)]
pub struct DeliveredEvent {
    /// The number of this delivery among all deliveries of the process.
    pub number: u64,
    /// The sink.
    pub sink: Arc<str>,
    /// Whether this is the first kept delivery of the event.
    pub is_first: bool,
    /// Whether this is a late delivery: the cursor had already passed the event.
    pub is_late: bool,
    /// The event.
    pub record: Arc<Record>,
}

/// Deliveries in ascending order of their numbers, and the number with which the next request begins.
#[derive(Debug)]
pub struct DeliveryPage {
    /// The deliveries.
    pub deliveries: Vec<DeliveredEvent>,
    /// The number of deliveries that were requested but not kept.
    pub missed: u64,
    /// The number with which the next request begins.
    pub next: u64,
}

impl DeliveryTail {
    /// Keeps copies of deliveries, if a reader requested deliveries recently.
    pub(crate) fn note<'a>(&self, sink: &Arc<str>, taken: impl Iterator<Item = (&'a Message, bool)>) {
        let mut kept = lock(&self.kept);
        if kept.looked_at.is_none_or(|at| at.elapsed() >= WATCHED) {
            // The numbers of later deliveries continue from here.
            *kept = RecentDeliveries { next: kept.next, ..RecentDeliveries::default() };
            return;
        }
        for (message, is_late) in taken {
            kept.push(sink, message.record(), is_late);
        }
        self.next.send_replace(kept.next);
    }

    /// Returns at most `limit` deliveries, beginning with the number `from`. If `from` is `None`, returns only the number of
    /// the next delivery. After this call, deliveries are kept for ten seconds.
    pub fn look(&self, from: Option<u64>, limit: usize) -> DeliveryPage {
        let mut kept = lock(&self.kept);
        kept.looked_at = Some(Instant::now());
        let Some(from) = from.filter(|from| *from < kept.next) else {
            return DeliveryPage { deliveries: Vec::new(), missed: 0, next: kept.next };
        };
        let at = kept.deliveries.partition_point(|delivered| delivered.number < from);
        let deliveries: Vec<_> = kept.deliveries.range(at..).take(limit).cloned().collect();
        let last = deliveries.last().filter(|_| deliveries.len() == limit);
        let next = last.map_or(kept.next, |last| last.number + 1);
        let shown = u64::try_from(deliveries.len()).unwrap_or(u64::MAX);
        DeliveryPage { deliveries, missed: (next - from).saturating_sub(shown), next }
    }

    /// Waits until a delivery has this number or a higher number, but for at most `wait`.
    pub async fn reaches(&self, number: u64, wait: Duration) {
        let mut next = self.next.subscribe();
        let _ = tokio::time::timeout(wait, next.wait_for(|next| *next > number)).await;
    }
}

impl RecentDeliveries {
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
        self.deliveries.push_back(DeliveredEvent { number, sink: sink.clone(), is_first, is_late, record });
        while self.deliveries.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.deliveries.pop_front() else { break };
            if oldest.is_first {
                self.bytes -= oldest.record.json.len();
                self.records.remove(&(oldest.record.channel.id, oldest.record.offset));
            }
        }
    }
}

/// The delivery of an event to a sink whose cursor was already past the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateDelivery {
    /// The offset of the event.
    pub offset: Offset,
    /// The sink's name in the configuration.
    pub sink: Arc<str>,
    /// When the sink accepted the event.
    pub at: Timestamp,
    /// Whether an operator requested the delivery. Otherwise the proof was late, or the event became visible late.
    pub is_asked_for: bool,
}

/// The latest late deliveries of a channel in this process, the newest last.
#[derive(Debug, Default)]
pub struct LateDeliveries(VecDeque<LateDelivery>);

impl LateDeliveries {
    pub(crate) fn note(&mut self, delivery: LateDelivery) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(delivery);
    }

    /// Returns the late deliveries of one event.
    pub fn of(&self, offset: Offset) -> impl Iterator<Item = &LateDelivery> {
        self.0.iter().filter(move |delivery| delivery.offset == offset)
    }
}

#[cfg(test)]
mod tests;
