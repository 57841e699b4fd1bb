//! Access to the brokers: clients of the library, and the errors that these clients report in callbacks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::metadata::Metadata;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use tracing::debug;

use super::error::{self, plain, words};
use crate::settings::{KafkaSettings, Security};
use crate::{Fault, SinkError};
use net::shortage::Shortage;
use net::tasks::lock;

/// The longest time that one metadata request may take before the errors that the client has reported are checked.
const SLICE: Duration = Duration::from_millis(500);

/// How long a failed attempt to reach the brokers is reused. Otherwise each of many lanes would wait for its own attempt.
const STILL_AWAY: Duration = Duration::from_secs(1);

/// The state that all clients of the library share.
pub(super) struct Brokers {
    pub(super) settings: KafkaSettings,
    /// Whether the next lane has to check that the brokers can be reached, and the last failure of this check.
    reach: Mutex<Reach>,
    /// The facts about the topics that were read last, and the time when they were read.
    pub(super) seen: Mutex<Option<(Instant, Facts)>>,
}

/// The facts about the topic of events that a lane needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) partitions: usize,
    /// The largest batch that the topic accepts, in bytes. `None` if the brokers do not say.
    pub(super) largest: Option<usize>,
}

#[derive(Default)]
struct Reach {
    is_doubtful: bool,
    failed: Option<(Instant, SinkError)>,
}

impl Brokers {
    pub(super) fn new(settings: KafkaSettings) -> Self {
        Self { settings, reach: Mutex::default(), seen: Mutex::default() }
    }

    pub(super) fn client<T: FromClientConfigAndContext<ClientReports>>(
        &self,
        keys: &[(&str, &str)],
    ) -> Result<T, SinkError> {
        let mut config = config(&self.settings);
        for (key, value) in keys {
            config.set(*key, *value);
        }
        config.create_with_context(ClientReports::default()).map_err(|error| {
            let message = format!("setting up the client of {}: {error}", self.settings.shown_brokers());
            // The library's error does not contain the system's error. The settings were checked before, so the cause is
            // otherwise usually a certificate.
            match Shortage::of_descriptors_now() {
                Some(shortage) => SinkError::away(format!("{message}{}", shortage.advice())),
                None => SinkError::unusable(message),
            }
        })
    }

    /// A reader of committed records. The library requires a group id, although the reader joins no group and commits no
    /// offsets.
    pub(super) fn reader(&self) -> Result<BaseConsumer<ClientReports>, SinkError> {
        self.client(&[
            ("group.id", &self.settings.transactional_id),
            ("isolation.level", "read_committed"),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
            ("auto.offset.reset", "earliest"),
            ("fetch.wait.max.ms", "100"),
            ("fetch.error.backoff.ms", "50"),
            // Bounds the records that the library fetches ahead.
            ("queued.max.messages.kbytes", "2048"),
            ("queued.min.messages", "1000"),
        ])
    }

    pub(super) fn assign(
        &self,
        reader: &BaseConsumer<ClientReports>,
        topic: &str,
        partitions: impl IntoIterator<Item = i32>,
        from: Offset,
    ) -> Result<(), SinkError> {
        let mut assigned = TopicPartitionList::new();
        let added = partitions.into_iter().try_for_each(|number| assigned.add_partition_offset(topic, number, from));
        added.and_then(|()| reader.assign(&assigned)).map_err(|error| self.error(&error))
    }

