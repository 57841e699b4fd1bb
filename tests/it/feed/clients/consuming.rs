//! Consumers, which commit events after they have processed them.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::program::{Client, example, shipped};
use super::{Feed, ten_events, with_each_client};
use crate::feed::{FeedClient, FeedEvent, assert_positions};
use crate::support::{LONGEST_WAIT, LOOK_AGAIN};

with_each_client![
    a_consumer_commits_after_processing_and_waits_for_the_lease_of_another_client,
    a_wait_for_the_lease_is_reported_once,
    the_events_of_an_expired_lease_come_again,
    a_consumer_continues_across_a_restart,
    the_example_in_the_readme_works,
];

async fn a_consumer_commits_after_processing_and_waits_for_the_lease_of_another_client(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    FeedClient::of(&mut daemon).await.until(&mut daemon, "c0", 10).await;
    let task = feed.task("consume", &json!({}));
    let Some(mut client) = Client::start(language, &task) else { return };
    assert_positions(&client.events(4).await, 1..=4);
    let mut other = Client::start(language, &task).unwrap();
    other.until_retry("leased").await;
    drop(other);
    client.answer("commit").await;
    assert_positions(&client.events(4).await, 5..=8);
    client.answer("commit").await;
    assert_positions(&client.events(2).await, 9..=10);
    client.answer("commit").await;
    // The request for the next lease waits for an event.
    feed.publish();
    assert_positions(&client.events(1).await, [11]);
    client.answer("fail").await;
    assert_eq!(client.error().await.0, "stopped");
    assert_eq!(cursor(&feed), 10, "the events of a failure are not committed");
    daemon.stop().await;
}

async fn a_wait_for_the_lease_is_reported_once(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    feed.served.setup.set("feed.lease", "10s");
    let mut daemon = feed.served.setup.start();
    FeedClient::of(&mut daemon).await.until(&mut daemon, "c0", 10).await;
    let task = feed.task("consume", &json!({}));
    let Some(mut client) = Client::start(language, &task) else { return };
    assert_positions(&client.events(4).await, 1..=4);
    let mut other = Client::start(language, &task).unwrap();
    other.until_retry("leased").await;
    drop(client);
    // The other client asks again until the lease expires. Its next line must be the events.
    let line = other.text().await.unwrap();
    assert!(line.starts_with("{\"events\""), "{line}");
    daemon.stop().await;
}

/// The cursor of the consumer in the database.
fn cursor(feed: &Feed) -> i64 {
    let connection = rusqlite::Connection::open(feed.served.setup.path("events.db")).unwrap();
    connection.busy_timeout(LONGEST_WAIT).unwrap();
    connection.query_row("select through from events_consumers", [], |row| row.get(0)).unwrap()
}

async fn the_events_of_an_expired_lease_come_again(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    feed.served.setup.set("feed.lease", "1s");
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 10).await;
    let Some(mut client) = Client::start(language, &feed.task("consume", &json!({}))) else { return };
    assert_positions(&client.events(4).await, 1..=4);
    // While the client processes, its lease expires, and another client commits two of the events.
    let lease = loop {
        let answer = direct.post("/consumers/ledger/c0/lease?limit=2", &Value::Null).await;
        if answer.status == StatusCode::OK {
            break answer.json();
        }
        assert_eq!(answer.status, StatusCode::CONFLICT);
        daemon.until("it runs", |_| true).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    assert_positions(&FeedEvent::all(&lease["events"]), 1..=2);
    let commit = json!({"lease": lease["lease"], "through": 2});
    assert_eq!(direct.post("/consumers/ledger/c0/commit", &commit).await.status, StatusCode::NO_CONTENT);
    client.answer("commit").await;
    client.until_retry("not-leased").await;
    assert_positions(&client.events(4).await, 3..=6);
    client.answer("fail").await;
    assert_eq!(client.error().await.0, "stopped");
    let mut again = Client::start(language, &feed.task("consume", &json!({}))).unwrap();
    assert_positions(&again.events(4).await, 3..=6);
    daemon.stop().await;
}

async fn a_consumer_continues_across_a_restart(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    feed.served.setup.set("feed.lease", "1h");
    let daemon = feed.served.setup.start();
    let Some(mut client) = Client::start(language, &feed.task("consume", &json!({"limit": 1}))) else { return };
    assert_positions(&client.events(1).await, [1]);
    daemon.kill().await;
    client.answer("commit").await;
    client.until_retry("connection").await;
    // The lease is still valid: it is in the database.
    let daemon = feed.served.setup.start();
    assert_positions(&client.events(1).await, [2]);
    daemon.stop().await;
}

async fn the_example_in_the_readme_works(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let readme = std::fs::read_to_string(shipped("clients/README.md")).unwrap();
    let (_, section) = readme.split_once("\n## Process events at least once\n").unwrap();
    let block = if language == "typescript" { "ts" } else { language };
    let (_, text) = section.split_once(&format!("```{block}\n")).unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let token_file = feed.served.setup.path("ledger.token").display().to_string();
    let mut adapted = text.to_owned();
    for (shown, here) in
        [("http://127.0.0.1:9465", &*feed.url), ("/etc/ledger/feed-token", &token_file), ("\"settlements\"", "\"c0\"")]
    {
        assert!(text.contains(shown), "{shown}: {text}");
        adapted = adapted.replace(shown, here);
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(command) = example(language, &adapted, directory.path()) else { return };
    let daemon = feed.served.setup.start();
    let mut client = Client::of(command);
    for position in 1..=10 {
        let line = client.text().await.unwrap();
        assert!(line.starts_with(&format!("{position} ")), "{line}");
    }
    drop(client);
    daemon.stop().await;
}
