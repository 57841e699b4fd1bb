//! A database that was restored from a dump does not contain the latest deliveries. The events since the dump are delivered
//! again, and no event is lost.

use std::collections::BTreeSet;

use super::{instance, offsets, service};
use crate::support::{Database, Receiver, deliverable};

#[tokio::test]
async fn a_restored_dump_of_a_running_state_loses_nothing() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 30).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver);
    let mut daemon = setup.start();
    daemon.until("all events are delivered", |_| offsets(&receiver, "c0").len() >= 30).await;
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "hook"]).await.code, Some(0));
    database.dump();
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0));
    simulator.publish(0, 20);
    daemon.until("the later events are delivered", |_| offsets(&receiver, "c0").len() >= 50).await;
    daemon.stop().await;

    database.change("drop schema channeld cascade").await;
    database.restore();
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0), "the pause is in the copy");
    simulator.publish(0, 10);
    let come = || offsets(&receiver, "c0");
    daemon.until("the events since the dump arrive again, and the new ones arrive", |_| come().len() >= 80).await;
    daemon.stop().await;
    let expected = deliverable(&simulator, 0);
    assert_eq!(come().into_iter().collect::<BTreeSet<_>>(), expected.iter().copied().collect(), "no event is lost");
    assert!(expected.ends_with(&come()[50..]), "the events since the dump are repeated in order: {:?}", come());
}
