//! After an outage of the database that was longer than a lease, the first instance to return sees no other live instance. If it
//! verifies events in another way than the others, it must not take over their channels.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{LOOK_AGAIN, instance, offsets, service, until};
use crate::support::{Database, LONGEST_WAIT, Line, Receiver, Relay, deliverable};

const LIVE: &str = "select count(*) from channeld.instances where heartbeat + lease > clock_timestamp()";

#[tokio::test]
async fn the_first_instance_to_return_claims_no_channel_that_it_verifies_differently() {
    let Some(database) = Database::new().await else { return };
    database.watch().await;
    let (simulator, receiver) = (service(2, 5).await, Receiver::start().await);
    let relays = [Relay::before(database.server.socket()).await, Relay::before(database.server.socket()).await];
    let setup = |name: &str, relay: &Relay| {
        instance(name, &simulator, &database, &receiver).with("state.url", database.url_by(relay.address()))
    };
    let first = setup("first", &relays[0]);
    let other = setup("other", &relays[1]).with("verification.min_required_signatures", 1);
    let owned = "select count(*) from channeld.channels c join channeld.instances i on i.id = c.owner \
                 where i.name = 'first' and i.heartbeat + i.lease > clock_timestamp()";
    let mut daemons = vec![first.start()];
    until(&database, "the first instance owns all channels", owned, &[2]).await;
    daemons.push(other.start());
    until(&database, "both live", LIVE, &[2]).await;

    for relay in &relays {
        relay.becomes(Line::Silent);
    }
    until(&database, "the leases have ended", LIVE, &[0]).await;
    relays[1].becomes(Line::Good);
    let beat = "select heartbeat::text from channeld.instances where name = 'other'";
    let (mut beats, began) = (BTreeSet::<String>::new(), Instant::now());
    // The last heartbeat before the outage, and two afterwards.
    while beats.len() < 3 {
        beats.extend(database.query(beat).await.iter().map(|row| row.get::<_, String>(0)));
        assert!(began.elapsed() < LONGEST_WAIT, "{beats:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    relays[0].becomes(Line::Good);
    until(&database, "the first instance owns all channels again", owned, &[2]).await;
    (0..2).for_each(|channel| simulator.publish(channel, 5));
    let all = |channel: usize| {
        let found: BTreeSet<_> = offsets(&receiver, &format!("c{channel}")).into_iter().collect();
        found == deliverable(&simulator, channel).into_iter().collect()
    };
    daemons[0].until("everything is delivered", |_| all(0) && all(1)).await;
    let by_other =
        "select count(*) from audit.channels c join channeld.instances i on i.id = c.owner where i.name = 'other'";
    assert_eq!(database.number(by_other).await, 0, "the other instance has claimed nothing");
    for daemon in daemons {
        daemon.stop().await;
    }
}
