//! A JetStream stream in production: each event exactly once, whatever is killed, lost or away.

use std::collections::BTreeSet;
use std::time::Duration;

use channeld::simulator::{Honesty, LateProofs, Options, Simulator};
use rand::Rng;
use serde_json::{Value, json};

use crate::support::{Line, Nats, Relay, Setup, deliverable, everything, random};

pub(super) mod content;
mod instances;
mod stream;

/// Events, and kills.
const SAMPLE: (u64, usize) = (600, 10);
const FULL: (u64, usize) = (6_000, 25);

/// How often the line is bad.
const TROUBLES: usize = 10;

/// Longer than this takes: proofs come when a test says so.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// How a stream takes the events of a delivery.
fn batches() -> Value {
    json!({})
}

fn one_by_one() -> Value {
    json!({"allow_atomic": false})
}

/// A service with forged events, notices and events whose proofs come late.
pub(super) async fn service(events: u64) -> Simulator {
    let late_proofs = Some(LateProofs { share: 0.05, delay: NEVER });
    let options = Options { events, unsigned: 0.2, forged: 0.02, late_proofs, ..Options::default() };
    Simulator::start(options).await.unwrap()
}

pub(super) fn late(simulator: &Simulator) -> Vec<i64> {
    let pending = |(offset, honesty): (i64, Honesty)| (honesty == Honesty::Pending).then_some(offset);
    simulator.offsets(0).into_iter().filter_map(pending).collect()
}

fn setup(simulator: &Simulator, address: std::net::SocketAddr) -> Setup {
    Setup::reading(simulator).publishing(1, address).with("api.page_limit", 50)
}

/// Every event that is to be delivered is in the stream, once, and those that were not late in their order.
async fn assert_whole(nats: &Nats, simulator: &Simulator, late: &[i64]) {
    let mut offsets = nats.offsets().await;
    let late: BTreeSet<_> = late.iter().collect();
    let in_time: Vec<_> = offsets.iter().filter(|offset| !late.contains(offset)).collect();
    assert!(in_time.is_sorted(), "ascending apart from late events");
    offsets.sort_unstable();
    assert_eq!(offsets, deliverable(simulator, 0), "each exactly once");
}

/// Kills the daemon again and again, and lets proofs come in between.
async fn killed_again_and_again(stream: Value) {
    let Some(nats) = Nats::start() else { return };
    nats.make(stream).await;
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    let simulator = service(events).await;
    let (late, mut random) = (late(&simulator), random(41));
    let mut unproved = late.clone();
    let setup = setup(&simulator, nats.address());
    for kill in 1..=kills {
        let daemon = setup.start();
        let all = deliverable(&simulator, 0).len();
        let done = nats.count().await;
        let share = (all - done).div_ceil(kills - kill + 2).max(1);
        nats.until_count((done + random.random_range(1..=2 * share)).min(all)).await;
        daemon.kill().await;
        for _ in 0..unproved.len().div_ceil(kills - kill + 1) {
            simulator.prove(0, unproved.swap_remove(random.random_range(0..unproved.len())));
        }
    }
    assert!(unproved.is_empty() && !late.is_empty());
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    nats.until_count(deliverable(&simulator, 0).len()).await;
    daemon.stop().await;
    assert_whole(&nats, &simulator, &late).await;
}

#[tokio::test]
async fn killed_again_and_again_it_publishes_each_event_once_in_batches() {
    killed_again_and_again(batches()).await;
}

#[tokio::test]
async fn killed_again_and_again_it_publishes_each_event_once_one_by_one() {
    killed_again_and_again(one_by_one()).await;
}

/// The server is killed in the middle, and comes back.
async fn server_restarted(stream: Value) {
    let Some(nats) = Nats::start() else { return };
    nats.make(stream).await;
    let simulator = service(SAMPLE.0).await;
    let (late, mut random) = (late(&simulator), random(42));
    let setup = setup(&simulator, nats.address()).with("api.page_limit", 20);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    for _ in 0..3 {
        let done = nats.count().await;
        nats.until_count((done + random.random_range(1..100)).min(deliverable(&simulator, 0).len())).await;
        nats.kill();
        nats.run();
    }
    for offset in &late {
        simulator.prove(0, *offset);
    }
    nats.until_count(deliverable(&simulator, 0).len()).await;
    daemon.stop().await;
    assert_whole(&nats, &simulator, &late).await;
}

#[tokio::test]
async fn a_server_that_is_restarted_in_the_middle_has_each_event_once() {
    tokio::join!(server_restarted(batches()), server_restarted(one_by_one()));
}

/// What the server answers is lost again and again, after it has done what it was asked for.
async fn answers_lost(stream: Value) {
    let Some(nats) = Nats::start() else { return };
    nats.make(stream).await;
    let relay = Relay::before_address(nats.address()).await;
    let (events, most) = if everything() { (FULL.0, usize::MAX) } else { (SAMPLE.0, TROUBLES) };
    let simulator = service(events).await;
    let (late, mut random) = (late(&simulator), random(43));
    for offset in &late {
        simulator.prove(0, *offset);
    }
    let setup = setup(&simulator, relay.address()).with("api.page_limit", 20).with("sinks.bus.timeout", "300ms");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let (all, mut cuts) = (deliverable(&simulator, 0).len(), 0);
    loop {
        let done = nats.count().await;
        if done >= all || cuts >= most {
            break;
        }
        // Held answers come late, cut ones never.
        relay.becomes(if random.random() { Line::CutsAnswers } else { Line::HoldsAnswers });
        tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
        relay.becomes(Line::Good);
        if random.random() {
            relay.cut();
        }
        cuts += 1;
        nats.until_count((done + 1).min(all)).await;
    }
    nats.until_count(all).await;
    assert!(cuts > 2, "{cuts}");
    daemon.stop().await;
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn answers_that_are_lost_repeat_no_event() {
    tokio::join!(answers_lost(batches()), answers_lost(one_by_one()));
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for_and_holds_up_no_other_sink() {
    let Some(nats) = Nats::start() else { return };
    let simulator = Simulator::start(Options { events: 50, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).and_publishing(nats.address());
    let setup = setup.with("channels.c0.sinks", vec!["file", "bus"]).with("sinks.bus.give_up_after", "1s");
    nats.kill();
    let mut daemon = setup.start();
    daemon.until("the file has all", |_| setup.lines() == deliverable(&simulator, 0).len()).await;
    daemon.until_logged("sink refused again").await;
    nats.run();
    nats.until_count(deliverable(&simulator, 0).len()).await;

    nats.kill();
    simulator.publish(0, 50);
    daemon.until("the file has all", |_| setup.lines() == deliverable(&simulator, 0).len()).await;
    let began = std::time::Instant::now();
    daemon.until("longer than an event is offered", |_| began.elapsed() > Duration::from_millis(2_500)).await;
    nats.run();
    nats.until_count(deliverable(&simulator, 0).len()).await;
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event was given up");
    let log = daemon.stop().await;
    assert!(log.lines("sink accepts again").len() >= 2);
    assert_whole(&nats, &simulator, &[]).await;
}
