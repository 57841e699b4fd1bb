//! A NATS JetStream stream: one message an event, each event exactly once.
//!
//! ```text
//! resume, deliver ──► lane ──► server     requests to the servers: what is refused, what is not known
//!                      │  └──► stream     what must hold of the stream; how it is made
//!                      ├─────► position   what the lane's own subject says of it
//!                      └─────► message    headers ──► subject
//! ```
//!
//! # Position
//!
//! A lane is one channel at one sink. In the stream it has a subject of its own, `POSITIONS.CHANNEL-ID.SINK`. The last message
//! there is the lane's position. It names the offsets of the lane's last delivery: the lane records each delivery before it
//! begins the next, so that no more than those can be there without being recorded.
//!
//! A lane *claims* its subject before it sends anything: it reads the position, and publishes it again under its own name,
//! with `Nats-Expected-Last-Subject-Sequence`, which the server compares with the last message there at the moment when it
//! stores the new one. Of two that claim at the same time one is refused and reads again. So the one that has claimed has read the
//! last position there was. All that the lane sends then has the condition that its claim, or what it sent last, still is
//! the last message on its subject. The next claim breaks that condition for everything sent before, whether it was delayed
//! in a frozen process, in a connection's buffer or on the network. That is the fence, and the server holds it: neither clocks
//! nor epochs are compared.
//!
//! # Exactly once in atomic batches
//!
//! From NATS 2.12 on, where the stream allows it (ADR-50 of NATS): the events of a delivery are one batch or a few, each with the
//! position that follows from it. The server stores a batch as a whole or not at all, and its condition is that of the position.
//!
//! * *Crash before the batch is complete:* nothing is there; the server forgets it.
//! * *Crash after it:* the position names the events. [`resume`](Sink::resume) claims, reads it, and the sink passes over
//!   them.
//! * *The answer is lost:* whether the batch is there is not known, and it may still come. The lane claims again before it does
//!   anything else. If the position that it has then read names the batch, the batch is there; if not, its condition is
//!   broken, and it never will be.
//! * *An older instance wakes up:* its condition is broken. It is refused, finds the claim of another instance and ends
//!   ([`SinkError::Overtaken`]).
//!
//! # Exactly once without batches
//!
//! From NATS 2.11 on: a position is published first, which says that events follow. Each event then has the condition that this
//! position still is the last one (`Nats-Expected-Last-Subject-Sequence-Subject`), and is published when the one before it was
//! answered. After a claim no event that was sent before it can come any more; then a search through the messages behind the
//! position tells which have come. Everything else is as above. An older server cannot hold that fence, and is refused.
//!
//! # What else is there
//!
//! * `Nats-Msg-Id` is the channel's id and the offset. The server's window for duplicates is not relied on. Where it knows an
//!   id already (an operator asks for an event again, another sink publishes to the same stream), the event is sent again
//!   with the number of the lane's position behind its id.
//! * A cursor that was put back shows in the position: the highest offset delivered before the last delivery is above it. Then
//!   the lane searches the whole stream for its events, and passes over them.
//! * A position that was purged, or has become too old for the stream's limits, is begun anew.
//! * What JetStream answers is in the server's file, and by its default synced within two minutes: what a power loss takes from
//!   a stream without replicas is lost to the stream. `sync_interval: always`, or replicas, prevent that.
//!
//! # Invariants
//!
//! * **In order.** An event is sent after those before it, and no batch before the one before it was answered.
//! * **Never its neighbours.** An event that is too large, or that the stream does not take, is refused alone.
//! * **Away is not refused.** Without an answer no event is given up.
//! * **Bounded.** A batch by events and by bytes, a request by the timeout.
//!
//! # Cancellation
//!
//! At any point. A delivery that was dropped leaves the lane without its claim, and the next use claims again.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use uuid::Uuid;

use super::{Delivery, LaneRef, Recorded, Resumed, Sink, SinkError, Undelivered};
use crate::event::ChannelId;
use crate::tasks::lock;

mod lane;
mod message;
mod position;
mod server;
mod settings;
mod stream;
mod subject;

use lane::{Lane, Shared};
use server::Server;

pub use settings::{Login, NatsSettings};
pub use subject::Pattern;

/// Events offered at once, which the ledger records as one.
const AT_ONCE: usize = 2 * BATCH;

/// Events offered at once where each is published alone: each takes a journey to the server and back.
const AT_ONCE_ALONE: usize = 100;

/// The most events of one batch. A server takes 1,000 messages in a batch, and the position is one of them.
const BATCH: usize = 999;

/// Publishes events to a stream, shared by any number of channels.
pub struct Nats {
    shared: Shared,
    lanes: Mutex<HashMap<ChannelId, Arc<tokio::sync::Mutex<Lane>>>>,
}

impl Nats {
    /// The connection is made at the first use.
    pub fn new(settings: NatsSettings) -> Self {
        let settings = Arc::new(settings);
        let server = Server::new(settings.clone());
        let (instance, takes_batches) = (Uuid::new_v4(), AtomicBool::new(true));
        Self { shared: Shared { settings, server, instance, takes_batches }, lanes: Mutex::default() }
    }

    fn lane(&self, identity: &LaneRef) -> Arc<tokio::sync::Mutex<Lane>> {
        let new = || Arc::new(tokio::sync::Mutex::new(Lane::new(identity.clone(), &self.shared.settings)));
        lock(&self.lanes).entry(identity.channel.id).or_insert_with(new).clone()
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("stream", &self.shared.settings.stream).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for Nats {
    async fn resume(&self, lane: &Recorded) -> Result<Resumed, SinkError> {
        let known = self.lane(&lane.lane);
        let held = known.lock().await.resume(&self.shared, lane).await?;
        Ok(Resumed { held: lane.keys_at(held), ..Resumed::default() })
    }

    async fn probe(&self) -> Result<String, SinkError> {
        lane::probe(&self.shared).await
    }

    fn at_once(&self) -> usize {
        if self.shared.takes_batches.load(Ordering::Relaxed) { AT_ONCE } else { AT_ONCE_ALONE }
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let lane = self.lane(delivery.lane);
        lane.lock().await.deliver(&self.shared, delivery).await
    }
}
