//! A NATS JetStream stream: one message for each event, each event exactly once.
//!
//! ```text
//! resume, deliver ──► sink::stream::Lane ──► log ──► server     requests to the servers, refused or without an answer
//! probe ──────────────────────────────────────┼────► probe      checks without effects; whether the account maps subjects to others
//!                                             ├────► stream     the requirements on the stream; how it is created
//!                                             └────► message    the messages of events, and of the lane's position
//! ```
//!
//! # Position
//!
//! A lane is one channel at one sink. It has its own subject in the stream, `POSITIONS.CHANNEL-ID.SINK`. The last message
//! on this subject is the lane's position. The module `sink::stream` describes positions and their invariants.
//!
//! A lane *claims* its subject before it sends anything: it reads the position, and publishes the same position again with
//! the id of its own process and the header `Nats-Expected-Last-Subject-Sequence`. The server stores this message, the
//! claim, only if no other message was stored on the subject since the position was read. Every later message has a
//! condition: the last message on the subject must still be the claim, or the newest position that the lane has published
//! since. After the claim of another instance, the condition is not met for any message that was sent before that claim,
//! even if the message was delayed in a frozen process, in a buffer or on the network. So the server fences older
//! instances.
//!
//! # Exactly once in atomic batches
//!
//! NATS 2.12 and later support atomic batches, if the stream allows them (ADR-50 of NATS). The events of a delivery are one
//! batch or a few, and the last message of each batch is the position that results from the batch. The server stores the
//! whole batch or nothing, under the condition on the position.
//!
//! * *Crash before the batch is complete:* the server discards the batch.
//! * *Crash after the batch:* the position names the events. [`resume`](Sink::resume) claims the lane and reads the position,
//!   and the sink skips the events.
//! * *The answer is lost:* the lane resumes before it does anything else. It then reads the position. If that position
//!   includes the batch, the batch was stored. If not, the batch will never be stored, because its condition is no
//!   longer met.
//! * *The server stores only a part:* NATS 2.15 does so if its storage fills up within a batch. Therefore the lane searches
//!   the stream for its events after its last position, at every claim and whenever the server reports duplicate ids. The
//!   sink skips the events that the search finds.
//! * *An older instance wakes up:* the server refuses its messages. The lane resumes, finds the claim of another instance and
//!   ends ([`SinkError::Overtaken`]).
//!
//! # Exactly once without batches
//!
//! This works with NATS 2.11 and later. Each event is published after the previous one was acknowledged, under the
//! condition that the lane's position message is still the last message on its subject
//! (`Nats-Expected-Last-Subject-Sequence-Subject`). Then the new position is published. After a claim, events that were
//! sent before the claim can no longer arrive. The search after the last position finds the events that have arrived. An
//! older server does not support a condition on another subject, and is refused.
//!
//! # A stream that was restored, purged or deleted
//!
//! * *Restored to an earlier state:* the stream contains an earlier position, which `resume` returns. While the daemon
//!   runs, the condition of the next message is not met, the delivery ends with [`SinkError::Displaced`], and the lane
//!   resumes.
//! * *Position or stream deleted:* `resume` returns [`Position::Missing`] and publishes nothing. A lane without a confirmed
//!   position starts with the recorded cursor. The lane first searches the whole stream for its events, and then skips
//!   these events.
//! * *Limits:* a stream with `max_age`, or with `max_msgs` or `max_bytes` and `discard: old`, can delete the position of a
//!   quiet lane. If the stream has deleted messages, the lane writes a missing position again, from the recorded position.
//!   The sink cannot distinguish a purge from these limits, unless the stream still has messages that are older than the
//!   last position of this process.
//! * *Another `subject` or channel name:* the position contains the filters of the subjects on which the lane has published
//!   before, and the lane also searches for its events there. If the position is missing, the lane finds only the events on the
//!   present subjects.
//! * *Other subjects:* the server can store a message on another subject than the subject to which it was published, if the
//!   stream has a `subject_transform`, or the account has mappings. The lane would not find its position after a restart.
//!   Such a transformation is refused. Each claim checks the subject of the stored claim, and the first claim of a lane checks
//!   with a message that is not stored whether the subjects of its events are mapped.
//! * *Other retention:* `workqueue` and `interest` would delete positions, and are refused.
//!
//! # Duplicates and power loss
//!
//! * `Nats-Msg-Id` is the channel's id, the offset and the event's id, so that two events at one offset are both
//!   stored. The sink does not rely on the server's window for duplicates. The server may already know an id because an
//!   operator replays an event, or because another sink publishes to the same stream. The sink then sends the event with a
//!   longer `Nats-Msg-Id`: the usual id, followed by the sequence number of the lane's position.
//! * JetStream answers when a message is in the server's file. By default, the server syncs this file within two minutes. A
//!   power loss can lose the last messages of a stream without replicas. The stream is then in an earlier state, as after a
//!   restore. `sync_interval: always`, or replicas, prevent this.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::sync::OwnedMutexGuard;

use super::stream::{Lane, Lanes};
use super::{Delivery, LaneRef, Position, Recorded, Resumed, Sink, SinkError, Undelivered, with_warning};
use crate::settings::NatsSettings;
use net::tasks::lock;

mod failure;
mod log;
mod message;
mod probe;
mod server;
mod stream;

use log::LaneLog;
use server::Server;

/// Publishes events to a stream, shared by any number of channels.
pub(crate) struct Nats {
    server: Arc<Server>,
    lanes: Lanes<LaneLog>,
}

impl Nats {
    /// Makes a sink. The sink connects at the first use.
    pub(crate) fn new(settings: NatsSettings) -> Self {
        Self { server: Arc::new(Server::new(settings, stream::AT_ONCE)), lanes: Lanes::default() }
    }

    async fn lane(&self, identity: &LaneRef) -> OwnedMutexGuard<Lane<LaneLog>> {
        self.lanes.lane(identity, || LaneLog::new(self.server.clone(), identity.clone())).await
    }
}

#[async_trait]
impl Sink for Nats {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        self.lane(&recorded.lane).await.resume(recorded).await
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        self.lane(lane).await.log.position().await
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let said = self.server.probe().await?;
        Ok(with_warning(said, self.early_ack().await))
    }

    async fn early_ack(&self) -> Option<String> {
        lock(&self.server.early_ack).map(str::to_owned)
    }

    fn at_once(&self) -> usize {
        self.server.at_once.load(Ordering::Relaxed)
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        self.lane(delivery.lane).await.deliver(delivery).await
    }
}
