//! Finds the events of a lane in the topic of events, by reading the whole topic. This is necessary only if a cursor was moved
//! back, or if a position was deleted or replaced by an older one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};

use super::brokers::{Brokers, ClientReports};
use crate::settings::KafkaSettings;
use crate::stream::{self, Unrecorded};
use crate::{Fault, LaneRef, SinkError};
use proof::event::EventKey;

/// The interval at which the search checks whether an open transaction has ended.
const TICK: Duration = Duration::from_millis(20);

/// The longest time that one step of a search takes.
const SLICE: Duration = Duration::from_secs(1);

pub(super) struct Search {
    client: BaseConsumer<ClientReports>,
    /// The partitions that are not yet read to their end.
    left: BTreeSet<i32>,
    lane: LaneRef,
    unrecorded: Unrecorded,
    found: BTreeSet<EventKey>,
    /// When the last record or end of a partition arrived.
    moved: Instant,
}

impl Search {
    /// Begins a search for these events of a lane. Waits until all open transactions have ended, because events of the lane
    /// may follow their records.
    pub(super) fn begin(
        brokers: &Brokers,
        partitions: usize,
        lane: LaneRef,
        unrecorded: Unrecorded,
    ) -> Result<Self, SinkError> {
        let KafkaSettings { topic, timeout, .. } = &brokers.settings;
        let ends = ends(brokers, partitions)?;
        let client = brokers.reader()?;
        let deadline = Instant::now() + *timeout;
        for (&partition, &end) in &ends {
            while end_of(partition, &client, brokers)? < end {
                if Instant::now() >= deadline {
                    return Err(SinkError::away(format!(
                        "searching events in {topic}: waiting for an open transaction"
                    )));
                }
                // Brokers do not report when a transaction ends.
                std::thread::sleep(TICK);
            }
        }
        brokers.assign(&client, topic, ends.keys().copied(), Offset::Beginning)?;
        let left = ends.into_keys().collect();
        Ok(Self { client, left, lane, unrecorded, found: BTreeSet::new(), moved: Instant::now() })
    }

    /// Reads for at most [`SLICE`]. Returns `Break` with the found events once the whole topic was read.
    pub(super) fn go_on(mut self, brokers: &Brokers) -> Result<ControlFlow<BTreeSet<EventKey>, Self>, SinkError> {
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
                    let error = brokers.error(&error);
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
                return Ok(ControlFlow::Continue(self));
            }
        }
        Ok(ControlFlow::Break(self.found))
    }
}

/// The end offsets of the partitions of the topic of events. They include the records of open transactions.
pub(super) fn ends(brokers: &Brokers, partitions: usize) -> Result<BTreeMap<i32, i64>, SinkError> {
    let client: BaseConsumer<ClientReports> = brokers.client(&[("isolation.level", "read_uncommitted")])?;
    (0..).take(partitions).map(|partition| Ok((partition, end_of(partition, &client, brokers)?))).collect()
}

fn end_of(partition: i32, client: &BaseConsumer<ClientReports>, brokers: &Brokers) -> Result<i64, SinkError> {
    let offsets = client.fetch_watermarks(&brokers.settings.topic, partition, brokers.settings.timeout);
    offsets.map(|(_, end)| end).map_err(|error| brokers.error(&error))
}

fn key_of(message: &BorrowedMessage<'_>, lane: &LaneRef) -> Option<EventKey> {
    let headers = message.headers()?;
    let value = |name: &str| {
        let header = headers.iter().find(|header| header.key == name)?;
        std::str::from_utf8(header.value?).ok()
    };
    stream::key_of(lane.channel.id, &lane.sink, value)
}
