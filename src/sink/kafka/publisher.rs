//! The sink: its lanes, and the threads on which they block.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;
use uuid::Uuid;

use super::KafkaSettings;
use crate::{Delivery, LaneRef, Position, Recorded, Resumed, Sink, SinkError, Undelivered, blocking};
use net::tasks::lock;
use proof::event::{ChannelId, EventKey};

mod brokers;
mod failure;
mod lane;
mod positions;
mod producer;
mod search;
mod topics;

use brokers::Brokers;
use failure::Failure;
use lane::{Begun, Lane, Offer, Shared};
use search::Search;

/// The most events in one delivery.
const AT_ONCE: usize = 1_000;

/// The most lanes of a sink that work at the same time. Each of them occupies a thread.
const AT_A_TIME: usize = 16;

/// The interval at which unused producers are served and closed.
const UPKEEP: Duration = Duration::from_secs(15);

/// The longest time that one step of a search takes.
const SLICE: Duration = Duration::from_secs(1);

type Lanes = Mutex<HashMap<ChannelId, Arc<tokio::sync::Mutex<Lane>>>>;

/// Produces events to a topic, shared by any number of channels.
pub(super) struct Kafka {
    shared: Arc<Shared>,
    lanes: Arc<Lanes>,
    threads: Arc<Semaphore>,
    /// The upkeep task, started at the first use.
    upkeep: OnceLock<AbortOnDropHandle<()>>,
}

impl Kafka {
    /// Makes a sink. It connects to the brokers at the first use.
    pub(super) fn new(settings: KafkaSettings) -> Self {
        let shared = Arc::new(Shared::new(Brokers::new(Arc::new(settings)), Uuid::new_v4()));
        Self { shared, lanes: Arc::default(), threads: Arc::new(Semaphore::new(AT_A_TIME)), upkeep: OnceLock::new() }
    }

    async fn lane(&self, identity: &LaneRef) -> OwnedMutexGuard<Lane> {
        self.upkeep.get_or_init(|| {
            let (shared, lanes) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.lanes));
            AbortOnDropHandle::new(tokio::spawn(upkeep(shared, lanes)))
        });
        let new = || Arc::new(tokio::sync::Mutex::new(Lane::new(identity.clone(), &self.shared)));
        let lane = lock(&self.lanes).entry(identity.channel.id).or_insert_with(new).clone();
        lane.lock_owned().await
    }

    /// Runs `work` on a lane, on a thread that may block. The lane stays locked until the work has ended, even if the
    /// caller no longer waits for it.
    async fn on<T: Send + 'static>(
        &self,
        mut lane: OwnedMutexGuard<Lane>,
        work: impl FnOnce(&mut Lane, &Shared) -> T + Send + 'static,
    ) -> (OwnedMutexGuard<Lane>, T) {
        let permit = self.threads.clone().acquire_owned().await;
        let shared = self.shared.clone();
        let work = move || {
            let done = work(&mut lane, &shared);
            drop(permit);
            (lane, done)
        };
        blocking(work).await
    }

    async fn searched(&self, mut search: Search, lane: &LaneRef) -> Result<BTreeSet<EventKey>, Failure> {
        info!(channel = %lane.channel.name, sink = %lane.sink, topic = self.shared.brokers.settings.topic,
            "looking for the lane's events in the topic");
        loop {
            let shared = self.shared.clone();
            let (back, found) = blocking(move || {
                let found = search.go_on(&shared.brokers, SLICE);
                (search, found)
            })
            .await;
            search = back;
            if let Ok(None) = found {
                continue;
            }
            // Dropping a client waits for the client's threads, so it must not happen on an async thread.
            blocking(move || drop(search)).await;
            return found.map(Option::unwrap_or_default);
        }
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("topic", &self.shared.brokers.settings.topic).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for Kafka {
    async fn resume(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let lane = self.lane(&recorded.lane).await;
        let given = recorded.clone();
        let (mut lane, begun) = self.on(lane, move |lane, shared| lane.take_over(shared, &given)).await;
        let found = match begun.map_err(Failure::error)? {
            Begun::Missing(why) => return Ok(Resumed { position: Position::Missing(why), ..Resumed::default() }),
            Begun::Claimed(Some(search)) => self.searched(search, &recorded.lane).await.map_err(Failure::error)?,
            Begun::Claimed(None) => BTreeSet::new(),
        };
        let held = lane.taken_over(recorded, &found);
        Ok(Resumed { position: Position::At(lane.through()), held })
    }

    async fn position(&self, lane: &LaneRef) -> Result<Position, SinkError> {
        let lane = self.lane(lane).await;
        let (_, position) = self.on(lane, |lane, shared| lane.position(shared)).await;
        position.map_err(Failure::error)
    }

    async fn probe(&self) -> Result<String, SinkError> {
        let shared = self.shared.clone();
        blocking(move || topics::probe(&shared.brokers)).await
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let lane = self.lane(delivery.lane).await;
        let Delivery { epoch, after, through, messages, .. } = *delivery;
        let offer = Offer { epoch, after, through, messages: messages.to_vec() };
        let (_, delivered) = self.on(lane, move |lane, shared| lane.deliver(shared, &offer)).await;
        delivered
    }
}

impl Drop for Kafka {
    /// Dropping a client waits for the client's threads, so it must not happen on an async thread.
    fn drop(&mut self) {
        let open = (std::mem::take(&mut *lock(&self.lanes)), self.shared.close());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The handle is dropped: the thread only closes connections, and then ends.
            drop(runtime.spawn_blocking(move || drop(open)));
        }
    }
}

/// Empties the queues of unused producers, and closes producers and readers that were not used for a long time.
async fn upkeep(shared: Weak<Shared>, lanes: Weak<Lanes>) {
    loop {
        sleep(UPKEEP).await;
        let (Some(shared), Some(lanes)) = (shared.upgrade(), lanes.upgrade()) else { return };
        let all: Vec<_> = lock(&lanes).values().cloned().collect();
        drop(lanes);
        // A locked lane is in use.
        let idle: Vec<_> = all.into_iter().filter_map(|lane| lane.try_lock_owned().ok()).collect();
        blocking(move || {
            shared.rest();
            for mut lane in idle {
                lane.rest();
            }
        })
        .await;
    }
}
