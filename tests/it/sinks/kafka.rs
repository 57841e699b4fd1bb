//! Kafka topics in production. Readers of committed records see each event exactly once, even if processes are killed,
//! answers are lost, or the broker is unavailable.
//!
//! The broker is Apache Kafka. The topics are read with a Python client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use simulator::Simulator;

use super::streams::{self, Stream};
use crate::support::{Broker, Mount, Record, Relay, Setup, Topic, deliverable};

mod content;
mod instances;
mod positions;
mod topics;

fn setup(simulator: &Simulator, topic: &Topic) -> Setup {
    Setup::reading(simulator).producing(1, topic, &topic.broker.address()).with("api.page_limit", 50)
}

/// Asserts that the topic contains every deliverable event exactly once, and that each partition is in order apart from
/// late deliveries.
fn assert_whole(topic: &Topic, simulator: &Simulator, late: &[i64]) {
    let records = topic.all();
    let late: BTreeSet<_> = late.iter().copied().collect();
    let mut in_time: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for record in records.iter().filter(|record| !late.contains(&record.offset())) {
        in_time.entry(record.partition).or_default().push(record.offset());
    }
    assert!(in_time.values().all(|offsets| offsets.is_sorted()), "ascending apart from late events: {in_time:?}");
    let mut partitions: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for record in &records {
        partitions.entry(record.key.as_deref().unwrap()).or_default().insert(record.partition);
    }
    assert!(partitions.values().all(|of_key| of_key.len() == 1), "a key is in one partition: {partitions:?}");
    let mut offsets: Vec<_> = records.iter().map(Record::offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, deliverable(simulator, 0), "each exactly once");
}

impl Stream for Topic {
    const SINK: &str = "log";
    const TIMEOUT: &str = "1s";

    fn address(&self) -> SocketAddr {
        self.broker.address()
    }

    fn beside(&self, setup: Setup, address: SocketAddr) -> Setup {
        setup.and_producing(self, &address)
    }

    async fn count(&self) -> usize {
        self.count()
    }

    async fn until_count(&self, count: usize) {
        self.until_count(count).await;
    }

    async fn assert_whole(&self, simulator: &Simulator, late: &[i64]) {
        assert_whole(self, simulator, late);
    }

    fn kill(&self) {
        self.broker.kill();
    }

    fn run(&self) {
        self.broker.run();
    }
}

/// A broker for one test, behind a relay.
async fn relayed() -> Option<(Topic, Relay)> {
    let before = async |address| {
        let relay = Relay::before_address(address).await;
        (relay.address(), relay)
    };
    let (broker, relay) = Broker::own(before).await?;
    Some((broker.topic(), relay))
}

#[tokio::test]
async fn repeated_kills_produce_each_event_once() {
    let Some(broker) = Broker::shared() else { return };
    streams::killed_again_and_again(&broker.topic()).await;
}

#[tokio::test]
async fn a_restarted_broker_has_each_event_once_and_delays_no_other_sink() {
    let Some(broker) = Broker::own_in(&std::env::temp_dir()) else { return };
    streams::restarted_in_the_middle(&broker.topic()).await;
    streams::away(&broker.topic()).await;
}

#[tokio::test]
async fn lost_answers_repeat_no_event() {
    let Some((topic, relay)) = relayed().await else { return };
    streams::answers_lost(&topic, &relay).await;
}

#[tokio::test]
async fn a_full_disk_of_the_server_is_retried_and_delays_no_other_sink() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(directory.path().join("small"), "128m") else { return };
    let Some(broker) = Broker::own_in(&mount.at) else { return };
    streams::disk_full(&broker.topic(), &mount).await;
}
