//! Tests webhooks against a real server on a real socket.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderMap};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use url::Url;

use super::response::DRAINING;
use super::*;
use crate::tests::{channel, deliver, record_without_id, records};
use net::http::{self, ConnectionSettings};
use record::Message;
use telemetry::metrics::Metrics;

mod batches;
mod pause;
mod subjects;
mod unreadable;

const TIMEOUT: Duration = Duration::from_secs(10);

/// How the server responds to a request.
#[derive(Clone, Copy)]
enum Reply {
    Status(u16, &'static [(&'static str, &'static str)]),
    Never,
    EndlessBody(u16),
    StalledBody(u16),
}

/// A predicate for request bodies.
type BodyPredicate = fn(&[u8]) -> bool;

/// A server that answers requests with the given answers in turn, and with 204 after the last one.
struct Server {
    url: Url,
    seen: Arc<Mutex<ServerState>>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct ServerState {
    answers: VecDeque<Reply>,
    refused: Option<(BodyPredicate, Reply)>,
    requests: Vec<(HeaderMap, Bytes)>,
}

impl Server {
    async fn answering(answers: impl IntoIterator<Item = Reply>) -> Self {
        let seen = ServerState { answers: answers.into_iter().collect(), ..ServerState::default() };
        let seen = Arc::new(Mutex::new(seen));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap()).parse().unwrap();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&seen));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, seen, serving }
    }

    /// Sets the answer to every request whose body matches.
    fn refuse(&self, body: BodyPredicate, answer: Reply) {
        self.seen.lock().unwrap().refused = Some((body, answer));
    }

    fn webhook(&self) -> Webhook {
        made(settings(&self.url)).unwrap()
    }

    fn requests(&self) -> Vec<(HeaderMap, Bytes)> {
        self.seen.lock().unwrap().requests.clone()
    }

    fn bodies(&self) -> Vec<Bytes> {
        self.requests().into_iter().map(|(_, body)| body).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn made(settings: WebhookSettings) -> Result<Webhook, SinkError> {
    Webhook::new(settings, Metrics::default())
}

fn settings(url: &Url) -> WebhookSettings {
    WebhookSettings {
        url: url.clone(),
        secret_url: false,
        keys: SigningKeys::default(),
        headers: HeaderMap::new(),
        connection: ConnectionSettings::default(),
        timeout: TIMEOUT,
        dispatch: Dispatch::default(),
        oauth2: None,
        compression: None,
        rate: None,
    }
}

async fn answer(
    State(seen): State<Arc<Mutex<ServerState>>>,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let answer = {
        let mut seen = seen.lock().unwrap();
        let refused = seen.refused.filter(|(refused, _)| refused(&body)).map(|(_, answer)| answer);
        seen.requests.push((headers, body));
        refused.or_else(|| seen.answers.pop_front()).unwrap_or(Reply::Status(204, &[]))
    };
    let respond = |status| axum::response::Response::builder().status(StatusCode::from_u16(status).unwrap());
    match answer {
        Reply::Status(status, headers) => {
            let named = headers.iter().fold(respond(status), |response, (name, value)| response.header(*name, *value));
            named.body(Body::from("some words")).unwrap()
        }
        Reply::Never => std::future::pending().await,
        Reply::EndlessBody(status) => {
            let chunks = futures_util::stream::repeat_with(|| Ok::<_, io::Error>(vec![b'x'; 4096]));
            respond(status).body(Body::from_stream(chunks)).unwrap()
        }
        Reply::StalledBody(status) => {
            let never = futures_util::stream::pending::<Result<Vec<u8>, io::Error>>();
            respond(status).body(Body::from_stream(never)).unwrap()
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap().to_str().unwrap()
}

fn refusal(refused: &Undelivered) -> (usize, &str, Option<Duration>) {
    match &refused.error {
        SinkError::Refused { message, retry_after, .. } => (refused.delivered, message, *retry_after),
        SinkError::Gone(message) => (refused.delivered, message, None),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_event_is_posted_once_and_in_order() {
    let server = Server::answering([]).await;
    let batch = records(&channel(1), 1..20);

    deliver(&server.webhook(), &channel(1), &batch).await.unwrap();

    assert_eq!(server.bodies(), batch.iter().map(|record| record.body().clone()).collect::<Vec<_>>());
    for (headers, _) in server.requests() {
        assert_eq!(header(&headers, "content-type"), "application/json");
        assert_eq!(header(&headers, "user-agent"), concat!("channeld/", env!("CARGO_PKG_VERSION")));
        assert!(headers.get("webhook-signature").is_none());
    }
}

#[tokio::test]
async fn a_refused_event_keeps_its_id_and_accepted_ones_are_not_resent() {
    let ok = || Reply::Status(200, &[]);
    let server = Server::answering([ok(), ok(), Reply::Status(503, &[])]).await;
    let webhook = server.webhook();
    let mut batch = records(&channel(1), 1..4);
    batch.push(record_without_id(&channel(1), 4));

    let refused = deliver(&webhook, &channel(1), &batch).await.unwrap_err();
    assert_eq!(refusal(&refused), (2, "answered 503", None));
    deliver(&webhook, &channel(1), &batch[refused.delivered..]).await.unwrap();

    let ids: Vec<String> = server.requests().iter().map(|(headers, _)| header(headers, "webhook-id").into()).collect();
    let keys: Vec<String> = [0, 1, 2, 2, 3].map(|at: usize| batch[at].record().key()).to_vec();
    assert_eq!(ids, keys);
}

#[tokio::test]
async fn the_signature_is_over_the_bytes_that_were_sent() {
    let server = Server::answering([]).await;
    let secrets = [[1; 24], [2; 24]].map(|key| format!("whsec_{}", STANDARD.encode(key)));
    let keys = SigningKeys::parse(&secrets.join("\n")).unwrap();
    let webhook = made(WebhookSettings { keys, ..settings(&server.url) }).unwrap();

    deliver(&webhook, &channel(1), &records(&channel(1), 1..4)).await.unwrap();

    assert_eq!(server.requests().len(), 3);
    for (headers, body) in server.requests() {
        assert_eq!(header(&headers, "webhook-signature").split(' ').count(), 2);
        for secret in &secrets {
            standardwebhooks::Webhook::new(secret).unwrap().verify(&body, &headers).unwrap();
        }
    }
}

#[tokio::test]
async fn only_2xx_is_success() {
    let hour = Some(http::MAX_RETRY_AFTER);
    for (status, headers, message, retry_after) in [
        (500, &[][..], "answered 500", None),
        (429, &[("retry-after", "7")], "answered 429", Some(Duration::from_secs(7))),
        (503, &[("retry-after", "86400")], "answered 503", hour),
        (
            410,
            &[],
            "answered 410: it accepts no more events, and receives none until it is resumed (channeld resume)",
            None,
        ),
        (400, &[], "answered 400", None),
        (302, &[("location", "/elsewhere")], "answered 302, and redirects are not followed: name the final URL", None),
        (307, &[("location", "/elsewhere")], "answered 307, and redirects are not followed: name the final URL", None),
    ] {
        let server = Server::answering([Reply::Status(status, headers)]).await;
        let refused = deliver(&server.webhook(), &channel(1), &records(&channel(1), 1..3)).await.unwrap_err();
        assert_eq!(refusal(&refused), (0, message, retry_after));
        assert_eq!(server.requests().len(), 1, "{status}");
    }
    for status in [200, 201, 202, 204] {
        let server = Server::answering([Reply::Status(status, &[])]).await;
        deliver(&server.webhook(), &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    }
}

#[tokio::test]
async fn an_unanswered_request_times_out() {
    let server = Server::answering([Reply::Never]).await;
    let timeout = Duration::from_millis(100);
    let webhook = made(WebhookSettings { timeout, ..settings(&server.url) }).unwrap();
    let refused = deliver(&webhook, &channel(1), &records(&channel(1), [1])).await.unwrap_err();
    assert_eq!(refusal(&refused), (0, "did not answer within 100ms", None));
}

/// Serves one connection with this response.
async fn answering_once(response: String) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            client.read_buf(&mut request).await.unwrap();
        }
        client.write_all(response.as_bytes()).await.unwrap();
    });
    url
}

#[tokio::test]
async fn a_success_with_unusual_headers_is_a_success() {
    let many: Vec<_> = (0..500).map(|number| format!("x-{number}: 1\r\n")).collect();
    let many = many.concat();
    for headers in ["x-folded: one\r\n two\r\n", "x-space : 1\r\n", "x-\u{e9}: 1\r\n", "no colon\r\n", &many] {
        let response = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 2\r\n\r\nok");
        let webhook = made(settings(&answering_once(response).await)).unwrap();
        let delivered = deliver(&webhook, &channel(1), &records(&channel(1), [1])).await;
        assert!(delivered.is_ok(), "{headers:.20}: {delivered:?}");
    }
}

#[tokio::test]
async fn an_endless_answer_counts() {
    let server = Server::answering([Reply::EndlessBody(200), Reply::EndlessBody(500)]).await;
    let started = Instant::now();
    let refused = deliver(&server.webhook(), &channel(1), &records(&channel(1), 1..3)).await.unwrap_err();
    assert_eq!(refusal(&refused), (1, "answered 500", None));
    assert!(started.elapsed() < DRAINING, "the limit of bytes ends the reading before the time limit");
}

#[tokio::test]
async fn an_answer_that_stalls_after_its_status_counts() {
    let server = Server::answering([Reply::StalledBody(200)]).await;
    let started = Instant::now();
    deliver(&server.webhook(), &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    assert!(started.elapsed() < TIMEOUT);
}

#[tokio::test]
async fn no_error_shows_the_url() {
    // The socket does not listen, and keeps its port from other tests.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url: Url = format!("http://me:hunter2@{}/path?token=hunter2", socket.local_addr().unwrap()).parse().unwrap();
    let nowhere = "https://me:hunter2@name.invalid/hunter2".parse().unwrap();
    for (url, words) in [(url, "Connection refused"), (nowhere, "")] {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, http::basic("me", "hunter2"))]);
        let webhook = made(WebhookSettings { headers, ..settings(&url) }).unwrap();
        let refused = deliver(&webhook, &channel(1), &records(&channel(1), [1])).await.unwrap_err();
        let (delivered, message, _) = refusal(&refused);
        assert_eq!(delivered, 0);
        assert!(message.starts_with("could not connect: ") && message.contains(words), "{message}");
        assert!(!format!("{refused:?} {:?}", webhook.settings).contains("hunter2"));
    }
}

