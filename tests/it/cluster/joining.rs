//! Instances join and leave, have wrong clocks, and lose their database for longer than a lease. No event is lost.

use std::sync::Arc;
use std::time::Duration;

use simulator::Options;

use super::instances::Instances;
use crate::support::{Clock, Database, Server, everything, skip};

const CHANNELS: usize = 6;
const ONE_EVENT: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options { channels: CHANNELS, events: 5, unsigned: 0.2, forged: 0.05, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_join_and_leave_constantly_lose_and_repeat_nothing() {
    let Some(database) = Database::new().await else { return };
    let mut instances = Instances::new(database, 3, options()).await;
    let publishing = instances.publish_every(ONE_EVENT);
    instances.start(0);
    instances.until_live(1).await;
    let changes = if everything() { 300 } else { 10 };
    for change in 0..changes {
        // Instances 1 and 2 alternate: each joins, and leaves four seconds later.
        let instance = 1 + change % 2;
        if instances.is_running(instance) {
            instances.stop(instance).await;
        } else {
            instances.start(instance);
        }
        instances.go_on_for(Duration::from_secs(2)).await;
    }
    drop(publishing);
    instances.until_all_arrived().await;
    instances.stop_all().await;
    instances.assert_whole().await;
    assert_eq!(instances.arrivals.repeats(), 0, "each instance has recorded its last batch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_with_clocks_two_hours_apart_share_channels_and_take_over() {
    const HOUR: i64 = 60 * 60;
    let Some(database) = Database::new().await else { return };
    let mut instances = Instances::new(database, 2, options()).await;
    for (instance, seconds) in [(0, -HOUR), (1, HOUR)] {
        let Some(clock) = Clock::of(&mut instances.get(instance).setup) else { return };
        clock.set(seconds);
    }
    let publishing = instances.publish_every(ONE_EVENT);
    (0..2).for_each(|instance| instances.start(instance));
    instances.until_live(2).await;
    let owners = "select count(distinct owner) from channeld.channels c join channeld.instances i on i.id = c.owner \
                  where i.heartbeat + i.lease > clock_timestamp()";
    instances.until_number("both instances own channels", owners, 2).await;
    // Kill the instance whose clock is ahead. If heartbeats used its clock, its last one would be in the future.
    instances.kill(1).await;
    instances.until_live(1).await;
    instances.until_number("one instance owns all channels", owners, 1).await;
    drop(publishing);
    instances.until_all_arrived().await;
    instances.stop_all().await;
    instances.assert_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_down_longer_than_leases_loses_nothing_and_stops_no_instance() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let mut instances = Instances::new(Database::on(Arc::new(server)).await, 2, options()).await;
    let publishing = instances.publish_every(ONE_EVENT);
    (0..2).for_each(|instance| instances.start(instance));
    instances.until_live(2).await;
    instances.database.server.kill();
    instances.go_on_for(Duration::from_secs(if everything() { 120 } else { 15 })).await;
    instances.database.server.run();
    drop(publishing);
    instances.until_all_arrived().await;
    instances.stop_all().await;
    instances.assert_whole().await;
}
