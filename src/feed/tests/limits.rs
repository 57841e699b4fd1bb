//! Bounds for clients that are slow, too many, or hostile.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::support::{
    MAX_WAIT, OPEN, OTHER_TOKEN, TOKEN, TestFeed, answer_of, ask_on, request, served, served_on, settings,
};
use crate::listener::BOUNDS;
use crate::{FeedSettings, Listen, TokenHash};
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
        let first = feed.open_stream(TOKEN).await;
        feed.until_waiting(1).await;
        let refused = feed.get("/v1/channels").await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));

        let second = feed.open_stream(OTHER_TOKEN).await;
        feed.until_waiting(2).await;
        assert_eq!(feed.get("/v1/channels").await.status, 503, "the limit for all comes first");

        drop((first, second));
        feed.until_waiting(0).await;
        let freed = async { while feed.get("/v1/channels").await.status != 200 {} };
        timeout(MAX_WAIT, freed).await.expect("a request that has ended does not count");
    })
    .await;
}

#[tokio::test]
async fn all_tokens_of_a_consumer_share_its_limit() {
    let mut settings = FeedSettings { connections_per_consumer: 1, ..settings() };
    settings.consumers[0].tokens.push(TokenHash::of("the-next-token-of-ledger"));
    served(settings, async |feed| {
        let _first = feed.open_stream(TOKEN).await;
        feed.until_waiting(1).await;
        let refused = feed.ask("GET", "/v1/channels", Some("the-next-token-of-ledger"), "").await;
        assert_eq!(refused.status, 429);
    })
    .await;
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
async fn a_leased_record_that_is_larger_than_an_answer_uses_memory() {
    served(settings(), async |feed| {
        // A consumer can use 32 MiB, and each request needs 4 MiB before it reads.
        feed.table.deliver_record(OPEN, &format!("{{\"event_id\":\"{}\"}}", "x".repeat(30 << 20)));
        feed.table.deliver(OPEN, 1);
        let headers = format!("Authorization: Bearer {TOKEN}\r\n");
        let mut deaf = feed.connect().await;
        deaf.write_all(request("POST", "/v1/consumers/ledger/open/lease", &headers, "").as_bytes()).await.unwrap();
        timeout(MAX_WAIT, deaf.read_exact(&mut [0])).await.expect("the answer begins").unwrap();
        let next = async || feed.get("/v1/channels/open/events?after=1").await;
        assert!(timeout(Duration::from_millis(300), next()).await.is_err(), "the lease uses the memory");
        drop(deaf);
        assert_eq!(timeout(MAX_WAIT, next()).await.expect("the memory is free again").positions(), [2]);
    })
    .await;
}

/// How the server refused a request.
#[derive(Debug, PartialEq)]
enum Refusal {
    Status(u16),
    /// The connection was closed or reset before an answer arrived.
    Closed,
}

/// Sends a request that the server must refuse. Reads while it sends, because the server may answer and close the connection
/// before it has received the whole request.
async fn refusal(feed: &TestFeed, asked: &str) -> Refusal {
    let (mut reading, mut writing) = feed.connect().await.into_split();
    let mut answer = Vec::new();
    let exchange = async {
        // Fails if the server has closed the connection.
        let (_, _) = tokio::join!(writing.write_all(asked.as_bytes()), reading.read_to_end(&mut answer));
    };
    timeout(MAX_WAIT, exchange).await.expect("the connection is closed");
    match str::from_utf8(&answer).unwrap() {
        "" => Refusal::Closed,
        answer => Refusal::Status(answer_of(answer).status),
    }
}

#[tokio::test]
async fn malformed_and_huge_requests_are_refused() {
    served(settings(), async |feed| {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let of = |headers: &str| request("GET", "/v1/channels", &format!("{token}{headers}"), "");
        // The server reads these requests completely.
        for (headers, status) in [
            ("X: x\r\n".repeat(200), 431),
            ("Content-Length: 4\r\n".to_owned(), 400),
            ("Transfer-Encoding: identity\r\n".to_owned(), 400),
            ("X : x\r\n".to_owned(), 400),
            ("X: x\r\n folded\r\n".to_owned(), 400),
            ("X: \0\r\n".to_owned(), 400),
        ] {
            assert_eq!(refusal(feed, &of(&headers)).await, Refusal::Status(status), "{headers:?}");
        }
        // The server closes the connection before it has read everything, so its answer can be lost.
        let long = format!("X: {}\r\n", "x".repeat(64 << 10));
        for asked in
            [of(&long), of(&"X: x\r\n".repeat(16 << 10)), format!("GET /{}", "x".repeat(1 << 20)), "x".repeat(1 << 20)]
        {
            let refused = refusal(feed, &asked).await;
            let allowed = [Refusal::Status(431), Refusal::Status(414), Refusal::Status(400), Refusal::Closed];
            assert!(allowed.contains(&refused), "{}: {refused:?}", &asked[..40]);
        }
        let smuggled = of("") + &request("GET", "/v1/channels/closed/events", &token, "");
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
