//! The records and the producer of one lane. A transaction is committed as a whole, or not at all.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use serde::Serialize;

use super::brokers::{Brokers, ClientReports, Facts, OffsetRanges, Reports};
use super::error::{self, is_fenced};
use crate::narrowing::OtherContent;
use crate::settings::KafkaSettings;
use crate::{Fault, LaneRef, SinkError, stream};
use record::{Field, Message};

/// The longest time that one poll waits for delivery reports.
const TICK: Duration = Duration::from_millis(1);

/// The maximum number of bytes in one batch of a partition. A larger event is a batch alone. If the topic accepts less, its
/// limit applies instead.
const BATCH_BYTES: usize = 1_000_000;

/// The largest record that the library accepts. The lane checks the limit of the topic before it produces an event.
const MAX_BYTES: &str = "1000000000";

/// Upper bounds of the overhead in bytes: of a batch of one record, and of each header without its texts.
const OVERHEAD: usize = 128;
const HEADER_OVERHEAD: usize = 10;

/// The partition of all positions.
pub(super) const POSITIONS: i32 = 0;

/// A record that is ready to be produced: an event, a position or a claim.
pub(super) struct Outgoing {
    pub(super) key: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

impl Outgoing {
    pub(super) fn event(lane: &LaneRef, message: &Message) -> Self {
        let facts = message.record().facts();
        let key = facts.subject().or_else(|| facts.get(Field::Type).map(str::to_owned));
        let headers = stream::headers(lane, message);
        Self { key: key.unwrap_or_default(), headers, body: message.body().clone() }
    }

    /// A position or a claim.
    pub(super) fn position(key: String, value: &impl Serialize) -> Self {
        Self { key, headers: Vec::new(), body: stream::json(value) }
    }

    /// The size as a broker counts it, or slightly more.
    pub(super) fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD);
        OVERHEAD + self.key.len() + self.body.len() + headers.sum::<usize>()
    }

    /// The error if the event is too large for a topic. `said` is the message of a broker.
    pub(super) fn too_large(&self, topic: &str, largest: Option<usize>, said: Option<&str>) -> SinkError {
        let size = self.size();
        let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
        let accepted = largest.map_or("fewer".to_owned(), |largest| format!("{largest} (max.message.bytes)"));
        SinkError::refused(format!(
            "the event has {size} bytes with its headers, but the topic {topic} accepts {accepted}{said}"
        ))
    }
}

/// The failure of a transaction that is not known to be committed.
pub(super) struct TransactionError {
    pub(super) error: SinkError,
    pub(super) code: Option<Code>,
    /// Whether the transaction was aborted, so that none of its records is visible and the next transaction can begin.
    /// Otherwise the outcome is not known, and the lane must be claimed again.
    pub(super) is_aborted: bool,
}

/// A producer with the transactional id of a lane.
pub(super) struct Producer {
    client: BaseProducer<ClientReports>,
    pub(super) topic: Facts,
}

impl Producer {
    /// Takes the transactional id over. The coordinator ends the transactions of earlier producers with this id, and
    /// refuses these producers from then on.
    pub(super) fn claim(brokers: &Brokers, id: &str, topic: Facts) -> Result<Self, SinkError> {
        let timeout = brokers.settings.timeout;
        // The coordinator aborts a transaction that is open for longer than this. This producer commits or aborts earlier.
        let open = (3 * timeout).as_millis().to_string();
        let batch = topic.largest.map_or(BATCH_BYTES, |largest| largest.min(BATCH_BYTES)).to_string();
        let client = brokers.client(&[
            ("transactional.id", id),
            ("transaction.timeout.ms", &open),
            ("message.timeout.ms", &open),
            ("linger.ms", "0"),
            ("batch.size", &batch),
            ("message.max.bytes", MAX_BYTES),
            // Other Kafka clients use the same assignment of keys to partitions by default.
            ("partitioner", "murmur2_random"),
            // Although the topic exists, the first records wait for the next refresh, until the client has the metadata of
            // the topic.
            ("topic.metadata.refresh.fast.interval.ms", "50"),
        ])?;
        let producer = Self { client, topic };
        let claimed = producer.client.init_transactions(timeout);
        claimed.map_err(|error| producer.failed(&error, brokers).error)?;
        Ok(producer)
    }

    /// Produces these events, and a record in the topic of positions, in one transaction. `check` decides by the offsets of
    /// the events whether the transaction is committed.
    pub(super) fn transact(
        &self,
        brokers: &Brokers,
        events: &[Outgoing],
        position: &Outgoing,
        check: impl FnOnce(&OffsetRanges) -> Result<(), SinkError>,
    ) -> Result<(), TransactionError> {
        let KafkaSettings { topic, positions_topic, timeout, .. } = &brokers.settings;
        self.rest();
        self.reports().clear();
        self.client.begin_transaction().map_err(|error| self.failed(&error, brokers))?;
        let deadline = Instant::now() + *timeout;
        let mut sent = events.iter().try_for_each(|event| self.send(topic, None, event));
        sent = sent.and_then(|()| self.send(positions_topic, Some(POSITIONS), position));
        sent.map_err(|error| self.abort(&error, brokers))?;
        // The library's own flush waits at least a tenth of a second.
        while self.client.in_flight_count() > 0 {
            self.client.poll(TICK);
            if let Some(error) = self.reports().read().refused {
                return Err(self.abort(&error, brokers));
            }
            if Instant::now() >= deadline {
                return Err(self.failed(&KafkaError::Flush(Code::OperationTimedOut), brokers));
            }
        }
        let Reports { refused, mut taken, .. } = self.reports().read();
        if let Some(error) = refused {
            return Err(self.abort(&error, brokers));
        }
        if let Err(error) = check(&taken.remove(topic).unwrap_or_default()) {
            return Err(TransactionError { error, code: None, is_aborted: self.give_up(brokers) });
        }
        self.client.commit_transaction(*timeout).map_err(|error| match &error {
            KafkaError::Transaction(said) if said.txn_requires_abort() => self.abort(&error, brokers),
            error => self.failed(error, brokers),
        })
    }

