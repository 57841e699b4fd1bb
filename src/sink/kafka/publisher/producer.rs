//! The producer of one lane. A transaction is committed as a whole, or not at all.
//!
//! Everything here blocks.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::brokers::{Brokers, Heard, Taken};
use super::failure::{self, is_fenced};
use crate::{Fault, SinkError};

/// The longest time that one poll waits for delivery reports.
const TICK: Duration = Duration::from_millis(1);

/// The most bytes in one batch of a partition, unless one event is larger, or the topic accepts less.
const BATCH_BYTES: usize = 1_000_000;

/// The largest record that the library accepts. The lane checks the limit of the topic before.
const MAX_BYTES: &str = "1000000000";

/// The partition of all positions.
pub(super) const POSITIONS: i32 = 0;

/// A record of a transaction.
pub(super) struct Outgoing<'a> {
    pub(super) topic: &'a str,
    /// `None` if the key decides.
    pub(super) partition: Option<i32>,
    pub(super) key: &'a str,
    pub(super) headers: &'a [(&'static str, String)],
    pub(super) body: &'a Bytes,
}

/// The failure of a transaction that is not known to be committed.
pub(super) struct Broken {
    pub(super) error: SinkError,
    /// The code of the error, if it has one.
    pub(super) code: Option<Code>,
    /// Whether the transaction was aborted, so that none of its records is visible and the next transaction can begin.
    /// Otherwise the outcome is not known, and the lane must be claimed again.
    pub(super) is_aborted: bool,
}

/// A producer with the transactional id of a lane.
pub(super) struct Producer {
    client: BaseProducer<Heard>,
    heard: Heard,
    timeout: Duration,
}

impl Producer {
    /// Takes the transactional id over. The coordinator ends the transactions of earlier producers with this id, and
    /// refuses these producers from then on.
    pub(super) fn claim(brokers: &Brokers, id: &str, largest: Option<usize>) -> Result<Self, SinkError> {
        let timeout = brokers.settings.timeout;
        // The coordinator aborts a transaction that is open for longer. Ours ends earlier, committed or not.
        let open = (3 * timeout).as_millis().to_string();
        let batch = largest.map_or(BATCH_BYTES, |largest| largest.min(BATCH_BYTES)).to_string();
        let (client, heard) = brokers.client(&[
            ("transactional.id", id),
            ("transaction.timeout.ms", &open),
            ("message.timeout.ms", &open),
            ("linger.ms", "0"),
            ("batch.size", &batch),
            ("message.max.bytes", MAX_BYTES),
            // Other Kafka clients assign a key to the same partition by default.
            ("partitioner", "murmur2_random"),
            // Matters only for the first records of a topic. The topic exists.
            ("topic.metadata.refresh.fast.interval.ms", "50"),
        ])?;
        let producer = Self { client, heard, timeout };
        let claimed = producer.client.init_transactions(timeout);
        claimed.map_err(|error| producer.failed(&error, brokers).error)?;
        Ok(producer)
    }

    /// Produces these records in one transaction. `check` decides by their offsets in the topic of events whether it is
    /// committed.
    pub(super) fn transact(
        &self,
        brokers: &Brokers,
        records: &[Outgoing<'_>],
        check: impl FnOnce(&Taken) -> Result<(), SinkError>,
    ) -> Result<(), Broken> {
        self.rest();
        self.heard.begin();
        let unknown = |error: &KafkaError| self.failed(error, brokers);
        self.client.begin_transaction().map_err(|error| unknown(&error))?;
        let deadline = Instant::now() + self.timeout;
        for record in records {
            if let Err(error) = self.send(record) {
                return Err(self.abort(&error, brokers));
            }
        }
        // The library's own flush waits at least a tenth of a second.
        while self.client.in_flight_count() > 0 {
            self.client.poll(TICK);
            if let Some(error) = self.heard.refused() {
                return Err(self.abort(&error, brokers));
            }
            if Instant::now() >= deadline {
                let waited = KafkaError::Flush(Code::OperationTimedOut);
                return Err(unknown(&waited));
            }
        }
        if let Some(error) = self.heard.refused() {
            return Err(self.abort(&error, brokers));
        }
        if let Err(error) = check(&self.heard.taken(&brokers.settings.topic)) {
            return Err(Broken { error, code: None, is_aborted: self.give_up() });
        }
        self.client.commit_transaction(self.timeout).map_err(|error| match &error {
            KafkaError::Transaction(said) if said.txn_requires_abort() => self.abort(&error, brokers),
            error => unknown(error),
        })
    }

    fn send(&self, record: &Outgoing<'_>) -> Result<(), KafkaError> {
        let headers = OwnedHeaders::new_with_capacity(record.headers.len());
        let headers = record
            .headers
            .iter()
            .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(value.as_str()) }));
        let mut out = BaseRecord::to(record.topic).key(record.key).payload(&record.body[..]).headers(headers);
        out.partition = record.partition;
        self.client.send(out).map_err(|(error, _)| error)
    }

    /// Aborts the transaction because of this error.
    fn abort(&self, error: &KafkaError, brokers: &Brokers) -> Broken {
        let broken = self.failed(error, brokers);
        let is_fenced = broken.code.is_some_and(is_fenced);
        Broken { is_aborted: !is_fenced && self.give_up(), ..broken }
    }

    /// Aborts the transaction. Returns whether that succeeded.
    fn give_up(&self) -> bool {
        // Aborting waits for the records in flight, so their delivery reports must be polled meanwhile.
        std::thread::scope(|scope| {
            let aborting = scope.spawn(|| self.client.abort_transaction(self.timeout));
            while !aborting.is_finished() {
                self.client.poll(TICK);
            }
            aborting.join().is_ok_and(|aborted| aborted.is_ok())
        })
    }

    /// Handles the events in the client's queue.
    pub(super) fn rest(&self) {
        self.client.poll(Duration::ZERO);
    }

    /// The failure of a transaction that was not aborted. If the error does not say more than that the brokers do not answer,
    /// it is replaced by what the library has reported since.
    fn failed(&self, error: &KafkaError, brokers: &Brokers) -> Broken {
        self.rest();
        let settings = &brokers.settings;
        let (code, error) = (error.rdkafka_error_code(), failure::of(error, settings));
        let says_more = error.fault() != Fault::Target || code.is_some_and(is_fenced);
        let (code, error) = match (self.client.client().fatal_error(), self.heard.trouble()) {
            _ if says_more => (code, error),
            (Some((code, said)), _) => (Some(code), failure::of_code(code, &said, settings)),
            (None, trouble) => {
                brokers.doubt();
                trouble.map_or((code, error), |(code, said)| {
                    (Some(code), failure::of_connection(failure::of_code(code, &said, settings), settings))
                })
            }
        };
        Broken { error, code, is_aborted: false }
    }
}
