//! Finds the events of a lane in the topic of events, by reading the whole topic. It is needed only if a cursor was moved
//! back, or a position was deleted.
//!
//! Everything here blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{Offset as At, TopicPartitionList};

use super::brokers::{Brokers, Heard};
use super::failure;
use super::positions::reading;
use crate::stream::{self, Unrecorded};
use crate::{Fault, LaneRef, SinkError};
use proof::event::EventKey;

/// The interval at which the search checks whether an open transaction has ended.
const TICK: Duration = Duration::from_millis(20);

/// The longest time that one step of a search takes.
const SLICE: Duration = Duration::from_secs(1);

/// A search in progress.
pub(super) struct Search {
    client: BaseConsumer<Heard>,
    /// The partitions that are not yet read to their end.
    left: BTreeSet<i32>,
    lane: LaneRef,
    /// The wanted events.
    unrecorded: Unrecorded,
    found: BTreeSet<EventKey>,
    /// When the last record or end of a partition arrived.
    moved: Instant,
}

impl Search {
    /// Begins a search for these events of a lane. It waits until open transactions have ended, because the records behind
    /// them may be the lane's.
    pub(super) fn begin(
        brokers: &Brokers,
        partitions: usize,
        lane: &LaneRef,
        unrecorded: Unrecorded,
    ) -> Result<Self, SinkError> {
        let topic = &brokers.settings.topic;
        let ends = ends(brokers, (0..).take(partitions))?;
        let (client, _) = brokers.client::<BaseConsumer<Heard>>(&reading(&brokers.settings.transactional_id))?;
        let deadline = Instant::now() + brokers.settings.timeout;
        for (&partition, &end) in &ends {
            loop {
                let stable = client.fetch_watermarks(topic, partition, brokers.settings.timeout);
                if stable.map_err(|error| failure::of(&error, &brokers.settings))?.1 >= end {
                    break;
                }
                if Instant::now() >= deadline {
                    return Err(SinkError::away(format!(
                        "searching events in {topic}: waiting for an open transaction"
                    )));
                }
                // Brokers do not report when a transaction ends.
                std::thread::sleep(TICK);
            }
        }
        let mut assigned = TopicPartitionList::new();
        for &partition in ends.keys() {
            let added = assigned.add_partition_offset(topic, partition, At::Beginning);
            added.map_err(|error| failure::of(&error, &brokers.settings))?;
        }
        client.assign(&assigned).map_err(|error| failure::of(&error, &brokers.settings))?;
        let left = ends.into_keys().collect();
        Ok(Self { client, left, lane: lane.clone(), unrecorded, found: BTreeSet::new(), moved: Instant::now() })
    }

    /// Reads for a moment. Returns the events that were found when the whole topic was read, and `None` before that.
    pub(super) fn go_on(&mut self, brokers: &Brokers) -> Result<Option<BTreeSet<EventKey>>, SinkError> {
        let until = Instant::now() + SLICE;
        while !self.left.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.client.poll(left) {
                Some(Ok(message)) => {
                    let key = key_of(&message, &self.lane);
                    self.found.extend(key.filter(|key| self.unrecorded.contains(key)));
                    self.moved = Instant::now();
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.left.remove(&partition);
                    self.moved = Instant::now();
                }
                Some(Err(error)) => {
                    let error = failure::of(&error, &brokers.settings);
                    if error.fault() == Fault::Operator {
                        return Err(error);
                    }
                }
                None => {}
            }
            if self.moved.elapsed() > brokers.settings.timeout {
                return Err(SinkError::away(format!("searching events in {}: no answer", brokers.settings.topic)));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
        Ok(Some(std::mem::take(&mut self.found)))
    }
}

/// The end offsets of these partitions of the topic of events. They include the records of open transactions.
pub(super) fn ends(brokers: &Brokers, partitions: impl Iterator<Item = i32>) -> Result<BTreeMap<i32, i64>, SinkError> {
    let (client, ..) = brokers.client::<BaseConsumer<Heard>>(&[("isolation.level", "read_uncommitted")])?;
    let end = |partition| {
        let ends = client.fetch_watermarks(&brokers.settings.topic, partition, brokers.settings.timeout);
        ends.map(|(_, end)| (partition, end)).map_err(|error| failure::of(&error, &brokers.settings))
    };
    partitions.map(end).collect()
}

fn key_of(message: &BorrowedMessage<'_>, lane: &LaneRef) -> Option<EventKey> {
    let headers = message.headers()?;
    let value = |name: &str| {
        let header = headers.iter().find(|header| header.key == name)?;
        std::str::from_utf8(header.value?).ok()
    };
    stream::key_of(lane.channel.id, &lane.sink, value)
}
