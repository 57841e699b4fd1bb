//! Only a client with a valid token is answered, and only about its channels.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use reqwest::StatusCode;
use serde_json::Value;
use simulator::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

use super::{FeedClient, FeedEvent, Served, TOKEN, assert_positions, assert_problem};
use crate::config::check::connect;
use crate::support::{LONGEST_WAIT, LOOK_AGAIN, free_address};

const OTHER: &str = "token-of-other-never-to-be-shown";

/// Two channels. The consumer `other` may read only the second one.
async fn two_channels() -> Served {
    let mut served = Served::by("sqlite", Options { channels: 2, events: 3, ..Options::default() }).await.unwrap();
    served.add_consumer("other", OTHER, &["c1"]);
    served
}

#[tokio::test]
async fn a_token_is_required_and_allows_only_its_channels_and_its_consumer() {
    let served = two_channels().await;
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    let other = client.with_token(Some(OTHER));
    for token in [None, Some("token-of-nobody-at-all"), Some(""), Some(&TOKEN[1..])] {
        for path in ["/channels", "/channels/c0/events", "/channels/nowhere/events", "/channels/c1/stream", "/nowhere"]
        {
            let answer = client.with_token(token).get(path).await;
            assert_problem(&answer, StatusCode::UNAUTHORIZED, "no-token");
        }
        let answer = client.with_token(token).post("/consumers/ledger/c0/lease", &Value::Null).await;
        assert_problem(&answer, StatusCode::UNAUTHORIZED, "no-token");
    }
    let refused = "a request to the feed has no valid token: refused";
    daemon.until_logged(refused).await;
    let peer = daemon.log().lines(refused)[0]["peer"].clone();
    assert!(peer.as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{peer}");
    client.until(&mut daemon, "c1", 3).await;
    let listed = other.get("/channels").await.json();
    let names: Vec<_> = listed["channels"].as_array().unwrap().iter().map(|channel| &channel["name"]).collect();
    assert_eq!(names, ["c1"]);
    assert_positions(&other.read("c1", 0, 10).await, 1..=3);
    for path in ["/channels/c0/events", "/channels/c0/stream"] {
        assert_problem(&other.get(path).await, StatusCode::FORBIDDEN, "not-allowed");
    }
    for path in ["/consumers/other/c0/lease", "/consumers/ledger/c1/lease"] {
        assert_problem(&other.post(path, &Value::Null).await, StatusCode::FORBIDDEN, "not-allowed");
    }
    for path in ["/channels/c2/events", "/channels/C0/stream", "/nowhere"] {
        assert_problem(&client.get(path).await, StatusCode::NOT_FOUND, "not-found");
    }
    assert_problem(&client.post("/consumers/ledger/c2/lease", &Value::Null).await, StatusCode::NOT_FOUND, "not-found");
    daemon.stop().await;
}

/// The answer to a request without a token.
pub(crate) async fn ask_socket(socket: &Path, path: &str) -> String {
    let mut client = UnixStream::connect(socket).await.unwrap();
    let request = format!("GET /v1{path} HTTP/1.1\r\nHost: feed\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_owner_of_a_unix_socket_needs_no_token_and_a_killed_daemon_leaves_no_obstacle() {
    let mut served = two_channels().await;
    let socket = served.setup.path("feed.sock");
    served.setup.set("feed.listen", format!("unix:{}", socket.display()));
    for _ in 0..2 {
        let mut daemon = served.setup.start();
        daemon.until_logged("the feed is served").await;
        assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let answer = ask_socket(&socket, "/channels/c1/events?after=0&wait=60s").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("{\"position\":1,"), "{answer}");
        daemon.kill().await;
    }
    let mut daemon = served.setup.start();
    daemon.until_logged("the feed is served").await;
    daemon.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_replaced_token_is_valid_from_the_next_look_at_its_file() {
    let mut served = two_channels().await;
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    let next = client.with_token(Some("the-next-token-of-ledger"));
    assert_problem(&next.get("/channels").await, StatusCode::UNAUTHORIZED, "no-token");
    client.until(&mut daemon, "c0", 3).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.get("/channels/c0/events?after=3&wait=60s").await }
    });
    served.setup.keep_secret("the-next-token-of-ledger");
    served.write_token("ledger", "the-next-token-of-ledger");
    let deadline = Instant::now() + LONGEST_WAIT;
    while next.get("/channels").await.status != StatusCode::OK {
        assert!(Instant::now() < deadline, "{}", daemon.log().tail());
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    assert_problem(&client.get("/channels").await, StatusCode::UNAUTHORIZED, "no-token");
    assert_problem(&waiting.await.unwrap(), StatusCode::UNAUTHORIZED, "no-token");
    assert_positions(&next.read("c0", 0, 10).await, 1..=3);
    daemon.stop().await;
}

#[tokio::test]
async fn channels_of_accounts_and_channels_that_were_found_are_served_by_their_names() {
    let mut served = two_channels().await;
    let setup = &mut served.setup;
    let list = served.simulator.announcement().channels.clone();
    setup.set("accounts.fund.requests_per_second", 1_000);
    setup.set("channels.c0.account", "fund");
    // The other channel is found while the daemon runs.
    let name = "simulated-channel-1";
    served.simulator.set_listed(1, false);
    setup.remove("channels.c1");
    setup.remove("feed.consumers.other");
    setup.set("discover.channels", "all");
    setup.set("discover.sinks", vec!["table"]);
    setup.set("discover.start", "earliest");
    setup.set("discover.every", "1s");
    setup.set("feed.consumers.ledger.channels", vec!["c0", name]);

    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 3).await;
    assert_problem(&client.get(&format!("/channels/{name}/events")).await, StatusCode::NOT_FOUND, "not-found");
    served.simulator.set_listed(1, true);
    let deadline = Instant::now() + LONGEST_WAIT;
    let page = loop {
        let answer = client.get(&format!("/channels/{name}/events?after=0&wait=5s")).await;
        if answer.status == StatusCode::OK && answer.json()["events"].as_array().unwrap().len() == 3 {
            break answer.json();
        }
        assert!(Instant::now() < deadline, "{answer:?} {}", daemon.log().tail());
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    assert_positions(&FeedEvent::all(&page["events"]), 1..=3);
    assert_eq!(page["events"][0]["channel_id"], list[1].to_string());
    assert_eq!(client.read("c0", 0, 10).await[0].event["channel_id"], list[0].to_string());
    daemon.stop().await;
}

#[tokio::test]
async fn check_finds_an_address_that_another_program_uses() {
    let mut served = two_channels().await;
    let address = free_address();
    served.setup.set("feed.listen", address.to_string());
    let feed = format!("feed {address}");
    let (code, asked) = connect(&served.setup).await;
    assert!(code == Some(0) && asked.iter().any(|(what, ok, _)| *what == feed && *ok), "{asked:?}");

    let other = TcpListener::bind(address).await.unwrap();
    let (code, asked) = connect(&served.setup).await;
    let (_, ok, said) = asked.iter().find(|(what, ..)| *what == feed).unwrap_or_else(|| panic!("{asked:?}"));
    assert!(code == Some(69) && !ok, "{asked:?}");
    assert!(said.contains("feed.listen: cannot listen on") && said.contains("choose another address"), "{said}");
    drop(other);

    // The daemon of this configuration may listen there.
    let mut daemon = served.setup.start();
    FeedClient::of(&mut daemon).await;
    let (code, asked) = connect(&served.setup).await;
    assert!(code == Some(0), "{asked:?}");
    daemon.stop().await;
}
