//! The clients in `deploy/clients`. Each test runs once with each client.

use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};
use simulator::{EventSpec, Honesty, Kind, LateProofs, Options};

use super::reading::NEVER;
use super::{FeedClient, FeedEvent, Served, TOKEN, assert_positions, sorted_offsets};
use crate::support::{Authority, LONGEST_WAIT, LOOK_AGAIN, deliverable, free_address};

mod program;

use program::Client;

/// Defines a test for each client. The function receives the language.
macro_rules! with_each_client {
    ($($test:ident),* $(,)?) => {
        mod python {
            $(#[tokio::test]
            async fn $test() { super::$test("python").await })*
        }
        mod typescript {
            $(#[tokio::test]
            async fn $test() { super::$test("typescript").await })*
        }
        mod go {
            $(#[tokio::test]
            async fn $test() { super::$test("go").await })*
        }
    };
}

with_each_client![
    a_client_lists_channels_and_resumes_at_a_position,
    long_polls_continue_across_a_restart_and_a_late_delivery,
    streams_continue_across_a_restart_and_a_late_delivery,
    a_consumer_commits_after_processing_and_waits_for_the_lease_of_another_client,
    the_events_of_an_expired_lease_come_again,
    a_consumer_continues_across_a_restart,
    deleted_events_are_an_error_with_the_oldest_position,
    a_replaced_token_is_read_again,
    a_wrong_token_is_an_error_at_once,
    events_are_verified_on_request,
    a_client_checks_the_certificate_and_can_use_a_unix_socket,
];

/// A feed whose address is the same after a restart, and what the programs need to use it.
struct Feed {
    served: Served,
    url: String,
}

impl Feed {
    async fn of(options: Options) -> Self {
        let mut served = Served::by("sqlite", options).await.unwrap();
        let address = free_address();
        served.setup.set("feed.listen", address.to_string());
        Self { served, url: format!("http://{address}") }
    }

    /// A task of the program, with more members.
    fn task(&self, action: &str, more: &Value) -> Value {
        let token_file = self.served.setup.path("ledger.token");
        let mut task = json!({"do": action, "url": self.url, "token_file": token_file, "limit": 4});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        task
    }

    fn publish(&self) {
        self.served.simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
    }
}

fn ten_events() -> Options {
    Options { events: 10, ..Options::default() }
}

async fn a_client_lists_channels_and_resumes_at_a_position(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 10).await;
    let Some(mut client) = Client::start(language, &feed.task("channels", &json!({}))) else { return };
    let channels = client.next("channels").await;
    let id = feed.served.simulator.announcement().channels[0].to_string();
    assert_eq!(channels, json!([{"name": "c0", "id": id, "position": 10}]));
    client.ended().await;

    let all = direct.read("c0", 0, 100).await;
    for action in ["events", "stream"] {
        for (after, first) in [(Value::Null, 1), (json!(0), 1), (json!(3), 4)] {
            let task = feed.task(action, &json!({"after": after, "count": 6}));
            let mut client = Client::start(language, &task).unwrap();
            let events = client.events(6).await;
            assert_positions(&events, first..first + 6);
            assert_eq!(events, all[usize::try_from(first).unwrap() - 1..][..6], "the events are unchanged");
            client.ended().await;
        }
    }
    daemon.stop().await;
}

async fn long_polls_continue_across_a_restart_and_a_late_delivery(language: &str) {
    continues_across_a_restart_and_a_late_delivery(language, "events").await;
}

async fn streams_continue_across_a_restart_and_a_late_delivery(language: &str) {
    continues_across_a_restart_and_a_late_delivery(language, "stream").await;
}

async fn continues_across_a_restart_and_a_late_delivery(language: &str, action: &str) {
    let late_proofs = Some(LateProofs { share: 0.2, delay: NEVER });
    let feed = Feed::of(Options { events: 40, forged: 0.1, late_proofs, ..Options::default() }).await;
    let simulator = &feed.served.simulator;
    let pending: Vec<_> =
        simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty == Honesty::Pending).collect();
    let first = deliverable(simulator, 0);
    assert!(!pending.is_empty() && first.len() + pending.len() < 40, "some are pending, and some are forged");
    let count = first.len() + pending.len() + 1;

    let mut daemon = feed.served.setup.start();
    let Some(mut client) = Client::start(language, &feed.task(action, &json!({"count": count}))) else { return };
    let mut read = client.events(first.len()).await;
    daemon.until_logged("the feed is served").await;
    daemon.kill().await;
    client.until_retry("connection").await;
    for (offset, _) in &pending {
        simulator.prove(0, *offset);
    }
    let daemon = feed.served.setup.start();
    read.extend(client.events(pending.len()).await);
    feed.publish();
    read.extend(client.events(1).await);
    client.ended().await;
    assert_positions(&read, 1..=i64::try_from(count).unwrap());
    assert_eq!(sorted_offsets(&read), deliverable(simulator, 0));
    daemon.stop().await;
}

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
    let cursor = cursor(&feed);
    assert_eq!(cursor, 10, "the events of a failure are not committed");
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
    let feed = Feed::of(ten_events()).await;
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

