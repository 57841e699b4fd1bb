//! Tests the pauses that an endpoint asks for.

use futures_util::FutureExt;

use super::*;
use crate::tests::lane;
use net::turns::Turn;

const PAUSE: [(&str, &str); 1] = [("retry-after", "7")];

#[tokio::test]
async fn a_pause_that_the_endpoint_asks_for_holds_for_every_lane() {
    for status in [429, 503] {
        let server = Server::answering([Reply::Status(status, &PAUSE)]).await;
        let webhook = server.webhook();
        assert_eq!(webhook.pace(&lane(&channel(2))).now_or_never(), Some(()));
        deliver(&webhook, &channel(1), &records(&channel(1), 1..3)).await.unwrap_err();

        let pause = webhook.pause().unwrap();
        assert!(pause > Duration::from_secs(5) && pause <= Duration::from_secs(7), "{status}: {pause:?}");
        for lanes_channel in [1, 2] {
            assert_eq!(webhook.pace(&lane(&channel(lanes_channel))).now_or_never(), None, "{status}");
        }
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_delivery_after_the_operator_resumed_ends_the_pause() {
    let server = Server::answering([Reply::Status(429, &PAUSE)]).await;
    let webhook = server.webhook();
    deliver(&webhook, &channel(1), &records(&channel(1), [1])).await.unwrap_err();
    deliver(&webhook, &channel(1), &records(&channel(1), 1..4)).await.unwrap();
    assert_eq!((webhook.pause(), server.requests().len()), (None, 4));
}

#[tokio::test]
async fn a_delivery_in_progress_stops_when_another_lane_is_told_to_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap()).parse().unwrap();
    let webhook = made(settings(&url)).unwrap();
    // While the endpoint answers the first request, another lane's request is answered 429.
    let turns = webhook.turns.clone();
    let app = Router::new().fallback(move || {
        turns.refused(Turn::now(), Some(Duration::from_secs(7)));
        async { StatusCode::NO_CONTENT }
    });
    let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let refused = deliver(&webhook, &channel(1), &records(&channel(1), 1..4)).await.unwrap_err();
    assert_eq!(refusal(&refused), (1, "the endpoint has asked all requests to wait", None));
    assert!(!refused.error.needs_attention());
    serving.abort();
}

#[tokio::test]
async fn a_refusal_without_a_wait_concerns_one_lane() {
    for status in [429, 503, 500, 422] {
        let server = Server::answering([Reply::Status(status, &[])]).await;
        let webhook = server.webhook();
        deliver(&webhook, &channel(1), &records(&channel(1), [1])).await.unwrap_err();
        assert_eq!(webhook.pause(), None, "{status}");
    }
}
