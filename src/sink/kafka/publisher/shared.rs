//! The state that the lanes of a sink share.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::brokers::Brokers;
use super::positions::Positions;
use super::producer::{Outgoing, POSITIONS};
use super::topics::Seen;
use crate::settings::KafkaSettings;
use crate::{LaneRef, SinkError};

/// The most lanes of a sink that work at the same time. Each of them occupies a thread.
const AT_A_TIME: usize = 16;

/// The state that the lanes of a sink share.
pub(super) struct Shared {
    pub(super) brokers: Brokers,
    pub(super) seen: Seen,
    pub(super) positions: Mutex<Option<Positions>>,
    /// The run of the process.
    pub(super) instance: Uuid,
    threads: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(settings: KafkaSettings) -> Self {
        Self {
            brokers: Brokers::new(Arc::new(settings)),
            seen: Seen::default(),
            positions: Mutex::default(),
            instance: Uuid::new_v4(),
            threads: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    pub(super) fn topic(&self) -> &str {
        &self.brokers.settings.topic
    }

    /// Waits until a further lane may occupy a thread.
    pub(super) async fn thread(&self) -> OwnedSemaphorePermit {
        self.threads.clone().acquire_owned().await.expect("it is never closed")
    }

    /// A record for the topic of positions.
    pub(super) fn position_record<'a>(&'a self, key: &'a str, body: &'a Bytes) -> Outgoing<'a> {
        let topic = &self.brokers.settings.positions_topic;
        Outgoing { topic, partition: Some(POSITIONS), key, headers: &[], body }
    }

    /// The prefix of the transactional ids of a sink's lanes. A sink's name contains no dot.
    pub(super) fn prefix(&self, identity: &LaneRef) -> String {
        format!("{}.{}.", self.brokers.settings.transactional_id, identity.sink)
    }

    pub(super) fn id(&self, identity: &LaneRef) -> String {
        format!("{}{}", self.prefix(identity), identity.channel.id)
    }

    pub(super) fn displaced(&self, identity: &LaneRef) -> SinkError {
        SinkError::Displaced(format!(
            "the lane's position in the topic {}, under the key {}, differs from the last one that this instance wrote",
            self.brokers.settings.positions_topic,
            self.id(identity)
        ))
    }

    pub(super) fn missing_topic(&self) -> String {
        let settings = &self.brokers.settings;
        format!("one of the topics {} and {} does not exist", settings.topic, settings.positions_topic)
    }
}
