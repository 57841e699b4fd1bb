//! The sink: its lanes, and the upkeep of their connections.

use std::fmt;
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
mod event;
mod failure;
mod log;
mod positions;
mod producer;
mod search;
mod shared;
mod topics;
mod writer;

use log::LaneLog;
use shared::Shared;
use writer::Writers;

/// The most events in one delivery.
const AT_ONCE: usize = 1_000;

/// The interval at which unused producers are served and closed.
const UPKEEP: Duration = Duration::from_secs(15);

/// Produces events to a topic, shared by any number of channels.
pub(crate) struct Kafka {
    shared: Arc<Shared>,
    writers: Arc<Writers>,
    lanes: Lanes<LaneLog>,
    /// The upkeep task, started at the first use.
    upkeep: OnceLock<AbortOnDropHandle<()>>,
}

impl Kafka {
    /// Makes a sink. It connects to the brokers at the first use.
    pub(crate) fn new(settings: KafkaSettings) -> Self {
        let shared = Arc::new(Shared::new(settings));
        Self { shared, writers: Arc::default(), lanes: Lanes::default(), upkeep: OnceLock::new() }
    }

    async fn lane(&self, identity: &LaneRef) -> OwnedMutexGuard<Lane<LaneLog>> {
        self.upkeep.get_or_init(|| {
            let (shared, writers) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.writers));
            AbortOnDropHandle::new(tokio::spawn(upkeep(shared, writers)))
        });
        self.lanes.lane(identity, || LaneLog::new(self.shared.clone(), identity.clone(), &self.writers)).await
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("topic", &self.shared.topic()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for Kafka {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        self.lane(&recorded.lane).await.resume(recorded).await
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        self.lane(lane).await.position().await
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
        let (shared, writers) = (self.shared.clone(), self.writers.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The handle is dropped: the thread only closes connections, and then ends.
            drop(runtime.spawn_blocking(move || {
                writers.close();
                // If the reader is in use, its user closes it.
                drop(shared.positions.try_lock().ok().and_then(|mut positions| positions.take()));
            }));
        }
    }
}

/// Serves and closes unused connections.
async fn upkeep(shared: Weak<Shared>, writers: Weak<Writers>) {
    loop {
        sleep(UPKEEP).await;
        let (Some(shared), Some(writers)) = (shared.upgrade(), writers.upgrade()) else { return };
        blocking(move || {
            if let Some(positions) = &mut *lock(&shared.positions) {
                positions.rest();
            }
            writers.rest();
        })
        .await;
    }
}
