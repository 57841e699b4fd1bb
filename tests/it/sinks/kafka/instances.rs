//! Two instances with one lane: the older one stands still in the middle of a delivery, and goes on when the newer one has
//! taken over.

use channeld::simulator::{Options, Simulator};
use rustix::process::Signal;

use super::{assert_whole, proved};
use crate::support::{Broker, Database, Line, Relay, Setup, deliverable};

#[tokio::test]
async fn an_older_instance_that_wakes_up_is_fenced_and_produces_nothing_twice() {
    let Some(database) = Database::new().await else { return };
    let before = async |address| {
        let relay = Relay::before_address(address).await;
        (relay.address(), relay)
    };
    let Some((broker, relay)) = Broker::own(before).await else { return };
    let (topic, simulator) = (broker.topic(), proved(200).await);
    let setup = |name: &str, address| {
        let setup = Setup::reading(&simulator).producing(1, &topic, &address).sharing(&database, name);
        setup.with("api.page_limit", 10).with("cluster.lease", "3s").with("sinks.log.timeout", "20s")
    };
    let (older_setup, newer_setup) = (setup("older", relay.address()), setup("newer", broker.address()));
    let mut older = older_setup.start();
    older.until_logged("channel started").await;
    topic.until_count(30).await;
    // What it sends from now on stands in the relay.
    relay.becomes(Line::Silent);
    simulator.publish(0, 20);
    older.until("a delivery stands in the relay", |_| relay.withheld() > 0).await;
    older.signal(Signal::STOP);

    let mut newer = newer_setup.start();
    newer.until_logged("channel started").await;
    topic.until_count(deliverable(&simulator, 0).len()).await;
    simulator.publish(0, 20);
    topic.until_count(deliverable(&simulator, 0).len()).await;
    // What the older one has sent arrives now, and it wakes up.
    relay.becomes(Line::Good);
    older.signal(Signal::CONT);
    // By the brokers' answer or by its lease, whichever comes first.
    let words = ["another instance", "channel stopped"];
    older.until("it has noticed", |older| words.iter().any(|words| older.log().0.contains(words))).await;
    simulator.publish(0, 20);
    topic.until_count(deliverable(&simulator, 0).len()).await;
    older.stop().await;
    newer.stop().await;
    assert_whole(&topic, &simulator, &[]);
}

/// Two daemons that do not share their state take the lane from each other. Neither clocks nor leases keep them apart: the
/// brokers do.
#[tokio::test]
async fn two_that_take_the_lane_from_each_other_produce_each_event_once_and_say_so() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(100).await);
    let setup = || Setup::reading(&simulator).producing(1, &topic, &broker.address()).with("api.page_limit", 10);
    let (one_setup, other_setup) = (setup(), setup());
    let (mut one, mut other) = (one_setup.start(), other_setup.start());
    one.until_logged("channel started").await;
    other.until_logged("channel started").await;
    topic.until_count(deliverable(&simulator, 0).len()).await;
    for _ in 0..10 {
        simulator.publish(0, 10);
        topic.until_count(deliverable(&simulator, 0).len()).await;
    }
    let said = |log: &str| log.contains("another instance delivers to this sink");
    one.until("one of them was overtaken", |one| said(&one.log().0) || said(&other.log().0)).await;
    one.stop().await;
    other.stop().await;
    assert_whole(&topic, &simulator, &[]);
}

#[tokio::test]
async fn lanes_that_begin_at_the_same_time_hinder_each_other_in_nothing() {
    const CHANNELS: usize = 24;
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    let options = Options { channels: CHANNELS, events: 3, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).producing(CHANNELS, &topic, &broker.address());
    for round in 1..=2 {
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        topic.until_count(round * CHANNELS * 3).await;
        let log = daemon.stop().await;
        assert!(log.lines("sink refused: its events wait and are offered again").is_empty(), "{}", log.0);
        (0..CHANNELS).for_each(|channel| simulator.publish(channel, 3));
    }
    let records = topic.all();
    let each: std::collections::BTreeSet<_> =
        records.iter().map(|record| (record.headers["Channeld-Channel-Id"].clone(), record.offset())).collect();
    assert_eq!((records.len(), each.len()), (2 * CHANNELS * 3, 2 * CHANNELS * 3));
}

/// Behind another lane's open transaction the stable end of the topic of positions stands still, and a position that was
/// committed since is not to be seen.
#[tokio::test]
async fn a_position_behind_an_open_transaction_of_another_lane_is_waited_for() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(50).await);
    let setup = Setup::reading(&simulator).producing(1, &topic, &broker.address()).with("sinks.log.timeout", "2s");
    let daemon = setup.start();
    topic.until_count(50).await;
    let held = topic.hold_positions();
    simulator.publish(0, 20);
    topic.until_count(70).await;
    // What it has recorded may be less than what is there.
    daemon.kill().await;
    let mut daemon = setup.start();
    daemon.until("it waits", |daemon| daemon.log().0.contains("another lane's transaction is open there")).await;
    simulator.publish(0, 20);
    drop(held);
    topic.until_count(90).await;
    daemon.stop().await;
    assert_whole(&topic, &simulator, &[]);
}
