//! A single instance with its state in PostgreSQL continues from its cursor after a kill, as with sled.

use std::collections::BTreeSet;

use super::{instance, offsets, service};
use crate::support::{Database, Receiver, deliverable};

#[tokio::test]
async fn a_killed_instance_continues_from_its_cursor() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 200).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver);
    let expected: BTreeSet<_> = deliverable(&simulator, 0).into_iter().collect();

    let mut daemon = setup.start();
    daemon.until("some events are delivered", |_| receiver.received() > 40).await;
    daemon.kill().await;
    let before = receiver.received();
    let mut daemon = setup.start();
    let all = |receiver: &Receiver| offsets(receiver, "c0").into_iter().collect::<BTreeSet<_>>() == expected;
    daemon.until("all events are delivered", |_| all(&receiver)).await;
    daemon.stop().await;
    assert!(
        receiver.received() <= expected.len() + 8,
        "{} of {}, {before} before",
        receiver.received(),
        expected.len()
    );
    let owned = database.number("select count(*) from channeld.channels where owner is not null").await;
    let instances = database.number("select count(*) from channeld.instances").await;
    assert_eq!((owned, instances), (0, 1), "all leases are released, and the killed instance is recorded as dead");
}
