//! A Kafka topic: one record an event, each event exactly once.
//!
//! ```text
//! resume, deliver ──► lane ──► producer      transactions: what is refused, what is not known
//!                      │  └──► topics        what must hold of both topics; how they are made
//!                      ├─────► positions     what the topic of positions says of the lane
//!                      └─────► search        which events are there, where a cursor was put back
//! ```
//!
//! # Position
//!
//! A lane is one channel at one sink. Its transactional id is `TRANSACTIONAL_ID.SINK.CHANNEL-ID`. The events of a delivery, and
//! a record in the topic of positions with that id as its key, are one transaction: `read_committed` readers see all of it or
//! nothing. The position names the offsets of the lane's last delivery: the lane records each delivery before it begins the
//! next, so that no more than those can be there without being recorded.
//!
//! A lane *claims* before it produces anything:
//!
//! 1. `init_transactions` with its transactional id. The coordinator then ends what an earlier producer of this id has begun: it
//!    completes what was committed, gives up the rest, and refuses that producer from then on. Whether its requests were delayed
//!    in a frozen process or on the network makes no difference. That is the fence, and the brokers hold it: neither clocks nor
//!    the lease's epochs are compared.
//! 2. A transaction with a claim, a record with another key in the topic of positions.
//! 3. It reads that topic, `read_committed`, until it has read its own claim. So it has read every position that was committed
//!    before. To read to the end would not be enough: where a transaction of another lane is open, the stable end is before
//!    it, and a position of this lane may stand behind.
//!
//! All lanes use partition 0 of the topic of positions. A sink reads it once, and from then on what is new.
//!
//! # Exactly once
//!
//! * *Crash in a transaction:* the next claim, or `transaction.timeout.ms`, gives it up. Readers that are `read_committed` never
//!   see it.
//! * *Crash after it:* the position names the events. [`resume`](super::Sink::resume) claims, reads it, and the sink passes over them.
//! * *The answer to a commit is lost:* the lane closes its producer, and claims again before it does anything else. The position
//!   that it has then read tells whether that delivery is there.
//! * *An older instance wakes up:* it is refused. It reads the topic of positions, finds the claim of another instance, and ends
//!   ([`SinkError::Overtaken`]). Where it finds its own, nobody has overtaken it: the coordinator has ended a transaction that
//!   was open for too long, and the lane claims again.
//! * *A cursor was put back:* the highest offset delivered before the last delivery is above it. Then the lane searches the
//!   topic for its events, and passes over them.
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
//! At any point. What was begun goes on to its end under the lane's lock, and the next delivery knows what came of it.

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
