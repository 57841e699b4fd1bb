//! Tokens, certificates and sockets, and the verification on request.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use reqwest::StatusCode;
use serde_json::json;
use simulator::{EventSpec, Kind, Options};

use super::program::Client;
use super::{Feed, ten_events, with_each_client};
use crate::feed::{FeedClient, TOKEN, assert_positions};
use crate::support::{Authority, LONGEST_WAIT, LOOK_AGAIN};

with_each_client![
    a_replaced_token_is_read_again,
    a_wrong_token_is_an_error_at_once,
    a_missing_token_file_and_a_wrong_address_are_errors_at_once,
    events_are_verified_on_request,
    a_client_checks_the_certificate_and_can_use_a_unix_socket,
];

async fn a_replaced_token_is_read_again(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 10).await;
    let task = |action: &str| feed.task(action, &json!({"after": 9, "count": 2}));
    let Some(mut polls) = Client::start(language, &task("events")) else { return };
    let mut streams = Client::start(language, &task("stream")).unwrap();
    assert_positions(&polls.events(1).await, [10]);
    assert_positions(&streams.events(1).await, [10]);
    feed.served.setup.keep_secret("the-next-token-of-ledger");
    feed.served.write_token("ledger", "the-next-token-of-ledger");
    // A client can read the file before the daemon does. The daemon then refuses the new token at first, and later the old one.
    let deadline = Instant::now() + LONGEST_WAIT;
    while direct.get("/channels").await.status != StatusCode::UNAUTHORIZED {
        assert!(Instant::now() < deadline, "{}", daemon.log().tail());
        tokio::time::sleep(LOOK_AGAIN).await;
    }
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

/// No feed is running: the client must find these errors before it connects.
async fn a_missing_token_file_and_a_wrong_address_are_errors_at_once(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let missing = feed.served.setup.path("missing.token");
    for action in ["events", "stream", "consume", "channels"] {
        let task = feed.task(action, &json!({"token_file": missing, "count": 1}));
        let Some(mut client) = Client::start(language, &task) else { return };
        assert_eq!(client.error().await.0, "token", "{action}");
    }
    let address = feed.url.replace("http://", "");
    for url in [address.clone(), format!("ftp://{address}"), "localhost:80".to_owned(), "/run/feed.sock".to_owned()] {
        let task = feed.task("events", &json!({"url": url, "count": 1}));
        assert_eq!(Client::start(language, &task).unwrap().error().await.0, "address", "{url}");
    }
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

/// The clients in the other languages read all lines before they parse one, and compare the numbers.
#[tokio::test]
async fn missing_verdicts_are_an_error_of_the_go_client() {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    FeedClient::of(&mut daemon).await.until(&mut daemon, "c0", 10).await;
    let verdict = r#"{"event_id":"1","status":"verified"}"#;
    for (name, end) in [("killed", "printf '{\"event'; kill -9 $$"), ("short", "exit 0")] {
        let program = feed.served.setup.path(name);
        std::fs::write(&program, format!("#!/bin/sh\ncat > /dev/null\necho '{verdict}'\n{end}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let task = feed.task("verify", &json!({"after": 0, "count": 2, "program": program, "arguments": []}));
        let Some(mut client) = Client::start("go", &task) else { return };
        assert_eq!(client.error().await.0, "verification", "{name}");
    }
    daemon.stop().await;
}

async fn a_client_checks_the_certificate_and_can_use_a_unix_socket(language: &str) {
    let mut feed = Feed::of(ten_events()).await;
    let path = |name: &str| feed.served.setup.path(name);
    let (right, other) = (Authority::new("of the feed"), Authority::new("of another server"));
    let [certificate, key] = right.issue_to("127.0.0.1", &path("feed.pem"), &path("feed.key"));
    let (right, other) = (right.write(&path("right.pem")), other.write(&path("other.pem")));
    let socket = path("feed.sock");
    feed.served.setup.set("feed.tls_certificate", certificate);
    feed.served.setup.set("feed.tls_key", key);
    feed.url = feed.url.replace("http:", "https:");
    let mut daemon = feed.served.setup.start();
    daemon.until_logged("the feed is served").await;
    let task = |authority: &str| feed.task("events", &json!({"ca_file": authority, "count": 10}));
    let Some(mut client) = Client::start(language, &task(&right)) else { return };
    assert_positions(&client.events(10).await, 1..=10);
    assert_eq!(Client::start(language, &task(&other)).unwrap().error().await.0, "tls");
    daemon.stop().await;

    feed.served.setup.remove("feed.tls_certificate");
    feed.served.setup.remove("feed.tls_key");
    let address = format!("unix:{}", socket.display());
    feed.served.setup.set("feed.listen", &*address);
    let mut daemon = feed.served.setup.start();
    daemon.until_logged("the feed is served").await;
    for action in ["events", "stream"] {
        let task = json!({"do": action, "url": address, "count": 10});
        assert_positions(&Client::start(language, &task).unwrap().events(10).await, 1..=10);
    }
    daemon.stop().await;
}
