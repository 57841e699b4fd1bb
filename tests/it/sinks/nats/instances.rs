//! Two instances with one lane: the older one stands still in the middle of a delivery, and goes on when the newer one has
//! taken over.

use rustix::process::Signal;
use serde_json::Value;

use super::{assert_whole, batches, one_by_one, service};
use crate::support::{Database, Line, Nats, Relay, Setup, deliverable};

async fn frozen_and_thawed(stream: Value) {
    let Some(nats) = Nats::start() else { return };
    let Some(database) = Database::new().await else { return };
    nats.make(stream).await;
    let (relay, simulator) = (Relay::before_address(nats.address()).await, service(200).await);
    for offset in super::late(&simulator) {
        simulator.prove(0, offset);
    }
    let setup = |name: &str, address| {
        let setup = Setup::reading(&simulator).publishing(1, address).sharing(&database, name);
        setup.with("api.page_limit", 10).with("cluster.lease", "3s").with("sinks.bus.timeout", "60s")
    };
    let (older_setup, newer_setup) = (setup("older", relay.address()), setup("newer", nats.address()));
    let mut older = older_setup.start();
    older.until_logged("channel started").await;
    nats.until_count(30).await;
    // What it sends from now on stands in the relay.
    relay.becomes(Line::Silent);
    simulator.publish(0, 20);
    older.until("a delivery stands in the relay", |_| relay.withheld() > 0).await;
    older.signal(Signal::STOP);

    let mut newer = newer_setup.start();
    newer.until_logged("channel started").await;
    nats.until_count(deliverable(&simulator, 0).len()).await;
    simulator.publish(0, 20);
    nats.until_count(deliverable(&simulator, 0).len()).await;
    // What the older one has sent arrives now, and it wakes up.
    relay.becomes(Line::Good);
    older.signal(Signal::CONT);
    // By the server's answer or by its lease, whichever comes first.
    let words = ["another instance", "channel stopped"];
    older.until("it has noticed", |older| words.iter().any(|words| older.log().0.contains(words))).await;
    simulator.publish(0, 20);
    nats.until_count(deliverable(&simulator, 0).len()).await;
    older.stop().await;
    newer.stop().await;
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn an_older_instance_that_wakes_up_publishes_nothing_twice() {
    tokio::join!(frozen_and_thawed(batches()), frozen_and_thawed(one_by_one()));
}
