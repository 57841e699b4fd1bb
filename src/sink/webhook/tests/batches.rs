//! Tests batches against a real server.

use super::*;
use crate::tests::{lines, record, shaped};
use record::{Format, Shape};

fn batching(server: &Server, events: usize, bytes: usize) -> Webhook {
    let dispatch = Dispatch::Batches { events, bytes, wait: Duration::ZERO };
    made(WebhookSettings { dispatch, ..settings(&server.url) }).unwrap()
}

fn ids(server: &Server) -> Vec<String> {
    server.requests().iter().map(|(headers, _)| header(headers, "webhook-id").to_owned()).collect()
}

#[tokio::test]
async fn a_batch_is_an_array_of_single_bodies() {
    let server = Server::answering([]).await;
    let webhook = batching(&server, 3, usize::MAX);
    let batch = records(&channel(1), 1..8);
    assert_eq!(webhook.at_once(), 3);

    deliver(&webhook, &channel(1), &batch).await.unwrap();

    let array = |of: &[Message]| format!("[{}]", of.iter().map(text).collect::<Vec<_>>().join(","));
    assert_eq!(server.bodies(), [array(&batch[..3]), array(&batch[3..6]), array(&batch[6..])]);
    assert!(server.requests().iter().all(|(headers, _)| header(headers, "content-type") == "application/json"));
}

fn text(message: &Message) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

#[tokio::test]
async fn a_batch_of_cloud_events_has_their_media_type() {
    let server = Server::answering([]).await;
    let shape = Shape { format: Format::CloudEvents, ..Shape::default() };
    let batch = [Message::new(&Arc::new(record(&channel(1), 1).record().clone()), &shape)];
    deliver(&batching(&server, 3, usize::MAX), &channel(1), &batch).await.unwrap();
    assert_eq!(header(&server.requests()[0].0, "content-type"), "application/cloudevents-batch+json");
}

#[tokio::test]
async fn a_batch_obeys_its_limit_unless_one_event_exceeds_it() {
    let server = Server::answering([]).await;
    let batch = records(&channel(1), 1..7);
    let one = batch[0].body().len();
    // Exactly two events, with the comma between them and the brackets around them.
    deliver(&batching(&server, 10, 2 * one + 3), &channel(1), &batch).await.unwrap();
    deliver(&batching(&server, 10, 2 * one + 2), &channel(1), &batch[..2]).await.unwrap();
    deliver(&batching(&server, 10, 1), &channel(1), &batch[..2]).await.unwrap();
    let sizes: Vec<_> = server.bodies().iter().map(|body| body.len().div_ceil(one + 2)).collect();
    assert_eq!(sizes, [2, 2, 2, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_batch_keeps_its_unique_id() {
    let server = Server::answering([Reply::Status(204, &[]), Reply::Status(503, &[])]).await;
    let webhook = batching(&server, 2, usize::MAX);
    let batch = records(&channel(1), 1..5);

    let refused = deliver(&webhook, &channel(1), &batch).await.unwrap_err();
    assert_eq!(refusal(&refused), (2, "answered 503", None));
    deliver(&webhook, &channel(1), &batch[2..]).await.unwrap();
    // A new sink, as after a restart, and then other batches of the same events.
    deliver(&batching(&server, 2, usize::MAX), &channel(1), &batch[2..]).await.unwrap();
    for other in [&batch[..1], &batch[1..3], &batch[..4]] {
        deliver(&batching(&server, 9, usize::MAX), &channel(1), other).await.unwrap();
    }

    let ids = ids(&server);
    assert!(ids[1] == ids[2] && ids[2] == ids[3], "{ids:?}");
    let event = batch[0].record().key();
    let distinct: std::collections::BTreeSet<_> = ids.iter().chain([&event]).collect();
    assert_eq!(distinct.len(), 6, "the id of a batch of one event differs from the id of the event: {ids:?}");
}

#[tokio::test]
async fn lines_are_batched_as_lines() {
    let server = Server::answering([]).await;
    let batch: Vec<_> = records(&channel(1), 1..4).iter().map(|record| shaped(record, Format::Text)).collect();
    deliver(&batching(&server, 10, 10_000), &channel(1), &batch).await.unwrap();
    let (headers, body) = server.requests().remove(0);
    assert_eq!(header(&headers, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(body, lines(&batch));
}

#[tokio::test]
async fn a_batch_without_an_answer_in_time_becomes_smaller_until_one_succeeds() {
    let server = Server::answering([Reply::Never, Reply::Never]).await;
    let dispatch = Dispatch::Batches { events: 8, bytes: usize::MAX, wait: Duration::ZERO };
    let timeout = Duration::from_millis(100);
    let webhook = made(WebhookSettings { dispatch, timeout, ..settings(&server.url) }).unwrap();
    let batch = records(&channel(1), 1..9);
    for _ in 0..2 {
        let refused = deliver(&webhook, &channel(1), &batch).await.unwrap_err();
        assert_eq!(refusal(&refused), (0, "did not answer within 100ms", None));
    }
    deliver(&webhook, &channel(1), &batch).await.unwrap();
    deliver(&webhook, &channel(1), &batch).await.unwrap();
    let events = |body: &Bytes| serde_json::from_slice::<Vec<serde_json::Value>>(body).unwrap().len();
    let sizes: Vec<_> = server.bodies().iter().map(events).collect();
    // Two batches without an answer, then quarters. Halves so soon would not be answered either, and repeat their events.
    assert_eq!(sizes, [8, 4, 2, 2, 2, 2, 2, 2, 2, 2]);
}

#[tokio::test]
async fn a_batch_is_halved_if_one_of_its_events_may_be_the_cause_of_the_refusal() {
    for status in [400, 401, 403, 404, 405, 406, 409, 415, 422, 451, 500] {
        let server = Server::answering([]).await;
        server.refuse(|body| String::from_utf8_lossy(body).contains(r#""offset":6,"#), Reply::Status(status, &[]));
        let batch = records(&channel(1), 1..9);
        let refused = deliver(&batching(&server, 8, usize::MAX), &channel(1), &batch).await.unwrap_err();
        assert_eq!(refused.delivered, 5, "{status}: the events before the refused one have arrived");
    }
    for status in [302, 429, 501, 502, 503] {
        let server = Server::answering([Reply::Status(status, &[])]).await;
        let batch = records(&channel(1), 1..9);
        deliver(&batching(&server, 8, usize::MAX), &channel(1), &batch).await.unwrap_err();
        assert_eq!(server.requests().len(), 1, "{status}: the endpoint refuses every request");
    }
}

#[tokio::test]
async fn a_batch_for_which_a_proxy_reports_a_timeout_becomes_smaller() {
    for status in [408, 504] {
        let server = Server::answering([Reply::Status(status, &[])]).await;
        let (webhook, batch) = (batching(&server, 8, usize::MAX), records(&channel(1), 1..9));
        deliver(&webhook, &channel(1), &batch).await.unwrap_err();
        deliver(&webhook, &channel(1), &batch).await.unwrap();
        let events = |body: &Bytes| serde_json::from_slice::<Vec<serde_json::Value>>(body).unwrap().len();
        assert_eq!(server.bodies().iter().map(events).collect::<Vec<_>>(), [8, 4, 4], "{status}");
    }
}
