//! Several instances with one state and one table serve feeds. A client can use any of them.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::StatusCode;
use serde_json::Value;
use simulator::{EventSpec, Kind, Options};

use super::consumers::{COMMIT, LEASE, commit_of, lease, try_lease};
use super::{FeedClient, FeedEvent, Served, TOKEN, assert_positions, assert_problem, sorted_offsets};
use crate::support::{Daemon, Database, LONGEST_WAIT, LOOK_AGAIN, Setup, deliverable};

const NAMES: [&str; 2] = ["a", "b"];

/// A running instance, and a client of its feed.
struct Instance {
    setup: Setup,
    daemon: Daemon,
    client: FeedClient,
}

impl Instance {
    async fn start(served: &Served, name: &str) -> Self {
        let database = served.database.as_ref().unwrap();
        let token_file = served.setup.path("ledger.token").display().to_string();
        let mut setup = Setup::reading(&served.simulator)
            .sharing(database, name)
            .with("sinks.table.type", "postgres")
            .with("sinks.table.url", database.url())
            .with("channels.c0.sinks", vec!["table"])
            .with("feed.sink", "table")
            .with("feed.listen", "127.0.0.1:0")
            .with("feed.consumers.ledger.token_file", token_file)
            .with("feed.consumers.ledger.channels", vec!["c0"]);
        setup.remove("sinks.file");
        setup.keep_secret(TOKEN);
        let mut daemon = setup.start();
        let client = FeedClient::of(&mut daemon).await;
        Self { setup, daemon, client }
    }
}

/// Two instances. Waits until both have seen this number of events. Returns `None` if the test is skipped.
async fn two(events: usize) -> Option<(Served, [Instance; 2])> {
    let options = Options { events: u64::try_from(events).unwrap(), ..Options::default() };
    let served = Served::on(Database::new().await?, options).await;
    let mut instances = [Instance::start(&served, NAMES[0]).await, Instance::start(&served, NAMES[1]).await];
    for Instance { client, daemon, .. } in &mut instances {
        client.until(daemon, "c0", events).await;
    }
    Some((served, instances))
}

