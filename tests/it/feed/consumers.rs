//! Consumers, whose cursors the feed stores.

use std::collections::BTreeMap;
use std::time::Instant;

use rand::Rng;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use simulator::{LateProofs, Options};

use super::reading::NEVER;
use super::{FeedClient, FeedEvent, Served, assert_positions, assert_problem, sorted_offsets, with_each_table};
use crate::support::{Daemon, LONGEST_WAIT, LOOK_AGAIN, deliverable, everything, random};

pub(super) const LEASE: &str = "/consumers/ledger/c0/lease";
pub(super) const COMMIT: &str = "/consumers/ledger/c0/commit";

with_each_table![
    each_event_is_processed_at_least_once_and_in_order_although_the_daemon_is_killed,
    a_lease_excludes_others_until_it_is_committed,
    a_consumer_behind_the_oldest_row_is_told_so,
];

/// A lease and its events. Otherwise the status: 409 if another lease is valid, and 204 if no event came.
pub(super) async fn try_lease(client: &FeedClient, limit: usize) -> Result<(String, Vec<FeedEvent>), StatusCode> {
    let answer = client.post(&format!("{LEASE}?limit={limit}&wait=30s"), &Value::Null).await;
    if answer.status == StatusCode::CONFLICT {
        assert_problem(&answer, StatusCode::CONFLICT, "leased");
    }
    if [StatusCode::CONFLICT, StatusCode::NO_CONTENT].contains(&answer.status) {
        return Err(answer.status);
    }
    let leased = answer.json();
    Ok((leased["lease"].as_str().unwrap().to_owned(), FeedEvent::all(&leased["events"])))
}

/// Requests a lease until the lease of the request before it has expired.
pub(super) async fn lease(client: &FeedClient, daemon: &mut Daemon, limit: usize) -> (String, Vec<FeedEvent>) {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        if let Ok(leased) = try_lease(client, limit).await {
            return leased;
        }
        daemon.until("it runs", |_| true).await;
        assert!(Instant::now() < deadline, "no lease: {}", daemon.log().tail());
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

pub(super) fn commit_of(lease: &str, through: i64) -> Value {
    json!({"lease": lease, "through": through})
}

/// The events that the application has processed, by position.
#[derive(Default)]
struct Application {
    processed: BTreeMap<i64, FeedEvent>,
    /// The positions at which the cursor can be: two after a commit without an answer.
    cursors: Vec<i64>,
}

impl Application {
    /// Processes the events of a lease, and returns the last position.
    fn process(&mut self, events: Vec<FeedEvent>) -> i64 {
        let first = events[0].position;
        assert!(self.cursors.contains(&(first - 1)), "a lease begins at {first} after {:?}", self.cursors);
        let last = events.last().unwrap().position;
        assert_positions(&events, first..=last);
        self.cursors = vec![first - 1];
        for event in events {
            let position = event.position;
            let before = self.processed.insert(position, event.clone());
            assert!(before.is_none_or(|before| before == event), "position {position} has another event");
        }
        last
    }
}

async fn each_event_is_processed_at_least_once_and_in_order_although_the_daemon_is_killed(kind: &str) {
    let (events, kills) = if everything() { (6_000, 25) } else { (400, 6) };
    let late_proofs = Some(LateProofs { share: 0.05, delay: NEVER });
    let options = Options { events, unsigned: 0.1, forged: 0.05, late_proofs, ..Options::default() };
    let Some(Served { simulator, mut setup, database: _database, .. }) = Served::by(kind, options).await else {
        return;
    };
    setup.set("feed.lease", "3s");
    let pending = simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty == simulator::Honesty::Pending);
    let mut pending: Vec<_> = pending.map(|(offset, _)| offset).collect();
    let mut application = Application { cursors: vec![0], ..Application::default() };
    let (mut rng, mut repeated) = (random(39), 0);
    for _ in 0..kills {
        let mut daemon = setup.start();
        let client = FeedClient::of(&mut daemon).await;
        for _ in 0..rng.random_range(0..4) {
            let (lease, events) = lease(&client, &mut daemon, rng.random_range(1..10)).await;
            let through = application.process(events);
            assert_eq!(client.post(COMMIT, &commit_of(&lease, through)).await.status, StatusCode::NO_CONTENT);
            application.cursors = vec![through];
        }
        let (lease, events) = lease(&client, &mut daemon, rng.random_range(1..10)).await;
        let through = application.process(events);
        if rng.random_bool(0.5) {
            // The daemon is killed between the lease and the commit.
            daemon.kill().await;
            repeated += 1;
        } else {
            // The daemon is killed during the commit.
            let body = commit_of(&lease, through).to_string();
            let commit = FeedClient::try_send(client.request(Method::POST, COMMIT).body(body));
            let (answer, _) = tokio::join!(commit, daemon.kill());
            let is_committed = answer.is_ok_and(|answer| answer.status == StatusCode::NO_CONTENT);
            let before = if is_committed { None } else { application.cursors.pop() };
            application.cursors = before.into_iter().chain([through]).collect();
        }
        for offset in pending.split_off(pending.len().saturating_sub(3)) {
            simulator.prove(0, offset);
        }
    }
    for offset in pending {
        simulator.prove(0, offset);
    }
    let expected = deliverable(&simulator, 0);
    let newest = i64::try_from(expected.len()).unwrap();
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    while application.cursors != [newest] {
        let (lease, events) = lease(&client, &mut daemon, 100).await;
        let through = application.process(events);
        assert_eq!(client.post(COMMIT, &commit_of(&lease, through)).await.status, StatusCode::NO_CONTENT);
        application.cursors = vec![through];
    }
    assert_eq!(client.post(LEASE, &Value::Null).await.status, StatusCode::NO_CONTENT);
    let processed: Vec<_> = application.processed.into_values().collect();
    assert_positions(&processed, 1..=newest);
    assert_eq!(sorted_offsets(&processed), expected, "{repeated} leases were not committed");
    assert_eq!(client.read("c0", 0, 1_000).await, processed);
    daemon.stop().await;
}

