//! Bounds for clients that are slow, too many, or hostile.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::support::{MAX_WAIT, OPEN, OTHER_TOKEN, TOKEN, ask_on, request, served, served_on, settings};
use crate::listener::BOUNDS;
use crate::{FeedSettings, Listen};
use operator::server::Bounds;

/// More than the buffers of a connection can contain.
const LARGE: usize = 3 << 20;

fn tcp() -> Listen {
    Listen::Tcp(([127, 0, 0, 1], 0).into())
}

#[tokio::test]
async fn too_many_requests_of_a_consumer_or_of_all_are_refused_until_one_ends() {
    let settings = FeedSettings { connections: 2, connections_per_consumer: 1, ..settings() };
    served(settings, async |feed| {
        let request = request("GET", "/v1/channels/open/stream", &format!("Authorization: Bearer {TOKEN}\r\n"), "");
        let mut first = feed.connect().await;
        first.write_all(request.as_bytes()).await.unwrap();
        feed.until_waiting(1).await;
        let refused = feed.get("/v1/channels").await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));

        let other = request_of_other();
        let mut second = feed.connect().await;
        second.write_all(other.as_bytes()).await.unwrap();
        feed.until_waiting(2).await;
        assert_eq!(feed.get("/v1/channels").await.status, 503, "the limit for all comes first");

        drop((first, second));
        feed.until_waiting(0).await;
        let freed = async { while feed.get("/v1/channels").await.status != 200 {} };
        timeout(MAX_WAIT, freed).await.expect("a request that has ended does not count");
    })
    .await;
}

fn request_of_other() -> String {
    request("GET", "/v1/channels/open/stream", &format!("Authorization: Bearer {OTHER_TOKEN}\r\n"), "")
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_its_memory_is_freed() {
    let bounds = Bounds { each_step: Duration::from_secs(2), ..BOUNDS };
    let settings = FeedSettings { connections_per_consumer: 1, ..settings() };
    served_on(&tcp(), bounds, settings, async |feed| {
        let record = format!("{{\"event_id\":\"{}\"}}", "x".repeat(LARGE));
        for _ in 0..10 {
            feed.table.deliver_record(OPEN, &record);
        }
        let headers = format!("Authorization: Bearer {TOKEN}\r\n");
        let mut deaf = feed.connect().await;
        deaf.write_all(request("GET", "/v1/channels/open/stream?after=0", &headers, "").as_bytes()).await.unwrap();
        feed.until_waiting(1).await;
        let next = async { while feed.get("/v1/channels").await.status != 200 {} };
        timeout(MAX_WAIT, next).await.expect("the deaf client does not count for ever");
        let mut rest = Vec::new();
        // The connection may also be reset.
        let _ = timeout(MAX_WAIT, deaf.read_to_end(&mut rest)).await.expect("the connection is closed");
        assert!(rest.len() < 10 * LARGE, "the stream was cut off");
    })
    .await;
}

#[tokio::test]
async fn an_answer_has_at_most_four_mebibytes_and_at_least_one_event() {
    served(settings(), async |feed| {
        for size in [1 << 20, 1 << 20, 1 << 20, 1 << 20, 5 << 20, 1] {
            feed.table.deliver_record(OPEN, &format!("{{\"event_id\":\"{}\"}}", "x".repeat(size)));
        }
        for (after, expected) in [(0, vec![1, 2, 3]), (3, vec![4]), (4, vec![5]), (5, vec![6])] {
            let answer = feed.get(&format!("/v1/channels/open/events?after={after}")).await;
            assert_eq!(answer.positions(), expected, "after {after}");
        }
    })
    .await;
}

#[tokio::test]
async fn malformed_and_huge_requests_are_refused() {
    served(settings(), async |feed| {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let many = "X: x\r\n".repeat(200);
        let long = format!("X: {}\r\n", "x".repeat(64 << 10));
        let two_lengths = "Content-Length: 4\r\n";
        for (headers, status) in [(&*many, 431), (&*long, 431), (two_lengths, 400)] {
            let mut client = feed.connect().await;
            let asked = request("GET", "/v1/channels", &format!("{token}{headers}"), "");
            // The server may close the connection before it has read everything.
            let _ = client.write_all(asked.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = timeout(MAX_WAIT, client.read_to_end(&mut answer)).await.expect("the connection is closed");
            let answer = String::from_utf8_lossy(&answer);
            let is_refused = answer.starts_with(&format!("HTTP/1.1 {status} "));
            assert!(is_refused || answer.is_empty(), "{answer}");
        }
        let smuggled =
            request("GET", "/v1/channels", &token, "") + &request("GET", "/v1/channels/closed/events", &token, "");
        let answer = ask_on(&mut feed.connect().await, &smuggled).await;
        assert_eq!(
            (answer.status, answer.body.matches("HTTP/1.1").count()),
            (200, 0),
            "only the first request is answered"
        );
        assert_eq!(feed.get("/v1/channels").await.status, 200, "others are served");
    })
    .await;
}
