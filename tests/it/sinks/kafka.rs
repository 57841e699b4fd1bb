//! A Kafka topic in production: each event exactly once for readers of what is committed, whatever is killed, lost or away.
//!
//! The broker is Apache's own, and what is there is read by a client of another language than ours.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use channeld::simulator::{Options, Simulator};
use rand::Rng;

use super::nats::{late, service};
use crate::support::{Broker, Record, Setup, Topic, deliverable, everything, random};

mod content;
mod instances;
mod topics;

/// Events, and kills.
const SAMPLE: (u64, usize) = (600, 8);
const FULL: (u64, usize) = (6_000, 25);

fn setup(simulator: &Simulator, topic: &Topic) -> Setup {
    Setup::reading(simulator).producing(1, topic, &topic.broker.address()).with("api.page_limit", 50)
}

/// Every event that is to be delivered is there, once, and those of a partition that were not late in their order.
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

#[tokio::test]
async fn killed_again_and_again_it_produces_each_event_once() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    let simulator = service(events).await;
    let (late, mut random) = (late(&simulator), random(51));
    let mut unproved = late.clone();
    let setup = setup(&simulator, &topic);
    for kill in 1..=kills {
        let daemon = setup.start();
        let all = deliverable(&simulator, 0).len();
        let done = topic.count();
        let share = (all - done).div_ceil(kills - kill + 2).max(1);
        topic.until_count((done + random.random_range(1..=2 * share)).min(all)).await;
        daemon.kill().await;
        for _ in 0..unproved.len().div_ceil(kills - kill + 1) {
            simulator.prove(0, unproved.swap_remove(random.random_range(0..unproved.len())));
        }
    }
    assert!(unproved.is_empty() && !late.is_empty());
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(deliverable(&simulator, 0).len()).await;
    daemon.stop().await;
    assert_whole(&topic, &simulator, &late);
}

#[tokio::test]
async fn a_broker_that_is_restarted_or_away_has_each_event_once_and_holds_up_no_other_sink() {
    let Some((broker, ())) = Broker::own(async |address| (address, ())).await else { return };
    let topic = broker.topic();
    let simulator = service(SAMPLE.0).await;
    let (late, mut random) = (late(&simulator), random(52));
    let setup = Setup::reading(&simulator).and_producing(&topic, &broker.address());
    let setup = setup.with("channels.c0.sinks", vec!["file", "log"]).with("sinks.log.give_up_after", "1s");
    let setup = setup.with("api.page_limit", 20).with("sinks.log.timeout", "2s");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    for _ in 0..2 {
        let done = topic.count();
        topic.until_count((done + random.random_range(1..100)).min(deliverable(&simulator, 0).len())).await;
        broker.kill();
        broker.run();
    }
    for offset in &late {
        simulator.prove(0, *offset);
    }
    topic.until_count(deliverable(&simulator, 0).len()).await;

    broker.kill();
    simulator.publish(0, 50);
    daemon.until("the file has all", |_| setup.lines() == deliverable(&simulator, 0).len()).await;
    let began = Instant::now();
    daemon.until("longer than an event is offered", |_| began.elapsed() > Duration::from_millis(2_500)).await;
    broker.run();
    topic.until_count(deliverable(&simulator, 0).len()).await;
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event was given up");
    daemon.stop().await;
    assert_whole(&topic, &simulator, &late);
}

/// A service whose events all have their proofs.
async fn proved(events: u64) -> Simulator {
    Simulator::start(Options { events, ..Options::default() }).await.unwrap()
}
