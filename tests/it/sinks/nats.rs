//! JetStream streams in production. The stream contains each event exactly once, even if processes are killed, answers
//! are lost, or the server is unavailable.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use simulator::Simulator;

use super::streams::{self, Stream};
use crate::support::{Database, Mount, Nats, Relay, Setup, deliverable};

mod cluster;
pub(super) mod content;
mod logins;
mod positions;
mod stream;

/// The settings of a stream that accepts a delivery as one atomic batch.
fn batches() -> Value {
    json!({})
}

fn one_by_one() -> Value {
    json!({"allow_atomic": false})
}

/// A server with this stream, or `None` if the test is skipped.
async fn made(stream: Value) -> Option<Nats> {
    let nats = Nats::start()?;
    nats.make(stream).await;
    Some(nats)
}

fn setup(simulator: &Simulator, address: SocketAddr) -> Setup {
    Setup::reading(simulator).publishing(1, address).with("api.page_limit", 50)
}

/// Asserts that the stream contains every deliverable event exactly once, in order apart from late deliveries.
async fn assert_whole(nats: &Nats, simulator: &Simulator, late: &[i64]) {
    let mut offsets = nats.offsets().await;
    let late: BTreeSet<_> = late.iter().collect();
    let in_time: Vec<_> = offsets.iter().filter(|offset| !late.contains(offset)).collect();
    assert!(in_time.is_sorted(), "ascending apart from late events");
    offsets.sort_unstable();
    assert_eq!(offsets, deliverable(simulator, 0), "each exactly once");
}

impl Stream for Nats {
    const SINK: &str = "bus";
    const TIMEOUT: &str = "300ms";

    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn beside(&self, setup: Setup, address: SocketAddr) -> Setup {
        setup.and_publishing(address)
    }

    async fn count(&self) -> usize {
        self.count().await
    }

    async fn until_count(&self, count: usize) {
        self.until_count(count).await;
    }

    async fn assert_whole(&self, simulator: &Simulator, late: &[i64]) {
        assert_whole(self, simulator, late).await;
    }

    fn kill(&self) {
        self.kill();
    }

    fn run(&self) {
        self.run();
    }
}

async fn killed_again_and_again(stream: Value) {
    let Some(nats) = made(stream).await else { return };
    streams::killed_again_and_again(&nats).await;
}

#[tokio::test]
async fn repeated_kills_publish_each_event_once_in_batches() {
    killed_again_and_again(batches()).await;
}

#[tokio::test]
async fn repeated_kills_publish_each_event_once_one_by_one() {
    killed_again_and_again(one_by_one()).await;
}

async fn restarted_in_the_middle(stream: Value) {
    let Some(nats) = made(stream).await else { return };
    streams::restarted_in_the_middle(&nats).await;
}

#[tokio::test]
async fn a_server_restarted_during_delivery_has_each_event_once() {
    tokio::join!(restarted_in_the_middle(batches()), restarted_in_the_middle(one_by_one()));
}

async fn answers_lost(stream: Value) {
    let Some(nats) = made(stream).await else { return };
    let relay = Relay::before_address(nats.address()).await;
    streams::answers_lost(&nats, &relay).await;
}

#[tokio::test]
async fn lost_answers_repeat_no_event() {
    tokio::join!(answers_lost(batches()), answers_lost(one_by_one()));
}

#[tokio::test]
async fn an_unreachable_server_is_retried_and_delays_no_other_sink() {
    let Some(nats) = Nats::start() else { return };
    streams::away(&nats).await;
}

#[tokio::test]
async fn a_full_disk_of_the_server_is_retried_and_delays_no_other_sink() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::new(directory.path().join("small"), "32m") else { return };
    let Some(nats) = Nats::start_in(&mount.at) else { return };
    streams::disk_full(&nats, &mount).await;
}

async fn frozen_and_thawed(stream: Value) {
    let Some(nats) = made(stream).await else { return };
    let Some(database) = Database::new().await else { return };
    let relay = Relay::before_address(nats.address()).await;
    streams::frozen_and_thawed(&nats, &relay, &database).await;
}

#[tokio::test]
async fn an_older_instance_that_wakes_up_publishes_nothing_twice() {
    tokio::join!(frozen_and_thawed(batches()), frozen_and_thawed(one_by_one()));
}

#[tokio::test]
async fn two_instances_competing_for_a_lane_publish_each_event_once_and_report_it() {
    let Some(nats) = made(batches()).await else { return };
    streams::taken_from_each_other(&nats).await;
}
