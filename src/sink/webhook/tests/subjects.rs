//! Tests concurrent requests against a real server.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::post;
use tokio::sync::Barrier;

use super::*;
use crate::tests::{record, record_about, record_of_another};

fn concurrent(url: &Url, concurrency: usize) -> Webhook {
    made(WebhookSettings { dispatch: Dispatch::Single { concurrency }, ..settings(url) }).unwrap()
}

/// Records at the offsets 1, 2, 3 and so on, one about each of these wallets.
fn about(wallets: &[&str]) -> Vec<Message> {
    (1..).zip(wallets).map(|(offset, wallet)| record_about(&channel(1), offset, wallet)).collect()
}

fn offsets(server: &Server) -> Vec<i64> {
    let offset = |body: &Bytes| serde_json::from_slice::<serde_json::Value>(body).unwrap()["offset"].as_i64().unwrap();
    server.bodies().iter().map(offset).collect()
}

fn beyond(refused: &Undelivered) -> Vec<i64> {
    refused.beyond.iter().map(|key| key.offset.get()).collect()
}

fn is_of(wallet: &str) -> impl Fn(&[u8]) -> bool {
    let needle = format!("\"wallet_id\":\"{wallet}\"");
    move |body| String::from_utf8_lossy(body).contains(&needle)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_is_bounded() {
    let (pair, now, most) = (Barrier::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = Arc::new((pair, now, most));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let counted = counts.clone();
    let together = move || async move {
        let (pair, now, most) = &*counted;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // A request gets no response until a second one is in progress.
        pair.wait().await;
        now.fetch_sub(1, Ordering::SeqCst);
    };
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(together))).await });

    let batch = about(&["a", "b", "c", "d", "e", "f", "a", "b", "c", "d", "e", "f"]);
    deliver(&concurrent(&url, 2), &channel(1), &batch).await.unwrap();

    assert_eq!(counts.2.load(Ordering::SeqCst), 2);
    serving.abort();
}

#[tokio::test]
async fn a_refused_event_delays_its_subject_and_accepted_ones_are_reported() {
    let server = Server::answering([]).await;
    server.refuse(|body| is_of("b")(body), Reply::Status(400, &[]));
    let batch = about(&["a", "b", "a", "b", "c", "a"]);

    let refused = deliver(&concurrent(&server.url, 3), &channel(1), &batch).await.unwrap_err();

    assert_eq!(refusal(&refused), (1, "answered 400", None));
    assert_eq!(beyond(&refused), [3, 5, 6]);
    let posted = offsets(&server);
    assert!(!posted.contains(&4), "no event is posted after the refused one: {posted:?}");
    assert!(posted.iter().filter(|offset| [1, 3, 6].contains(*offset)).is_sorted(), "{posted:?}");
}

#[tokio::test]
async fn of_two_events_at_one_offset_only_the_accepted_one_has_arrived() {
    let server = Server::answering([]).await;
    let twins = [record(&channel(1), 1), record_of_another(&channel(1), 1)];
    assert!(twins[1].record().key().starts_with('8') && !twins[0].record().key().starts_with('8'));
    server.refuse(|body| String::from_utf8_lossy(body).contains(r#""event_id":"8"#), Reply::Status(400, &[]));

    let refused = deliver(&concurrent(&server.url, 2), &channel(1), &twins).await.unwrap_err();

    assert_eq!(refusal(&refused), (1, "answered 400", None));
    assert_eq!(beyond(&refused), Vec::<i64>::new());
}

#[tokio::test]
async fn events_without_a_subject_keep_the_order_of_their_type() {
    let server = Server::answering([]).await;
    let webhook = concurrent(&server.url, 8);
    deliver(&webhook, &channel(1), &records(&channel(1), 1..20)).await.unwrap();
    assert_eq!(offsets(&server), (1..20).collect::<Vec<_>>());
    assert_eq!(webhook.at_once(), 64);
}

#[tokio::test]
async fn a_failure_of_the_endpoint_ends_the_delivery() {
    for (answer, message) in [
        (Reply::Status(410, &[]), "answered 410: it accepts no more events"),
        (Reply::Status(429, &[]), "answered 429"),
        (Reply::Status(503, &[("retry-after", "3")]), "answered 503"),
    ] {
        let server = Server::answering([]).await;
        server.refuse(|body| is_of("a")(body) || is_of("b")(body), answer);
        let batch = about(&["a", "b", "c", "d", "e", "f", "g", "h"]);

        let refused = deliver(&concurrent(&server.url, 2), &channel(1), &batch).await.unwrap_err();

        let (delivered, said, _) = refusal(&refused);
        assert!(delivered == 0 && said.starts_with(message), "{said}");
        assert!(server.requests().len() <= 2, "only the requests that started together");
    }
}

#[tokio::test]
async fn gone_takes_precedence_over_an_earlier_refusal() {
    let server = Server::answering([]).await;
    server.refuse(|body| is_of("b")(body), Reply::Status(410, &[]));
    server.seen.lock().unwrap().answers.push_back(Reply::Status(500, &[]));
    let refused = deliver(&concurrent(&server.url, 2), &channel(1), &about(&["a", "b"])).await.unwrap_err();
    assert!(matches!(refused.error, SinkError::Gone { .. }), "{refused:?}");
}
