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
//! A lane is one channel at one sink. Its transactional id is `TRANSACTIONAL_ID.SINK.CHANNEL-ID`. The events of a delivery,
//! and a record in the topic of positions with that id as its key, are one transaction: `read_committed` readers see all of
//! it or nothing. The record is the lane's position. It contains the cursor of the lane, and names the events of the last
//! delivery. The module `stream` describes it.
//!
//! A lane *claims* before it produces anything:
//!
//! 1. `init_transactions` with its transactional id. The coordinator then ends the transaction of an earlier producer with
//!    this id: it completes a committed transaction and aborts any other. From then on it refuses that producer, even if
//!    its requests were delayed in a frozen process or on the network. So the brokers fence older instances. Clocks and
//!    epochs are not compared.
//! 2. A transaction with a claim, a record with another key in the topic of positions.
//! 3. It reads that topic, `read_committed`, until it has read its own claim. So it has read every position that was
//!    committed before. Reading to the end would not be enough: if a transaction of another lane is open, the stable end is
//!    before it, and a position of this lane can be after it.
//!
//! All lanes use partition 0 of the topic of positions. A sink reads it once, and afterwards only new records.
//!
//! # Exactly once
//!
//! * *Crash in a transaction:* the next claim, or `transaction.timeout.ms`, aborts it. Readers that are `read_committed`
//!   never see it.
//! * *Crash after it:* the position names the events. [`resume`](super::Sink::resume) claims and reads it, and the sink
//!   skips them.
//! * *The answer to a commit is lost:* the lane closes its producer, and resumes before it does anything else. The position
//!   that it then reads shows whether the delivery was committed.
//! * *An older instance wakes up:* the brokers refuse it. It resumes, finds the claim of another instance in the topic of
//!   positions, and ends ([`SinkError::Overtaken`]). If it finds its own claim, the coordinator has ended a transaction
//!   that was open for too long, and the lane claims again.
//! * *A cursor was moved back:* the position counts a higher offset as delivered. The lane searches the topic for its
//!   events and skips them.
//!
//! # Topics that were restored or deleted
//!
//! * *Topic of positions restored to an earlier state:* it contains an earlier position, which `resume` returns.
//! * *Position or a topic deleted:* `resume` returns [`Position::Missing`](super::Position::Missing) and writes no
//!   position. A lane without a confirmed position starts with the recorded cursor. If its position was missing before in
//!   this run, it first searches the topic for its events, which it then skips. A new lane does not, because it would have
//!   to read the whole topic.
//! * *Topic of events deleted and created again, or truncated:* the position contains the offset of the lane's last record
//!   in each partition. If a partition ends before this offset, the position counts as missing. While the daemon runs, a
//!   transaction whose records get offsets before it is aborted ([`SinkError::Displaced`]). If the topic has grown past
//!   these offsets again, this is not detected.
//! * *Events deleted, position kept:* only the position counts. Retention and compaction of the topic of events delete
//!   records on purpose, so they are not produced again, unless an operator moves the cursor back. The topic of positions
//!   must be compacted, which keeps the last position of each lane. Any other `cleanup.policy` is refused.
//! * *A position that another program overwrites while the daemon runs* is not detected before the next `resume`: the next
//!   transaction replaces it.
//! * *Late deliveries:* they do not move the position. If the topics were restored to a state before a late delivery and
//!   nothing else is missing, a restart does not detect it.
//! * *Clocks:* channeld reads no broker's clock.
//!
//! # Invariants
//!
//! * **In order.** The key of an event is its subject or, if it has no subject, its type. The events of a key are in one
//!   partition, in their order. No transaction begins before the previous one has ended.
//! * **Never its neighbors.** If an event is too large, or the brokers refuse it, only this event is refused.
//! * **Away is not refused.** An event without an answer never becomes a dead letter.
//! * **Bounded.** A transaction is bounded in events and bytes, and the wait for an answer by the timeout. The number of
//!   lanes of a sink that are in a transaction at the same time is bounded, because each of them occupies a thread. An
//!   unused producer is closed.
//! * **No async thread waits.** The library blocks, so all code that uses it runs on threads that may block.
//!
//! # Cancellation
//!
//! Safe at any point. The work continues to its end under the lane's lock, and the lane resumes before the next delivery.

mod publisher;

pub(crate) use publisher::Kafka;
