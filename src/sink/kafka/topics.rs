//! The topics: how they are created, and the requirements on existing ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tracing::info;

use super::brokers::{Brokers, ClientReports, Facts};
use super::error::{self, described};
use super::positions::Positions;
use super::producer::Producer;
use crate::settings::KafkaSettings;
use crate::{Fault, SinkError};
use net::tasks::lock;

/// How long the facts about the topics are reused, so that many lanes that begin together do not each ask the brokers.
const STILL_TRUE: Duration = Duration::from_secs(10);

/// The interval at which topics that are being created are looked up.
const TICK: Duration = Duration::from_millis(20);

/// The settings with which the topic of positions is created. Its segments are small, so that old positions are deleted soon:
/// only closed segments are compacted, and a lane that begins reads all remaining records.
const POSITIONS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "16777216"),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("compression.type", "producer"),
];

/// The values of `compression.type` that the client can read in the topic of positions.
const READABLE: [&str; 4] = ["producer", "uncompressed", "lz4", "snappy"];

struct Topic {
    partitions: usize,
    /// The settings of the topic. Empty if the brokers do not return the settings.
    settings: HashMap<String, String>,
}

impl Topic {
    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}

impl Brokers {
    /// The facts about the topics. Creates missing topics if the configuration and the caller allow it. Returns `None` if a
    /// topic is missing and the caller does not allow its creation.
    pub(super) fn facts(&self, may_create: bool) -> Result<Option<Facts>, SinkError> {
        let mut seen = lock(&self.seen);
        *seen = seen.filter(|(when, _)| when.elapsed() < STILL_TRUE);
        if let Some((_, facts)) = *seen {
            return Ok(Some(facts));
        }
        let facts = found_or_created(self, may_create)?;
        *seen = facts.map(|facts| (Instant::now(), facts));
        Ok(facts)
    }
}

fn found_or_created(brokers: &Brokers, may_create: bool) -> Result<Option<Facts>, SinkError> {
    let client = brokers.client(&[])?;
    let mut found = look(brokers, &client)?;
    let is_missing = |found: &[Option<Topic>; 2]| found.iter().any(Option::is_none);
    if !may_create && is_missing(&found) {
        return Ok(None);
    }
    if brokers.settings.create && is_missing(&found) {
        create(brokers, &found, false)?;
        let deadline = Instant::now() + brokers.settings.timeout;
        while is_missing(&found) && Instant::now() < deadline {
            // Other brokers learn of the new topics a moment later, and nothing notifies this client.
            std::thread::sleep(TICK);
            found = look(brokers, &client)?;
        }
    }
    facts(found, &brokers.settings).map(Some).map_err(SinkError::unusable)
}

/// The topic of events and the topic of positions. `None` for a topic that does not exist.
fn look(brokers: &Brokers, client: &BaseConsumer<ClientReports>) -> Result<[Option<Topic>; 2], SinkError> {
    let find = |name: &str| {
        let metadata = brokers.topic(client, name)?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else { return Ok(None) };
        match topic.error().map(Code::from) {
            None => Ok(Some(Topic { partitions: topic.partitions().len(), settings: settings(brokers, name)? })),
            Some(Code::UnknownTopicOrPartition | Code::LeaderNotAvailable) => Ok(None),
            Some(code) => Err(error::of_code(code, &described(code), &brokers.settings)),
        }
    };
    Ok([find(&brokers.settings.topic)?, find(&brokers.settings.positions_topic)?])
}

/// The settings of a topic. Empty if the user may not describe its configuration.
fn settings(brokers: &Brokers, topic: &str) -> Result<HashMap<String, String>, SinkError> {
    let admin: AdminClient<ClientReports> = brokers.client(&[])?;
    let described = await_here(admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options(&brokers.settings)));
    let described = described.map_err(|error| brokers.error(&error))?;
    let entries = described.into_iter().filter_map(Result::ok).flat_map(|resource| resource.entries);
    Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
}

