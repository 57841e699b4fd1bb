//! Which events of a lane are in the topic. It is asked where a cursor was put back, and reads the whole topic.
//!
//! Everything here blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{Offset as At, TopicPartitionList};

use super::brokers::{Brokers, Heard};
use super::failure::Failure;
use super::positions::reading;
use crate::event::Offset;
use crate::sink::{LaneRef, stream};

/// Between two looks at whether transactions have ended.
const TICK: Duration = Duration::from_millis(20);

/// A search that goes on.
pub(super) struct Search {
    client: BaseConsumer<Heard>,
    /// The partitions that were not read to their end yet.
    left: BTreeSet<i32>,
    lane: LaneRef,
    /// The events up to here are not asked for.
    above: Option<Offset>,
    found: BTreeSet<Offset>,
    /// When something has come last.
    moved: Instant,
}

impl Search {
    /// For the events of a lane above this offset. What stood behind open transactions is waited for: it may be of the lane.
    pub(super) fn begin(
        brokers: &Brokers,
        partitions: usize,
        lane: &LaneRef,
        above: Option<Offset>,
    ) -> Result<Self, Failure> {
        let topic = &brokers.settings.topic;
        let ends = {
            let (all, ..) = brokers.client::<BaseConsumer<Heard>>(&[("isolation.level", "read_uncommitted")])?;
            let ends = (0..).take(partitions).map(|partition| {
                let ends = all.fetch_watermarks(topic, partition, brokers.settings.timeout);
                ends.map(|(_, end)| (partition, end)).map_err(|error| Failure::of(&error, None, &brokers.settings))
            });
            ends.collect::<Result<BTreeMap<_, _>, _>>()?
        };
        let (client, _) = brokers.client::<BaseConsumer<Heard>>(&reading(&brokers.settings.transactional_id))?;
        let deadline = Instant::now() + brokers.settings.timeout;
        for (&partition, &end) in &ends {
            loop {
                let stable = client.fetch_watermarks(topic, partition, brokers.settings.timeout);
                if stable.map_err(|error| Failure::of(&error, None, &brokers.settings))?.1 >= end {
                    break;
                }
                if Instant::now() >= deadline {
                    return Err(Failure::Away(format!(
                        "looking for events in {topic}: a transaction is open there, until it ends or has been open for too long"
                    )));
                }
                // Brokers do not say when one ends.
                std::thread::sleep(TICK);
            }
        }
        let mut assigned = TopicPartitionList::new();
        for &partition in ends.keys() {
            let added = assigned.add_partition_offset(topic, partition, At::Beginning);
            added.map_err(|error| Failure::of(&error, None, &brokers.settings))?;
        }
        client.assign(&assigned).map_err(|error| Failure::of(&error, None, &brokers.settings))?;
        let left = ends.into_keys().collect();
        Ok(Self { client, left, lane: lane.clone(), above, found: BTreeSet::new(), moved: Instant::now() })
    }

    /// Reads on for so long at the most: what was found, once all was read.
    pub(super) fn go_on(&mut self, brokers: &Brokers, slice: Duration) -> Result<Option<BTreeSet<Offset>>, Failure> {
        let until = Instant::now() + slice;
        while !self.left.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.client.poll(left) {
                Some(Ok(message)) => {
                    let offset = offset_of(&message, &self.lane);
                    self.found.extend(offset.filter(|offset| self.above.is_none_or(|above| *offset > above)));
                    self.moved = Instant::now();
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.left.remove(&partition);
                    self.moved = Instant::now();
                }
                Some(Err(error)) => {
                    if let failure @ Failure::Operator(_) = Failure::of(&error, None, &brokers.settings) {
                        return Err(failure);
                    }
                }
                None => {}
            }
            if self.moved.elapsed() > brokers.settings.timeout {
                return Err(Failure::Away(format!("looking for events in {}: nothing comes", brokers.settings.topic)));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
        Ok(Some(std::mem::take(&mut self.found)))
    }
}

fn offset_of(message: &BorrowedMessage<'_>, lane: &LaneRef) -> Option<Offset> {
    let headers = message.headers()?;
    let value = |name: &str| {
        let header = headers.iter().find(|header| header.key == name)?;
        std::str::from_utf8(header.value?).ok()
    };
    stream::offset_of(lane.channel.id, &lane.sink, value)
}