    /// Produces an event in a transaction that is aborted, so that no `read_committed` reader sees it. Also returns whether the
    /// next transaction can begin.
    pub(super) fn offer(&self, brokers: &Brokers, event: &Outgoing, position: &Outgoing) -> (OtherContent, bool) {
        let mut is_accepted = false;
        let offered = self.transact(brokers, std::slice::from_ref(event), position, |_| {
            is_accepted = true;
            Err(SinkError::away("only offered".to_owned()))
        });
        match offered {
            Err(TransactionError { is_aborted, .. }) if is_accepted => (OtherContent::Accepted, is_aborted),
            Err(TransactionError { error: SinkError::Refused { .. }, is_aborted: true, .. }) => {
                (OtherContent::Refused, true)
            }
            _ => (OtherContent::Untried, false),
        }
    }

    /// Finds out whether the user may take over this transactional id and write both topics. Produces nothing: a newer
    /// producer has the same id, and the coordinator checks the rights before it refuses the older producer.
    pub(super) fn try_to_write(brokers: &Brokers, id: &str, topic: Facts) -> Result<(), SinkError> {
        let older = Self::claim(brokers, id, topic)?;
        let _newer = Self::claim(brokers, id, topic)?;
        let record = |key: &str| Outgoing { key: key.to_owned(), headers: Vec::new(), body: Bytes::from_static(b"{}") };
        let mut is_accepted = false;
        let tried = older.transact(brokers, &[record(id)], &record(id), |_| {
            is_accepted = true;
            Err(SinkError::away("only tried".to_owned()))
        });
        match tried {
            Err(TransactionError { code, error, .. }) if !is_accepted && !code.is_some_and(is_fenced) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends a record. If `partition` is `None`, the key selects the partition.
    fn send(&self, topic: &str, partition: Option<i32>, record: &Outgoing) -> Result<(), KafkaError> {
        let none = OwnedHeaders::new_with_capacity(record.headers.len());
        let pairs = record.headers.iter().map(|(key, value)| Header { key, value: Some(value) });
        let headers = pairs.fold(none, OwnedHeaders::insert);
        let mut out = BaseRecord::to(topic).key(&record.key).payload(&record.body[..]).headers(headers);
        out.partition = partition;
        self.client.send(out).map_err(|(error, _)| error)
    }

    fn abort(&self, error: &KafkaError, brokers: &Brokers) -> TransactionError {
        let cause = self.cause_of_purge(error);
        let broken = self.failed(cause.as_ref().unwrap_or(error), brokers);
        let is_fenced = broken.code.is_some_and(is_fenced);
        TransactionError { is_aborted: !is_fenced && self.give_up(brokers), ..broken }
    }

    /// If the coordinator refuses a transaction, the library reports each record as purged. The next call, of any kind, returns
    /// the cause. This function begins a transaction to get it. No transaction can begin in this state.
    fn cause_of_purge(&self, error: &KafkaError) -> Option<KafkaError> {
        let code = error.rdkafka_error_code();
        let cause =
            matches!(code, Some(Code::PurgeQueue | Code::PurgeInflight)).then(|| self.client.begin_transaction());
        cause?.err().filter(|cause| cause.rdkafka_error_code() != Some(Code::State))
    }

    /// Aborts the transaction. Returns whether that succeeded.
    fn give_up(&self, brokers: &Brokers) -> bool {
        // Aborting waits for the records in flight, so another thread must poll their delivery reports meanwhile.
        std::thread::scope(|scope| {
            let aborting = scope.spawn(|| self.client.abort_transaction(brokers.settings.timeout));
            while !aborting.is_finished() {
                self.client.poll(TICK);
            }
            aborting.join().is_ok_and(|aborted| aborted.is_ok())
        })
    }

    fn reports(&self) -> &ClientReports {
        self.client.context()
    }

    pub(super) fn rest(&self) {
        self.client.poll(Duration::ZERO);
    }

    /// The failure of a transaction that was not aborted. If the error states only that the brokers do not answer, the latest
    /// report of the library replaces it.
    fn failed(&self, error: &KafkaError, brokers: &Brokers) -> TransactionError {
        self.rest();
        let settings = &brokers.settings;
        let (code, error) = (error.rdkafka_error_code(), brokers.error(error));
        let says_more = error.fault() != Fault::Target || code.is_some_and(is_fenced);
        let (code, error) = match (self.client.client().fatal_error(), self.reports().read().trouble) {
            _ if says_more => (code, error),
            (Some((code, said)), _) => (Some(code), error::of_code(code, &said, settings)),
            (None, trouble) => {
                brokers.doubt();
                trouble.map_or((code, error), |(code, said)| {
                    (Some(code), error::of_connection(error::of_code(code, &said, settings), settings))
                })
            }
        };
        TransactionError { error, code, is_aborted: false }
    }
}
