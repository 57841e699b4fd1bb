//! A network loses packets for a while. The kernel retransmits statements after the instance has already sent them
//! again.

use std::time::Duration;

use simulator::{Options, Simulator};
use tokio::time::{Instant, sleep};

use super::{instance, offsets};
use crate::support::{Database, Network, Receiver, Relay, deliverable};

/// Longer than the instance waits for a statement, and much shorter than the lease.
const OUTAGE: Duration = Duration::from_secs(15);

/// After this time the kernel has retransmitted every lost packet.
const SETTLED: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_delivered_late_by_the_network_revert_nothing() {
    let Some(database) = Database::new().await else { return };
    let Some(network) = Network::new() else { return };
    database.watch().await;
    let listener = network.listener();
    let address = listener.local_addr().unwrap();
    let _relay = Relay::listening(listener, database.server.socket());
    // All events are unsigned, so the instance waits for commits only. For verified events it would also store proofs in
    // the database before it delivers.
    let options = Options { channels: 2, events: 20, unsigned: 1.0, ..Options::default() };
    let (simulator, receiver) = (Simulator::start(options).await.unwrap(), Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver)
        .with("state.url", database.url_by(address))
        .with("cluster.lease", "60s");
    let mut daemon = setup.start();
    let all =
        |channel: usize| offsets(&receiver, &format!("c{channel}")).len() >= deliverable(&simulator, channel).len();
    daemon.until("the first events are delivered", |_| all(0) && all(1)).await;

    // Publish all the time, so that a statement is always in flight.
    let began = Instant::now();
    let mut is_down = false;
    while began.elapsed() < SETTLED {
        (0..2).for_each(|channel| simulator.publish(channel, 1));
        let is_out = (Duration::from_secs(1)..Duration::from_secs(1) + OUTAGE).contains(&began.elapsed());
        if is_out != is_down {
            is_down = is_out;
            if is_down { network.drops_packets() } else { network.is_good() }
        }
        sleep(Duration::from_millis(50)).await;
        daemon.until("the daemon runs", |_| true).await;
    }
    daemon.until("all events are delivered", |_| all(0) && all(1)).await;
    let log = daemon.stop().await;
    for channel in 0..2 {
        assert_eq!(
            offsets(&receiver, &format!("c{channel}")),
            deliverable(&simulator, channel),
            "each event exactly once"
        );
    }
    database.assert_sound().await;
    let away = log.lines("the state cannot be written: channels wait, retrying");
    assert_eq!(away.len(), 1, "the network was down once: {:?}", log.at("WARN"));
    assert!(!log.0.contains("another instance owns the channel"), "no other instance exists");
}