    /// The metadata of a topic. It has no partitions if the topic does not exist.
    pub(super) fn topic(&self, client: &BaseConsumer<ClientReports>, name: &str) -> Result<Metadata, SinkError> {
        let deadline = Instant::now() + self.settings.timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match client.fetch_metadata(Some(name), left.min(SLICE)) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => error,
            };
            // Polling runs the callbacks for the events that are in the client's queue.
            while client.poll(Duration::ZERO).is_some() {}
            let error = match client.context().read().trouble {
                Some((code, said)) => error::of_code(code, &said, &self.settings),
                None => self.error(&error),
            };
            let error = error::of_connection(error, &self.settings);
            if left.is_zero() || error.fault() == Fault::Operator {
                return Err(error);
            }
        }
    }

    /// Discards the stored facts about the topics, because they may be outdated.
    pub(super) fn forget(&self) {
        *lock(&self.seen) = None;
    }

    pub(super) fn error(&self, error: &KafkaError) -> SinkError {
        match error.rdkafka_error_code() {
            Some(code) => error::of_code(code, &words(error), &self.settings),
            None => SinkError::away(words(error)),
        }
    }

    /// Records that a request got no answer, so that the next [`reach`](Self::reach) sends a request to the brokers.
    pub(super) fn doubt(&self) {
        lock(&self.reach).is_doubtful = true;
    }

    /// Checks that the brokers can be reached, if that is in doubt. If several lanes call this at the same time, only one of
    /// them sends a request.
    pub(super) fn reach(&self) -> Result<(), SinkError> {
        let mut reach = lock(&self.reach);
        if !reach.is_doubtful {
            return Ok(());
        }
        if let Some((since, error)) = &reach.failed
            && since.elapsed() < STILL_AWAY
        {
            return Err(error.clone());
        }
        let asked = self.client(&[]).and_then(|client| self.topic(&client, &self.settings.topic));
        match &asked {
            Ok(_) => *reach = Reach::default(),
            Err(error) => reach.failed = Some((Instant::now(), error.clone())),
        }
        asked.map(drop)
    }
}

/// The lowest and the highest offset of records, for each partition.
pub(super) type OffsetRanges = BTreeMap<i32, (i64, i64)>;

/// The reports that the library passes to the callbacks of a client.
#[derive(Default)]
pub(super) struct ClientReports(Mutex<Reports>);

#[derive(Clone, Default)]
pub(super) struct Reports {
    /// Why brokers cannot be reached or used.
    pub(super) trouble: Option<(Code, String)>,
    /// The error of the first record that was refused.
    pub(super) refused: Option<KafkaError>,
    /// The lowest and the highest offset of the accepted records, for each topic and partition.
    pub(super) taken: HashMap<String, OffsetRanges>,
}

impl ClientReports {
    pub(super) fn read(&self) -> Reports {
        lock(&self.0).clone()
    }

    pub(super) fn clear(&self) {
        *lock(&self.0) = Reports::default();
    }
}

impl ClientContext for ClientReports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(?level, facility, said = message, "librdkafka reports");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code().filter(|code| *code != Code::PartitionEOF) else { return };
        debug!(%code, said = reason, "brokers in trouble");
        let mut said = lock(&self.0);
        // "All brokers are down" is less specific than the error of one broker, so it does not replace such an error.
        if code != Code::AllBrokersDown || said.trouble.is_none() {
            said.trouble = Some((code, plain(reason)));
        }
    }
}

impl ConsumerContext for ClientReports {}

impl ProducerContext for ClientReports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): Self::DeliveryOpaque) {
        let mut said = lock(&self.0);
        match result {
            // A broker that already has a record does not say where it is.
            Ok(message) if message.offset() < 0 => {}
            Ok(message) => {
                let (topic, offset) = (message.topic(), message.offset());
                let taken = said.taken.entry(topic.to_owned()).or_default();
                let range = taken.entry(message.partition()).or_insert((offset, offset));
                *range = (range.0.min(offset), range.1.max(offset));
            }
            Err((error, _)) => drop(said.refused.get_or_insert_with(|| error.clone())),
        }
    }
}

fn config(settings: &KafkaSettings) -> ClientConfig {
    let Security { tls, authorities, identity, login } = &settings.security;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", settings.shown_brokers());
    config.set("client.id", "channeld");
    // Brokers close idle connections. This is not an error.
    config.set("log.connection.close", "false");
    config.set("socket.keepalive.enable", "true");
    config.set("reconnect.backoff.max.ms", "1000");
    config.set_log_level(RDKafkaLogLevel::Warning);
    let protocol = match (tls, login.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if *tls {
        match authorities {
            Some(authorities) => config.set("ssl.ca.pem", authorities.to_pem()),
            None => config.set("ssl.ca.location", "probe"),
        };
        if let Some(identity) = identity {
            config.set("ssl.certificate.pem", identity.chain_to_pem());
            config.set("ssl.key.pem", identity.key_to_pem().expose());
        }
    }
    if let Some(login) = login {
        config.set("sasl.mechanism", <&str>::from(login.mechanism).to_uppercase());
        config.set("sasl.username", &login.user);
        config.set("sasl.password", login.password.expose());
    }
    config
}
