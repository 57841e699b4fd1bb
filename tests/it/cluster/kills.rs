//! An instance is killed between a delivery and its commit. Another instance takes over, no event is lost, and at most
//! one batch is repeated.

use simulator::Options;

use super::arrivals::BATCH;
use super::instances::Instances;
use crate::support::{Database, Line, Reply, eventually};

/// The step at which the instance is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// The sink has received events, but its answer has not arrived.
    Delivered,
    /// The commit was sent. It reaches the database after another instance has taken over.
    Committing,
    /// The database has executed the commit, but its answer has not arrived.
    Committed,
}

const OLD: u64 = 20;
const NEW: u64 = 4;
const RECORDED: &str = "select coalesce(max(through), 0) from audit.cursors";

async fn killed_at(point: Point) {
    println!("{point:?}");
    let Some(database) = Database::new().await else { return };
    let mut instances = Instances::new(database, 2, Options { events: OLD, ..Options::default() }).await;
    instances.start(0);
    instances.until_number("all events are recorded", RECORDED, 20).await;
    instances.start(1);
    instances.until_live(2).await;

    match point {
        Point::Delivered => instances.receiver.always(Some(Reply::Hang)),
        Point::Committing => instances.get(0).relay.becomes_at_commit(Line::Silent),
        Point::Committed => instances.get(0).relay.becomes_at_commit(Line::HoldsAnswers),
    }
    let requests = instances.receiver.requests();
    instances.simulator.publish(0, NEW);
    match point {
        Point::Delivered => {
            let receiver = &instances.receiver;
            eventually("some events are delivered", || (receiver.requests() > requests).then_some(())).await;
        }
        Point::Committing => {
            let relay = &instances.get(0).relay;
            eventually("the relay holds a commit", || (relay.held() > 0).then_some(())).await;
        }
        Point::Committed => {
            let new = "select count(*) from audit.cursors where through > 20";
            instances.until_number("the database has executed a commit", new, 1).await;
        }
    }
    instances.kill(0).await;
    instances.receiver.always(None);
    instances.simulator.publish(0, NEW);
    instances.until_all_arrived().await;
    let last = i64::try_from(OLD + 2 * NEW).unwrap();
    instances.until_number("the other instance has recorded all events", RECORDED, last).await;

    // Now the last statements of the dead instance reach the database.
    instances.get(0).relay.becomes(Line::Good);
    let relay = &instances.get(0).relay;
    eventually("the last statements have arrived", || (relay.connections() == 0).then_some(())).await;
    instances.simulator.publish(0, NEW);
    instances.until_all_arrived().await;
    instances.stop_all().await;
    instances.assert_whole().await;
    let repeats = instances.arrivals.repeats();
    match point {
        Point::Delivered | Point::Committing => assert!((1..=BATCH).contains(&repeats), "{point:?}: {repeats} repeats"),
        Point::Committed => assert_eq!(repeats, 0, "the batch was recorded before the kill"),
    }
}

#[tokio::test]
async fn kills_between_delivery_and_commit_lose_nothing_and_repeat_one_batch_at_most() {
    // Concurrently, because each of them mostly waits for a lease to expire.
    tokio::join!(killed_at(Point::Delivered), killed_at(Point::Committing), killed_at(Point::Committed));
}