/// Creates the topics that were not found. If `is_trial` is set, the brokers only check whether they would create them.
fn create(brokers: &Brokers, [events, positions]: &[Option<Topic>; 2], is_trial: bool) -> Result<(), SinkError> {
    let KafkaSettings { topic, positions_topic, partitions, replicas, .. } = &brokers.settings;
    let kept = || TopicReplication::Fixed(if *replicas == 0 { -1 } else { i32::from(*replicas) });
    let mut topics = Vec::new();
    if events.is_none() {
        topics.push(NewTopic::new(topic, i32::from(*partitions), kept()));
    }
    if positions.is_none() {
        let new = NewTopic::new(positions_topic, 1, kept());
        topics.push(POSITIONS.iter().fold(new, |new, (key, value)| new.set(key, value)));
    }
    let admin: AdminClient<ClientReports> = brokers.client(&[])?;
    let options = options(&brokers.settings).validate_only(is_trial);
    let made = await_here(admin.create_topics(&topics, &options));
    for made in made.map_err(|error| brokers.error(&error))? {
        match made {
            Ok(_) if is_trial => {}
            Ok(name) => info!(topic = name, "topic created"),
            Err((_, Code::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                let said = format!("the topic {name} cannot be created: {}", described(code));
                return Err(match error::of_code(code, &said, &brokers.settings) {
                    SinkError::Unavailable { message, fault: Fault::Target } => SinkError::unusable(message),
                    error => error,
                });
            }
        }
    }
    Ok(())
}

fn options(settings: &KafkaSettings) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(settings.timeout)).operation_timeout(Some(settings.timeout))
}

/// Blocks until the future ends. The library does the work on its own threads.
fn await_here<T>(future: impl Future<Output = Result<T, KafkaError>>) -> Result<T, KafkaError> {
    tokio::runtime::Handle::current().block_on(future)
}

/// The facts that a lane needs.
///
/// # Errors
/// If lanes cannot use the topics. The message says why, and how to fix the problem.
fn facts([events, positions]: [Option<Topic>; 2], settings: &KafkaSettings) -> Result<Facts, String> {
    let KafkaSettings { topic, positions_topic, partitions, .. } = settings;
    let brokers = settings.shown_brokers();
    let missing = |name: &str, partitions: u16, more: &str| {
        format!(
            "the topic {name} is missing: create it, or set create = true: kafka-topics.sh --bootstrap-server {brokers} --create \
             --topic {name} --partitions {partitions}{more}"
        )
    };
    let events = events.ok_or_else(|| missing(topic, *partitions, ""));
    let positions = positions.ok_or_else(|| missing(positions_topic, 1, " --config cleanup.policy=compact"));
    let (events, positions) = match (events, positions) {
        (Err(one), Err(other)) => return Err(format!("{one}; {other}")),
        (events, positions) => (events?, positions?),
    };
    let alter = |setting: &str| {
        format!(
            "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {positions_topic} \
             --add-config {setting}"
        )
    };
    if let Some(policy) = positions.setting("cleanup.policy").filter(|policy| *policy != "compact") {
        return Err(format!(
            "the cleanup.policy of {positions_topic} is {policy}, which deletes the positions of lanes after a time: {}",
            alter("cleanup.policy=compact")
        ));
    }
    if let Some(kind) = positions.setting("compression.type").filter(|kind| !READABLE.contains(kind)) {
        return Err(format!(
            "the compression.type of {positions_topic} is {kind}, which this client cannot read: {}",
            alter("compression.type=producer")
        ));
    }
    let largest = events.setting("max.message.bytes").and_then(|bytes| bytes.parse().ok());
    Ok(Facts { partitions: events.partitions, largest })
}

pub(super) fn probe(brokers: &Brokers) -> Result<String, SinkError> {
    let KafkaSettings { topic, positions_topic, partitions, create, .. } = &brokers.settings;
    let found = look(brokers, &brokers.client(&[])?)?;
    let topics = [topic, positions_topic].into_iter().zip(&found);
    let missing: Vec<_> = topics.filter(|(_, found)| found.is_none()).map(|(name, _)| &**name).collect();
    if *create && !missing.is_empty() {
        self::create(brokers, &found, true)?;
        return Ok(format!(
            "the brokers are reachable; to be created: {}; the topic of events then has {partitions} partitions, and keeps events for the brokers' log.retention unless you set more",
            missing.join(", ")
        ));
    }
    let policy = found[0].as_ref().and_then(|events| events.setting("cleanup.policy"));
    let is_compacted = policy.is_some_and(|policy| policy.contains("compact"));
    let facts = facts(found, &brokers.settings).map_err(SinkError::unusable)?;
    // Takes the steps of a lane, under a transactional id that no lane has: registers the id, begins a transaction in both topics
    // and reads the positions. Produces nothing.
    let id = format!("{}.check", brokers.settings.transactional_id);
    Producer::try_to_write(brokers, &id, facts)?;
    Positions::new(format!("{id}/")).read(brokers, None)?;
    let largest = facts.largest.map_or_else(
        || "; its max.message.bytes is unknown: the user may not describe its configuration".to_owned(),
        |largest| format!(" and accepts records of up to {largest} bytes"),
    );
    let warning = if is_compacted {
        "; its cleanup.policy is compact, which deletes all but the last event of each key"
    } else {
        ""
    };
    let count = facts.partitions;
    Ok(format!("the topic {topic} has {count} partitions{largest}{warning}; exactly once, in transactions"))
}

#[cfg(test)]
mod tests;
