//! Several lanes, of one or several instances, on one broker.

use std::collections::BTreeSet;

use simulator::{Options, Simulator};

use super::{assert_whole, relayed};
use crate::sinks::streams::{self, proved};
use crate::support::{Broker, Database, Setup};

#[tokio::test]
async fn an_older_instance_that_wakes_up_is_fenced_and_produces_nothing_twice() {
    let Some(database) = Database::new().await else { return };
    let Some((topic, relay)) = relayed().await else { return };
    streams::frozen_and_thawed(&topic, &relay, &database).await;
}

#[tokio::test]
async fn two_instances_competing_for_a_lane_produce_each_event_once_and_report_it() {
    let Some(broker) = Broker::shared() else { return };
    streams::taken_from_each_other(&broker.topic()).await;
}

#[tokio::test]
async fn lanes_that_start_together_do_not_disturb_each_other() {
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
        assert!(log.lines("sink refused: its events wait and will be offered again").is_empty(), "{}", log.0);
        (0..CHANNELS).for_each(|channel| simulator.publish(channel, 3));
    }
    let records = topic.all();
    let each: BTreeSet<_> =
        records.iter().map(|record| (record.headers["Channeld-Channel-Id"].clone(), record.offset())).collect();
    assert_eq!((records.len(), each.len()), (2 * CHANNELS * 3, 2 * CHANNELS * 3));
}

/// While another lane has an open transaction, the last stable offset of the positions topic does not advance. Positions that
/// were committed after that transaction began are not visible.
#[tokio::test]
async fn a_position_behind_an_open_transaction_is_awaited() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(50).await);
    let setup = Setup::reading(&simulator).producing(1, &topic, &broker.address()).with("sinks.log.timeout", "2s");
    let daemon = setup.start();
    topic.until_count(50).await;
    let held = topic.hold_positions();
    simulator.publish(0, 20);
    topic.until_count(70).await;
    // The recorded cursor may be lower than the position in the topic.
    daemon.kill().await;
    let mut daemon = setup.start();
    daemon
        .until("the lane waits for the transaction", |daemon| {
            daemon.log().0.contains("another lane's transaction is open there")
        })
        .await;
    simulator.publish(0, 20);
    drop(held);
    topic.until_count(90).await;
    daemon.stop().await;
    assert_whole(&topic, &simulator, &[]);
}