/// Waits until an instance runs the channel, and returns its number.
async fn owner(served: &Served) -> usize {
    let query = "select i.name from channeld.channels c join channeld.instances i on i.id = c.owner";
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        let rows = served.database.as_ref().unwrap().query(query).await;
        if let Some(row) = rows.first() {
            return NAMES.iter().position(|name| *name == row.get::<_, &str>(0)).unwrap();
        }
        assert!(Instant::now() < deadline, "no instance runs the channel");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn publish(served: &Served) {
    served.simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
}

#[tokio::test]
async fn a_lease_and_a_commit_are_valid_on_every_instance() {
    let Some((_served, [a, b])) = two(10).await else { return };
    let (first, events) = try_lease(&a.client, 4).await.unwrap();
    assert_positions(&events, 1..=4);
    assert_problem(&b.client.post(LEASE, &Value::Null).await, StatusCode::CONFLICT, "leased");
    // The client of the lease continues at the other instance.
    assert_eq!(b.client.post(COMMIT, &commit_of(&first, 3)).await.status, StatusCode::NO_CONTENT);
    assert_problem(&a.client.post(COMMIT, &commit_of(&first, 4)).await, StatusCode::CONFLICT, "not-leased");
    let (second, events) = try_lease(&a.client, 100).await.unwrap();
    assert_positions(&events, 4..=10);
    assert_problem(&b.client.post(LEASE, &Value::Null).await, StatusCode::CONFLICT, "leased");
    assert_eq!(a.client.post(COMMIT, &commit_of(&second, 10)).await.status, StatusCode::NO_CONTENT);
    for instance in [a, b] {
        let nothing = instance.client.post(LEASE, &Value::Null).await;
        assert_eq!(nothing.status, StatusCode::NO_CONTENT, "both see the commit");
        instance.daemon.stop().await;
    }
}

#[tokio::test]
async fn an_event_that_one_instance_delivers_wakes_readers_and_consumers_of_the_other() {
    let Some((served, [a, b])) = two(10).await else { return };
    for position in 11..=13 {
        let waiting = [a.client.wait_after(position - 1).await, b.client.wait_after(position - 1).await];
        for instance in [&a, &b] {
            assert_eq!(instance.client.newest("c0").await, position - 1);
        }
        publish(&served);
        for waiting in waiting {
            assert_positions(&FeedEvent::all(&waiting.await.unwrap()["events"]), [position]);
        }
    }
    // A consumer has the same cursor on both, so only one of these requests gets the next event.
    let (lease, _) = try_lease(&a.client, 100).await.unwrap();
    assert_eq!(b.client.post(COMMIT, &commit_of(&lease, 13)).await.status, StatusCode::NO_CONTENT);
    let waiting = [&a, &b].map(|instance| {
        let client = instance.client.clone();
        tokio::spawn(async move { try_lease(&client, 100).await })
    });
    for instance in [&a, &b] {
        assert_eq!(instance.client.newest("c0").await, 13);
    }
    publish(&served);
    let mut leased = Vec::new();
    for waiting in waiting {
        match waiting.await.unwrap() {
            Ok((_, events)) => leased.push(events),
            Err(status) => assert_eq!(status, StatusCode::CONFLICT),
        }
    }
    assert_eq!(leased.len(), 1);
    assert_positions(&leased[0], [14]);
    a.daemon.stop().await;
    b.daemon.stop().await;
}

#[tokio::test]
async fn a_client_continues_at_the_other_instance_after_a_kill_and_loses_nothing() {
    let Some((served, instances)) = two(20).await else { return };
    let mut instances = instances.map(Some);
    let (mut read, mut processed) = (Vec::new(), BTreeMap::new());
    for _ in 0..3 {
        // The instance that delivers is killed. The client has a lease that it has not committed yet.
        let owner = owner(&served).await;
        let mut killed = instances[owner].take().unwrap();
        let (held, events) = lease(&killed.client, &mut killed.daemon, 7).await;
        let through = events.last().unwrap().position;
        processed.extend(events.into_iter().map(|event| (event.position, event)));
        killed.daemon.kill().await;
        let other = instances[1 - owner].as_mut().unwrap();
        assert_eq!(other.client.post(COMMIT, &commit_of(&held, through)).await.status, StatusCode::NO_CONTENT);

        let before = usize::try_from(other.client.newest("c0").await).unwrap();
        for _ in 0..3 {
            publish(&served);
        }
        other.client.until(&mut other.daemon, "c0", before + 3).await;
        let after = read.last().map_or(0, |event: &FeedEvent| event.position);
        read.extend(other.client.read("c0", after, 5).await);
        let (lease, events) = lease(&other.client, &mut other.daemon, 2).await;
        let through = events.last().unwrap().position;
        assert!(events.iter().all(|event| !processed.contains_key(&event.position)), "nothing is leased twice");
        processed.extend(events.into_iter().map(|event| (event.position, event)));
        assert_eq!(other.client.post(COMMIT, &commit_of(&lease, through)).await.status, StatusCode::NO_CONTENT);

        let mut daemon = killed.setup.start();
        let client = FeedClient::of(&mut daemon).await;
        instances[owner] = Some(Instance { daemon, client, setup: killed.setup });
    }
    let [a, b] = instances.map(Option::unwrap);
    let (_, rest) = try_lease(&a.client, 1_000).await.unwrap();
    processed.extend(rest.into_iter().map(|event| (event.position, event)));
    let expected = deliverable(&served.simulator, 0);
    assert_eq!(sorted_offsets(&read), expected, "no event is lost or repeated");
    assert_positions(&read, 1..=i64::try_from(expected.len()).unwrap());
    assert_eq!(processed.into_values().collect::<Vec<_>>(), read, "the consumer has received the same");
    for instance in [a, b] {
        assert_eq!(instance.client.read("c0", 0, 1_000).await, read);
        instance.daemon.stop().await;
    }
}
