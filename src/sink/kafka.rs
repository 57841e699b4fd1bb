//! A Kafka topic: one record an event, each event exactly once.
//!
//! ```text
//! resume, deliver ──► lane ──► producer      transactions: what is refused, what is not known
//!                      │  └──► topics        what must hold of both topics; how they are made
//!                      ├─────► positions     the lane's position and claims in the topic of positions
//!                      └─────► search        the lane's events in the topic, if a cursor was moved back
//! ```
//!
//! # Position
//!
//! A lane is one channel at one sink. Its transactional id is `TRANSACTIONAL_ID.SINK.CHANNEL-ID`. The events of a delivery, and a
//! record in the topic of positions with that id as its key, are one transaction: `read_committed` readers see all of it or
//! nothing. The record is the lane's position. It states how far the lane has got, and names the events of the last delivery. The
//! module `stream` beside this one describes it.
//!
//! A lane *claims* before it produces anything:
//!
//! 1. `init_transactions` with its transactional id. The coordinator then ends what an earlier producer of this id has begun: it
//!    completes what was committed, aborts the rest, and refuses that producer from then on, even if its requests were delayed in
//!    a frozen process or on the network. So the brokers fence older instances. Clocks and epochs are not compared.
//! 2. A transaction with a claim, a record with another key in the topic of positions.
//! 3. It reads that topic, `read_committed`, until it has read its own claim. So it has read every position that was committed
//!    before. To read to the end would not be enough: if a transaction of another lane is open, the stable end is before it,
//!    and a position of this lane can be after it.
//!
//! All lanes use partition 0 of the topic of positions. A sink reads it once, and from then on what is new.
//!
//! # Exactly once
//!
//! * *Crash in a transaction:* the next claim, or `transaction.timeout.ms`, aborts it. Readers that are `read_committed` never see
//!   it.
//! * *Crash after it:* the position names the events. [`resume`](super::Sink::resume) claims and reads it, and the sink skips them.
//! * *The answer to a commit is lost:* the lane closes its producer, and resumes before it does anything else. The position that it
//!   then reads tells whether that delivery is there.
//! * *An older instance wakes up:* it is refused. It resumes, finds the claim of another instance in the topic of positions, and
//!   ends ([`SinkError::Overtaken`]). If it finds its own, the coordinator has ended a transaction that was open for too long,
//!   and the lane claims again.
//! * *A cursor was moved back:* the position counts a higher offset as delivered. The lane searches the topic for its events and
//!   skips them.
//!
//! # Topics that were restored or deleted
//!
//! * *Topic of positions restored to an earlier state:* it has an earlier position, which `resume` returns.
//! * *Position or a topic deleted:* `resume` returns [`Position::Missing`](super::Position::Missing) and writes no position. A lane
//!   without a confirmed position starts with the recorded cursor. If its position was missing before in this run, it first looks
//!   through the topic for its events, which it then skips. A new lane does not, because it would have to read the whole topic.
//! * *Topic of events deleted and made again, or truncated:* the position has the offset of the lane's last record in each
//!   partition. If a partition ends before it, the position counts as missing. While the daemon runs, a transaction whose records
//!   get offsets before it is aborted ([`SinkError::Displaced`]). A topic that has grown past these offsets again is not noticed.
//! * *Events deleted, position kept:* only the position counts. Retention and compaction of the topic of events delete records on
//!   purpose, so they are not produced again, unless an operator moves the cursor back. The topic of positions has to be compacted, which keeps the last position of each
//!   lane; another `cleanup.policy` is refused.
//! * *A position that another program overwrites while the daemon runs* is not noticed before the next `resume`: the next
//!   transaction replaces it.
//! * *Late events:* they do not move the position. If the topics were restored to a state before a late delivery and nothing else is
//!   missing, a restart does not notice it.
//! * *Clocks:* no time of a broker is read.
//!
//! # Invariants
//!
//! * **In order.** The key of an event is its subject or, where it has none, its type. The events of a key are in one partition,
//!   in their order; no transaction begins before the one before it has ended.
//! * **Never its neighbours.** An event that is too large, or that the brokers refuse, is refused alone.
//! * **Away is not refused.** Without an answer no event is given up.
//! * **Bounded.** A transaction by events and bytes, an answer by the timeout, and the lanes of a sink that are in a transaction at
//!   the same time, each of which occupies a thread. A producer that is not used is closed.
//! * **No async thread waits.** The library blocks: all that uses it runs on threads that may.
//!
//! # Cancellation
//!
//! At any point. The work continues to its end under the lane's lock, and the lane resumes before the next delivery.

#[cfg(feature = "kafka")]
mod publisher;
mod settings;

use std::sync::Arc;

use super::{Sink, SinkError};

pub use settings::{KafkaSettings, Mechanism, SaslLogin, Security};

/// Whether this program can produce to Kafka: whether it was built with the feature `kafka`.
pub const HAS_KAFKA: bool = cfg!(feature = "kafka");

/// A sink that produces to a topic. The brokers are asked at the first use.
///
/// # Errors
/// If this program was built without Kafka.
#[cfg(feature = "kafka")]
pub fn kafka(settings: KafkaSettings) -> Result<Arc<dyn Sink>, SinkError> {
    Ok(Arc::new(publisher::Kafka::new(settings)))
}

/// A sink that produces to a topic.
///
/// # Errors
/// Always: this program was built without Kafka.
#[cfg(not(feature = "kafka"))]
pub fn kafka(settings: KafkaSettings) -> Result<Arc<dyn Sink>, SinkError> {
    drop(settings);
    Err(SinkError::unusable("this channeld was built without the feature kafka".to_owned()))
}
