//! A stream with replicas on three servers.

use rand::Rng;
use serde_json::json;

use super::{assert_whole, setup};
use crate::sinks::streams::{late, service};
use crate::support::{Nats, STREAM, deliverable, random};

const EVENTS: u64 = 600;

#[tokio::test]
async fn a_stream_that_loses_its_leader_or_a_server_has_each_event_once() {
    let Some(nats) = Nats::cluster() else { return };
    let simulator = service(EVENTS).await;
    let (late, mut random) = (late(&simulator), random(44));
    let setup = setup(&simulator, nats.address()).with("sinks.bus.url", nats.url()).with("sinks.bus.replicas", 3);
    let setup = setup.with("api.page_limit", 20);
    let mut daemon = setup.start();
    nats.until_count(1).await;
    nats.forget_ids().await;
    for _ in 0..3 {
        let done = nats.count().await;
        nats.api(&format!("STREAM.LEADER.STEPDOWN.{STREAM}"), json!({})).await;
        nats.until_count((done + random.random_range(1..100)).min(deliverable(&simulator, 0).len())).await;
    }
    let leader = nats.leader().await;
    for offset in &late {
        simulator.prove(0, *offset);
    }
    nats.kill_one(leader);
    simulator.publish(0, 100);
    nats.until_count(deliverable(&simulator, 0).len()).await;
    assert_ne!(nats.leader().await, leader);
    nats.run_one(leader);
    daemon.until_logged("sink accepts events again").await;
    daemon.stop().await;
    assert_whole(&nats, &simulator, &late).await;
}
