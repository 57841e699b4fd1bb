//! A Kafka topic: one record for each event, each event exactly once.
//!
//! ```text
//! resume, deliver ──► sink::stream::Lane ──► log         the work of a lane, on threads that may block
//!                                             ├──► search    the lane's events in the topic, if a cursor was moved back
//!                                             └──► writer
//!                                                   ├──► producer    transactions, and whether a failed one was aborted
//!                                                   ├──► topics      the requirements on both topics; how they are created
//!                                                   └──► positions   the lane's position and claims in the topic of positions
//! ```
//!
//! # Position
//!
//! A lane is one channel at one sink. Its transactional id is `TRANSACTIONAL_ID.SINK.CHANNEL-ID`. One transaction contains
//! the events of a delivery, and a record in the topic of positions whose key is the transactional id. Readers that are
//! `read_committed` see the whole transaction or nothing. The record is the lane's position. The module `stream` describes
//! positions and their invariants.
//!
//! A lane *claims* before it produces anything:
//!
//! 1. It calls `init_transactions` with its transactional id. The coordinator then ends the transaction of an earlier
//!    producer with this id: it completes the transaction if it was committed, and otherwise aborts it. From then on the
//!    coordinator refuses the earlier producer, even if its requests were delayed in a frozen process or on the network. So
//!    the brokers fence older instances.
//! 2. It commits a transaction with a claim: a record with another key in the topic of positions.
//! 3. It reads that topic, `read_committed`, until it has read its own claim. The lane has then read every position that
//!    was committed before this claim. Reading to the stable end would not be enough. If a transaction of another lane is
//!    open, the stable end is before that transaction, and a position of this lane can be after it.
//!
//! All lanes use partition 0 of the topic of positions. A sink reads this partition once, and afterwards only new records.
//!
//! # Exactly once
//!
//! * *Crash during a transaction:* the next claim, or `transaction.timeout.ms`, aborts the transaction. Readers that are
//!   `read_committed` never see its records.
//! * *Crash after a transaction:* the position names the events. [`resume`](super::Sink::resume) claims the lane and reads
//!   the position, and the sink skips the events.
//! * *The answer to a commit is lost:* the lane closes its producer, and resumes before it does anything else. The position
//!   that it then reads shows whether the delivery was committed.
//! * *An older instance wakes up:* the brokers refuse it. The lane resumes, finds the claim of another instance in the
//!   topic of positions, and ends ([`SinkError::Overtaken`]). If the lane finds no claim after its own, the coordinator had
//!   ended the lane's transaction because it was open for too long. The lane then claims again.
//!
//! # Topics that were restored or deleted
//!
//! * *Topic of positions restored to an earlier state:* the topic contains an earlier position, which `resume` returns.
//! * *Position or a topic deleted:* `resume` returns [`Position::Missing`] and writes no position. If an operator then sets the
//!   cursor in the same run, the lane searches the whole topic for its events, and skips them. A lane whose position was not
//!   missing before in this run does not search, because a new lane would have to read the whole topic.
//! * *Topic of events deleted and created again, or truncated:* the position contains the offset of the lane's last record
//!   in each partition. If a partition ends before this offset, the position counts as missing. While the daemon runs, a
//!   transaction is aborted if its records do not get higher offsets than the lane's last record
//!   ([`SinkError::Displaced`]). The change is not detected if the new topic has already grown past these offsets.
//! * *Positions deleted by retention:* the topic of positions must be compacted, because compaction keeps the last position
//!   of each lane. Any other `cleanup.policy` is refused.
//! * *A position that another program overwrites while the daemon runs* is not detected before the next `resume`: the next
//!   transaction replaces it.
//!
//! # Invariants
//!
//! * **In order.** The key of an event is its subject or, if it has no subject, its type. The events of a key are in one
//!   partition, in their order.
//! * **An aborted transaction delivers nothing.** If the brokers refuse an event without a known reason, other events of the
//!   delivery are produced in transactions that are aborted, to find out whether the topic accepts any event (see
//!   `narrowing`). Only readers that are `read_uncommitted` see them, as they see every aborted transaction.
//! * **Bounded.** A transaction is bounded in events and bytes, and the wait for an answer by the timeout. The number of
//!   lanes of a sink that are in a transaction at the same time is bounded, because each such lane occupies a thread. An
//!   unused producer is closed.
//! * **No async thread waits.** The library blocks. All code that uses it is called through `log`, on threads that may block.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::settings::KafkaSettings;
use crate::stream::{Lane, Lanes};
use crate::{Delivery, LaneRef, Position, Recorded, Resumed, Sink, SinkError, Undelivered, blocking};
use net::tasks::lock;

mod brokers;
mod error;
mod log;
mod positions;
mod producer;
mod search;
mod topics;
mod writer;

use log::LaneLog;
use writer::{Shared, Writer};

/// The maximum number of events in one delivery.
const AT_ONCE: usize = 1_000;

/// The interval at which unused producers are served and closed.
const UPKEEP: Duration = Duration::from_secs(15);

/// Produces events to a topic, shared by any number of channels.
pub(crate) struct Kafka {
    shared: Arc<Shared>,
    lanes: Arc<Lanes<LaneLog>>,
    /// The upkeep task, started at the first use.
    upkeep: OnceLock<AbortOnDropHandle<()>>,
}

impl Kafka {
    /// Makes a sink. The sink connects to the brokers at the first use.
    pub(crate) fn new(settings: KafkaSettings) -> Self {
        Self { shared: Arc::new(Shared::new(settings)), lanes: Arc::default(), upkeep: OnceLock::new() }
    }

    async fn lane(&self, identity: &LaneRef) -> OwnedMutexGuard<Lane<LaneLog>> {
        self.upkeep.get_or_init(|| {
            let (shared, lanes) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.lanes));
            AbortOnDropHandle::new(tokio::spawn(upkeep(shared, lanes)))
        });
        self.lanes.lane(identity, || LaneLog::new(self.shared.clone(), identity.clone())).await
    }
}

#[async_trait]
impl Sink for Kafka {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        self.lane(&recorded.lane).await.resume(recorded).await
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        self.lane(lane).await.log.position().await
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let shared = self.shared.clone();
        blocking(move || topics::probe(&shared.brokers)).await
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        self.lane(delivery.lane).await.deliver(delivery).await
    }
}

impl Drop for Kafka {
    /// Closing a client waits for the client's threads, so it must not happen on an async thread.
    fn drop(&mut self) {
        let (shared, lanes) = (self.shared.clone(), self.lanes.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The handle is dropped: the thread only closes connections, and then ends.
            drop(runtime.spawn_blocking(move || {
                lanes.unused(|log| log.unused(Writer::close));
                // If the reader is in use, its user closes it.
                drop(shared.positions.try_lock().ok().and_then(|mut positions| positions.take()));
            }));
        }
    }
}

/// Serves and closes unused connections.
async fn upkeep(shared: Weak<Shared>, lanes: Weak<Lanes<LaneLog>>) {
    loop {
        sleep(UPKEEP).await;
        let (Some(shared), Some(lanes)) = (shared.upgrade(), lanes.upgrade()) else { return };
        blocking(move || {
            if let Some(positions) = &mut *lock(&shared.positions) {
                positions.rest();
            }
            lanes.unused(|log| log.unused(Writer::rest));
        })
        .await;
    }
}
