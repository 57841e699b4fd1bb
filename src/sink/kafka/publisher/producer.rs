//! The producer of one lane: all of a transaction, or nothing of it.
//!
//! Everything here blocks.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::brokers::{Brokers, Heard, Taken};
use super::failure::Failure;

/// Between two looks at what has come.
const TICK: Duration = Duration::from_millis(1);

/// The most bytes in one batch of a partition, unless one event has more, or the topic takes less.
const BATCH_BYTES: usize = 1_000_000;

/// The largest record that the library is given. What the topic takes is looked at before.
const MAX_BYTES: &str = "1000000000";

/// The partition of all positions.
pub(super) const POSITIONS: i32 = 0;

/// A record of a transaction.
pub(super) struct Outgoing<'a> {
    pub(super) topic: &'a str,
    /// `None` where the key decides.
    pub(super) partition: Option<i32>,
    pub(super) key: &'a str,
    pub(super) headers: &'a [(&'static str, String)],
    pub(super) body: &'a Bytes,
}

/// What came of a transaction that is not known to be committed.
pub(super) struct Broken {
    pub(super) failure: Failure,
    /// Nothing of it is there, and the next transaction can begin. Otherwise that is not known, and the lane has to be claimed
    /// again.
    pub(super) is_aborted: bool,
}

/// A producer with the transactional id of a lane.
pub(super) struct Producer {
    client: BaseProducer<Heard>,
    heard: Heard,
    timeout: Duration,
}

impl Producer {
    /// Takes the transactional id over: earlier producers of it are refused from then on, and what they have begun is ended.
    pub(super) fn claim(brokers: &Brokers, id: &str, largest: Option<usize>) -> Result<Self, Failure> {
        let timeout = brokers.settings.timeout;
        // What is open for longer is ended by the coordinator. Ours ends before, committed or not.
        let open = (3 * timeout).as_millis().to_string();
        let batch = largest.map_or(BATCH_BYTES, |largest| largest.min(BATCH_BYTES)).to_string();
        let (client, heard) = brokers.client(&[
            ("transactional.id", id),
            ("transaction.timeout.ms", &open),
            ("message.timeout.ms", &open),
            ("linger.ms", "0"),
            ("batch.size", &batch),
            ("message.max.bytes", MAX_BYTES),
            // As the other clients of Kafka place a key by their default.
            ("partitioner", "murmur2_random"),
            // Only for the first records of a topic, which is there.
            ("topic.metadata.refresh.fast.interval.ms", "50"),
        ])?;
        let producer = Self { client, heard, timeout };
        let claimed = producer.client.init_transactions(timeout);
        claimed.map_err(|error| producer.failure(&error, brokers))?;
        Ok(producer)
    }

    /// Produces these records as one. `check` decides whether they are committed, by their offsets in the topic of events.
    pub(super) fn transact(
        &self,
        brokers: &Brokers,
        records: &[Outgoing<'_>],
        check: impl FnOnce(&Taken) -> Result<(), Failure>,
    ) -> Result<(), Broken> {
        self.rest();
        self.heard.begin();
        let unknown = |error: &KafkaError| Broken { failure: self.failure(error, brokers), is_aborted: false };
        self.client.begin_transaction().map_err(|error| unknown(&error))?;
        let deadline = Instant::now() + self.timeout;
        for record in records {
            if let Err(error) = self.send(record) {
                return Err(self.abort(&error, brokers));
            }
        }
        // The library's own flush waits a tenth of a second at the least.
        while self.client.in_flight_count() > 0 {
            self.client.poll(TICK);
            if let Some(error) = self.heard.refused() {
                return Err(self.abort(&error, brokers));
            }
            if Instant::now() >= deadline {
                let waited = KafkaError::Flush(rdkafka::types::RDKafkaErrorCode::OperationTimedOut);
                return Err(unknown(&waited));
            }
        }
        if let Some(error) = self.heard.refused() {
            return Err(self.abort(&error, brokers));
        }
        if let Err(failure) = check(&self.heard.taken(&brokers.settings.topic)) {
            return Err(Broken { is_aborted: self.give_up(), failure });
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

    /// Gives the transaction up because of this error.
    fn abort(&self, error: &KafkaError, brokers: &Brokers) -> Broken {
        let failure = self.failure(error, brokers);
        if failure == Failure::Fenced {
            return Broken { failure, is_aborted: false };
        }
        Broken { failure, is_aborted: self.give_up() }
    }

    /// Whether the transaction could be aborted.
    fn give_up(&self) -> bool {
        // It waits for the records in flight, whose answers have to be taken meanwhile.
        std::thread::scope(|scope| {
            let aborting = scope.spawn(|| self.client.abort_transaction(self.timeout));
            while !aborting.is_finished() {
                self.client.poll(TICK);
            }
            aborting.join().is_ok_and(|aborted| aborted.is_ok())
        })
    }

    /// Takes what has come meanwhile out of its queue.
    pub(super) fn rest(&self) {
        self.client.poll(Duration::ZERO);
    }

    fn failure(&self, error: &KafkaError, brokers: &Brokers) -> Failure {
        self.rest();
        let failure = Failure::of(error, None, &brokers.settings);
        let fatal = self.client.client().fatal_error();
        match (failure, fatal, self.heard.trouble()) {
            (Failure::Away(_), Some((code, said)), _) => Failure::of_code(code, &said, &brokers.settings),
            (Failure::Away(_), None, Some((code, trouble))) => {
                brokers.doubt();
                Failure::of_code(code, &trouble, &brokers.settings).of_connection(&brokers.settings)
            }
            (Failure::Away(said), ..) => {
                brokers.doubt();
                Failure::Away(said)
            }
            (failure, ..) => failure,
        }
    }
}
