//! Compares everything that the sinks received with everything that the service published.

use std::collections::BTreeSet;
use std::time::Instant;

use super::observe::channel;
use super::plant::forged;
use super::rows;
use super::target::{TABLES, warehouse};
use super::world::{CHANNELS, INSTANCES, SHARES, World};
use crate::cluster::until;
use crate::support::{LONGEST_WAIT, deliverable};

/// Stops the instances and checks every lane. Returns the number of deliveries.
pub(super) async fn check(mut world: World) -> usize {
    let share = i64::try_from(CHANNELS / INSTANCES).unwrap();
    until(&world.instances.database, "each channel has one owner", SHARES, &[share; INSTANCES]).await;
    check_quarantine(&mut world).await;
    world.instances.stop_all().await;
    world.gather_again().await;
    world.instances.database.assert_sound().await;
    assert_eq!(rows::left(&world.instances.database).await, (world.unknown, 0), "unknown entries, and damaged values");
    world.instances.arrivals.assert_all_arrived(&world.instances.simulator);
    let mut deliveries = 0;
    for it in 0..CHANNELS {
        let received = world.instances.arrivals.in_order(it);
        check_order(&world, it, &received, "the webhook");
        deliveries += received.len() + check_table(&world, it).await;
    }
    deliveries
}

/// Waits until the quarantine contains exactly the forged events.
async fn check_quarantine(world: &mut World) {
    let since = Instant::now();
    loop {
        let statuses = world.statuses().await;
        let is_whole = |it: usize| channel(&statuses[0], it)["quarantined"] == forged(world, it);
        if !statuses.is_empty() && (0..CHANNELS).all(is_whole) {
            return;
        }
        assert!(since.elapsed() < LONGEST_WAIT, "not exactly the forged events: {statuses:#?}");
    }
}

/// The table contains each event once, no forged event, and its positions are the order of delivery.
async fn check_table(world: &World, it: usize) -> usize {
    let table = TABLES[warehouse(it)];
    let rows = format!("select event_offset, position from {table} where channel = 'c{it}' order by position");
    let rows = world.instances.database.query(&rows).await;
    let offsets: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let mut sorted = offsets.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, deliverable(&world.instances.simulator, it), "c{it} in {table}");
    let positions: Vec<Option<i64>> = rows.iter().map(|row| row.get(1)).collect();
    assert!(positions.into_iter().eq((1..).map(Some).take(offsets.len())), "c{it}: positions in {table}");
    check_order(world, it, &offsets, table);
    offsets.len()
}

/// The first deliveries of events are in order, except late deliveries.
fn check_order(world: &World, it: usize, offsets: &[i64], what: &str) {
    let mut seen = BTreeSet::new();
    let first: Vec<_> = offsets.iter().copied().filter(|offset| seen.insert(*offset)).collect();
    let in_time = first.iter().filter(|offset| !world.late.contains(&(it, **offset)));
    assert!(in_time.is_sorted(), "c{it} changed the order in {what}: {first:?}");
}