async fn a_lease_excludes_others_until_it_is_committed(kind: &str) {
    let options = Options { events: 10, ..Options::default() };
    let Some(Served { setup, simulator, database: _database, .. }) = Served::by(kind, options).await else { return };
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 10).await;
    let (first, events) = try_lease(&client, 4).await.unwrap();
    assert_positions(&events, 1..=4);
    assert_eq!(try_lease(&client, 4).await, Err(StatusCode::CONFLICT));
    for (body, status, problem) in [
        (commit_of("another", 4), StatusCode::CONFLICT, "not-leased"),
        (commit_of("\0", 4), StatusCode::CONFLICT, "not-leased"),
        (commit_of(&first, 5), StatusCode::BAD_REQUEST, "invalid-request"),
        (json!({"lease": first}), StatusCode::BAD_REQUEST, "invalid-request"),
    ] {
        assert_problem(&client.post(COMMIT, &body).await, status, problem);
    }
    assert_eq!(client.post(COMMIT, &commit_of(&first, 3)).await.status, StatusCode::NO_CONTENT);
    assert_problem(&client.post(COMMIT, &commit_of(&first, 4)).await, StatusCode::CONFLICT, "not-leased");

    // The lease belongs to the table, not to the daemon.
    let (second, events) = try_lease(&client, 100).await.unwrap();
    assert_positions(&events, 4..=10);
    daemon.kill().await;
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    assert_eq!(try_lease(&client, 4).await, Err(StatusCode::CONFLICT));
    assert_eq!(client.post(COMMIT, &commit_of(&second, 10)).await.status, StatusCode::NO_CONTENT);
    assert_eq!(client.post(LEASE, &Value::Null).await.status, StatusCode::NO_CONTENT, "nothing is left");

    // A request for a lease waits for the next event.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { try_lease(&client, 4).await }
    });
    assert_eq!(client.newest("c0").await, 10);
    simulator.publish(0, 1);
    assert_positions(&waiting.await.unwrap().unwrap().1, [11]);
    daemon.stop().await;
}

async fn a_consumer_behind_the_oldest_row_is_told_so(kind: &str) {
    let Some(mut served) = Served::by(kind, Options { events: 20, ..Options::default() }).await else { return };
    served.add_consumer("other", "token-of-other-never-to-be-shown", &["c0"]);
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 20).await;
    let (lease, _) = try_lease(&client, 2).await.unwrap();
    assert_eq!(client.post(COMMIT, &commit_of(&lease, 2)).await.status, StatusCode::NO_CONTENT);
    served.change("delete from events where position <= 5").await;
    let problem = assert_problem(&client.post(LEASE, &Value::Null).await, StatusCode::GONE, "gone");
    assert_eq!(problem["oldest"], 6);
    daemon.until_logged("the events after the cursor of a consumer were deleted").await;
    // A consumer without a cursor begins with the oldest row.
    let other = client.with_token(Some("token-of-other-never-to-be-shown"));
    let leased = other.post("/consumers/other/c0/lease?limit=2", &Value::Null).await.json();
    assert_positions(&FeedEvent::all(&leased["events"]), 6..=7);
    daemon.stop().await;
}

#[tokio::test]
async fn old_rows_are_kept_until_the_consumer_has_committed_them() {
    let Some(mut served) = Served::by("sqlite", Options { events: 30, ..Options::default() }).await else { return };
    served.setup.set("sinks.table.keep_for", "1ms");
    served.setup.set("sinks.table.keep_for_consumers", vec!["ledger"]);
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 30).await;
    let (lease, events) = try_lease(&client, 12).await.unwrap();
    assert_positions(&events, 1..=12);
    assert_eq!(client.post(COMMIT, &commit_of(&lease, 12)).await.status, StatusCode::NO_CONTENT);
    daemon.stop().await;

    // Rows are deleted after the first delivery of a process.
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    served.simulator.publish(0, 1);
    let deadline = Instant::now() + LONGEST_WAIT;
    while client.get("/channels/c0/events?after=0").await.status != StatusCode::GONE {
        assert!(Instant::now() < deadline, "{}", daemon.log().tail());
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let problem = assert_problem(&client.get("/channels/c0/events?after=0").await, StatusCode::GONE, "gone");
    assert_eq!(problem["oldest"], 13);
    let (_, events) = try_lease(&client, 1).await.unwrap();
    assert_positions(&events, [13]);
    daemon.until("it runs", |_| true).await;
    daemon.stop().await;
}