async fn deleted_events_are_an_error_with_the_oldest_position(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 10).await;
    let Some(mut client) = Client::start(language, &feed.task("consume", &json!({}))) else { return };
    assert_positions(&client.events(4).await, 1..=4);
    feed.served.change("delete from events where position <= 7").await;
    client.answer("commit").await;
    assert_eq!(client.error().await, ("gone".to_owned(), 8));
    for action in ["events", "stream"] {
        let mut client = Client::start(language, &feed.task(action, &json!({"after": 3, "count": 1}))).unwrap();
        assert_eq!(client.error().await, ("gone".to_owned(), 8), "{action}");
        let mut client = Client::start(language, &feed.task(action, &json!({"after": 7, "count": 3}))).unwrap();
        assert_positions(&client.events(3).await, 8..=10);
    }
    // A row in the middle is missing, which channeld never causes.
    feed.served.change("delete from events where position = 9").await;
    for action in ["events", "stream"] {
        let mut client = Client::start(language, &feed.task(action, &json!({"after": 8, "count": 1}))).unwrap();
        assert_eq!(client.error().await.0, "missing-events", "{action}");
    }
    daemon.stop().await;
}

async fn a_replaced_token_is_read_again(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    FeedClient::of(&mut daemon).await.until(&mut daemon, "c0", 10).await;
    let task = |action: &str| feed.task(action, &json!({"after": 9, "count": 2}));
    let Some(mut polls) = Client::start(language, &task("events")) else { return };
    let mut streams = Client::start(language, &task("stream")).unwrap();
    assert_positions(&polls.events(1).await, [10]);
    assert_positions(&streams.events(1).await, [10]);
    feed.served.setup.keep_secret("the-next-token-of-ledger");
    feed.served.write_token("ledger", "the-next-token-of-ledger");
    // The daemon ends the requests with the old token. The clients can be faster than the daemon, whose next look at the file is later.
    polls.until_retry("no-token").await;
    streams.until_retry("no-token").await;
    feed.publish();
    assert_positions(&polls.events(1).await, [11]);
    assert_positions(&streams.events(1).await, [11]);
    daemon.stop().await;
}

async fn a_wrong_token_is_an_error_at_once(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    FeedClient::of(&mut daemon).await;
    let wrong = feed.served.setup.path("wrong.token");
    std::fs::write(&wrong, TOKEN.to_uppercase()).unwrap();
    for action in ["events", "stream", "consume", "channels"] {
        let task = feed.task(action, &json!({"token_file": wrong, "count": 1}));
        let Some(mut client) = Client::start(language, &task) else { return };
        assert_eq!(client.next("error").await["status"], 401, "{action}");
    }
    daemon.stop().await;
}

async fn events_are_verified_on_request(language: &str) {
    let feed = Feed::of(Options { events: 5, ..Options::default() }).await;
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 5).await;
    let config = feed.served.setup.path("channeld.toml");
    let verify = |after: i64, count: i64, more: &[&str]| {
        let arguments: Vec<_> = ["--config", config.to_str().unwrap()].iter().chain(more).copied().collect();
        Client::start(language, &feed.task("verify", &json!({"after": after, "count": count, "arguments": arguments})))
    };
    let Some(mut verified) = verify(0, 5, &[]) else { return };
    assert_eq!(verified.next("verdicts").await, json!(vec!["verified"; 5]));
    // A notice is never signed.
    feed.served.simulator.publish_one(0, EventSpec::Honest(Kind::WalletStatus));
    direct.until(&mut daemon, "c0", 6).await;
    assert_eq!(verify(5, 1, &[]).unwrap().error().await.0, "not-verified");
    assert_eq!(verify(5, 1, &["--allow-unsigned"]).unwrap().next("verdicts").await, json!(["unsigned"]));
    daemon.stop().await;
}

async fn a_client_checks_the_certificate_and_can_use_a_unix_socket(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    let path = |name: &str| feed.served.setup.path(name);
    let (right, other) = (Authority::new("of the feed"), Authority::new("of another server"));
    let [certificate, key] = right.issue_server(&path("feed.pem"), &path("feed.key"));
    let (right, other) = (right.write(&path("right.pem")), other.write(&path("other.pem")));
    let socket = path("feed.sock");
    feed.served.setup.set("feed.tls_certificate", certificate);
    feed.served.setup.set("feed.tls_key", key);
    feed.url = feed.url.replace("http://127.0.0.1", "https://localhost");
    let mut daemon = feed.served.setup.start();
    daemon.until_logged("the feed is served").await;
    let task = |authority: &str| feed.task("events", &json!({"ca_file": authority, "count": 10}));
    let Some(mut client) = Client::start(language, &task(&right)) else { return };
    assert_positions(&client.events(10).await, 1..=10);
    Client::start(language, &task(&other)).unwrap().until_retry("connection").await;
    daemon.stop().await;

    feed.served.setup.remove("feed.tls_certificate");
    feed.served.setup.remove("feed.tls_key");
    let address = unix(&socket);
    feed.served.setup.set("feed.listen", &*address);
    let mut daemon = feed.served.setup.start();
    daemon.until_logged("the feed is served").await;
    for action in ["events", "stream"] {
        let task = json!({"do": action, "url": address, "count": 10});
        assert_positions(&Client::start(language, &task).unwrap().events(10).await, 1..=10);
    }
    daemon.stop().await;
}

fn unix(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}