#[tokio::test]
async fn credentials_in_the_url_are_sent_as_basic_authentication() {
    let server = Server::answering([]).await;
    let mut url = server.url.clone();
    url.set_username("me").unwrap();
    url.set_password(Some("secret")).unwrap();
    let webhook = made(settings(&url)).unwrap();
    deliver(&webhook, &channel(1), &records(&channel(1), [1])).await.unwrap();
    let expected = format!("Basic {}", STANDARD.encode("me:secret"));
    assert_eq!(header(&server.requests()[0].0, "authorization"), expected);
}

#[tokio::test]
async fn configured_headers_are_sent() {
    let server = Server::answering([]).await;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, http::sensitive("Bearer token").unwrap())]);
    let webhook = made(WebhookSettings { headers, ..settings(&server.url) }).unwrap();
    deliver(&webhook, &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    for (headers, _) in server.requests() {
        assert_eq!(header(&headers, "authorization"), "Bearer token");
        assert!(headers.contains_key("webhook-id"));
    }
}

#[tokio::test]
async fn a_private_name_is_not_connected() {
    let server = Server::answering([]).await;
    let connection = ConnectionSettings { public_only: true, ..ConnectionSettings::default() };
    assert!(
        made(WebhookSettings { connection: connection.clone(), ..settings(&server.url) }).is_err(),
        "the URL contains a private address"
    );

    let mut url = server.url.clone();
    url.set_host(Some("localhost")).unwrap();
    let webhook = made(WebhookSettings { connection, ..settings(&url) }).unwrap();
    let refused = deliver(&webhook, &channel(1), &records(&channel(1), [1])).await.unwrap_err();
    let (_, message, _) = refusal(&refused);
    assert!(message.contains("is not a public address, and allow_private is false"), "{message}");
    assert!(refused.error.needs_attention());
    assert!(server.requests().is_empty());
}
