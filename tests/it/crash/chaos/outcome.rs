//! Compares everything that the sinks received with everything that the service published.

use std::collections::BTreeSet;

use super::plant::forged;
use super::target::lanes;
use super::world::{BUS, CHANNELS, FILES, GIVE_UP, HOOKS, TABLES, WAREHOUSES, World, channel, number};
use crate::support::{Lane, Log, Published, deliverable, place};

/// Stops the daemon and checks every lane. Returns the number of deliveries.
pub(super) async fn check(mut world: World) -> usize {
    let status = world.status().await;
    for it in 0..CHANNELS {
        assert_eq!(channel(&status, it)["quarantined"], forged(&world, it), "c{it}: exactly the forged events");
    }
    let dead = world.dead_letters().await;
    let dead = |(it, sink): Lane| {
        let ours = dead.iter().filter(|(channel, its, _)| *channel == format!("c{it}") && its == sink);
        ours.map(|(.., offset)| *offset).collect::<BTreeSet<_>>()
    };
    assert_no_defect(&world.daemon.take().unwrap().stop().await);
    let published = world.nats.events().await;
    let mut deliveries = 0;
    for lane in lanes() {
        let (delivered, dead) = (world.delivered(lane, &published).await, dead(lane));
        let is_refused = |offset: &&i64| {
            let is_even = world.refuses_even.contains(&lane) && **offset % 2 == 0;
            GIVE_UP.contains(&lane.1) && (is_even || world.refused.contains(&(lane, **offset)))
        };
        let accepted: Vec<_> = dead.iter().filter(|offset| !is_refused(offset)).collect();
        // An endpoint cannot say whether a refusal is about the event. The event that it refused last before it recovered may
        // therefore become a dead letter, and a killed daemon no longer knows that it gave up on such an event.
        let outages = world.outages.get(lane.1).copied().unwrap_or_default() + world.kills;
        let most = if HOOKS.contains(&lane.1) { outages } else { 0 };
        assert!(accepted.len() <= most, "{lane:?} gave up on {accepted:?}, which it need not");
        check_lane(&world, lane, &delivered, &dead);
        deliveries += delivered.len();
    }
    deliveries
}

/// No event is missing, none is forged, the order is kept, and only webhooks receive an event twice.
fn check_lane(world: &World, lane: Lane, delivered: &[i64], dead: &BTreeSet<i64>) {
    let expected: BTreeSet<_> = deliverable(&world.simulator, lane.0).into_iter().collect();
    let mut seen = BTreeSet::new();
    let first: Vec<_> = delivered.iter().copied().filter(|offset| seen.insert(*offset)).collect();
    let missing: Vec<_> = expected.iter().filter(|offset| !seen.contains(offset) && !dead.contains(offset)).collect();
    assert!(missing.is_empty(), "{lane:?} lost {missing:?}");
    let invented: Vec<_> = seen.difference(&expected).collect();
    assert!(
        invented.is_empty(),
        "{lane:?} received {invented:?}, which the service did not publish with a valid proof"
    );
    // Rows in PostgreSQL have no order.
    if !WAREHOUSES.contains(&lane.1) {
        let in_time = first.iter().filter(|offset| !world.late.contains(&(lane.0, **offset)));
        assert!(in_time.is_sorted(), "{lane:?} changed the order: {first:?}");
    }
    if !HOOKS.contains(&lane.1) {
        assert_eq!(delivered.len(), first.len(), "{lane:?} received an event twice: {delivered:?}");
        let both: Vec<_> = dead.intersection(&seen).collect();
        assert!(both.is_empty(), "{lane:?} delivered {both:?} and gave up on them");
    }
}

pub(super) fn assert_no_defect(log: &Log) {
    assert!(log.lines("channel failed because of a defect: restarting it").is_empty(), "{}", log.tail());
}

impl World {
    /// The offsets that a lane delivered, in order. `published` are the messages of the stream.
    async fn delivered(&self, (it, sink): Lane, published: &[Published]) -> Vec<i64> {
        let name = format!("c{it}");
        if sink == BUS {
            let subjects = format!("channeld.{name}.");
            let ours = published.iter().filter(|message| message.subject.starts_with(&subjects));
            return ours.map(Published::offset).collect();
        }
        if FILES.contains(&sink) {
            let ours = |line: &str| {
                let (channel, offset) = place(line);
                (channel.as_deref() == Some(&name)).then_some(offset)
            };
            return std::fs::read_to_string(self.file(sink)).unwrap().lines().filter_map(ours).collect();
        }
        if HOOKS.contains(&sink) {
            let received = self.hooks[number(sink)].received.iter();
            return received.filter(|(channel, _)| *channel == name).map(|(_, offset)| *offset).collect();
        }
        if TABLES.contains(&sink) {
            let table = rusqlite::Connection::open(self.table(sink)).unwrap();
            let mut rows = table.prepare("select event_offset from events where channel = ? order by id").unwrap();
            return rows.query_map([&name], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        }
        let rows = format!("select event_offset from events_{} where channel = '{name}'", number(sink));
        self.database.query(&rows).await.iter().map(|row| row.get(0)).collect()
    }
}
