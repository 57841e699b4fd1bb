//! Tests the client against a server that answers as badly as real servers and proxies do.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::testing::{KEY, Scripted};
use net::memory::{Memory, Reserved};
use net::turns::Turns;

mod keys;

/// The length of a page.
const LENGTH: usize = 1_000_000;

const PAGE: &str = r#"{"events":[{"headers":{"offset":5}},{"headers":{"offset":3}}],"has_more":true}"#;

fn channel() -> ChannelId {
    "7c9e6679-7425-40de-944b-e07fc1f90ae7".parse().unwrap()
}

fn event_id() -> EventId {
    "d290f1ee-6c54-4b01-90e6-d701748f0851".parse().unwrap()
}

fn answer(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

async fn answering(status: u16, body: impl Into<Vec<u8>>) -> Scripted {
    let body = body.into();
    Scripted::start(move |_| answer(status, body.clone())).await
}

async fn polled(status: u16, body: impl Into<Vec<u8>>) -> Result<Page, ApiError> {
    answering(status, body).await.client().poll(channel(), None, 200).await
}

fn offsets(page: &Page) -> Vec<i64> {
    page.events.iter().map(|event| event.offset.get()).collect()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// The text of an error and its causes, as in a log.
fn said(error: &ApiError) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(format!("{error} {error:?}"), |said, cause| format!("{said} {cause} {cause:?}"))
}

#[track_caller]
fn assert_malformed(error: &ApiError, says: &str) {
    assert!(matches!(error, ApiError::Malformed(bad) if bad.0.starts_with(says)), "{error:?}");
}

#[tokio::test]
async fn requests_follow_the_contract() {
    let service = answering(200, PAGE).await;
    let settings = Settings { base_url: format!("{}//", service.base_url).parse().unwrap(), ..service.settings() };
    let client = Client::new(settings).unwrap();
    let filter = Filter {
        types: vec!["watcher.event".into(), "operation.status".into()],
        created: Created { gte: Some(7), lt: Some(9), ..Created::default() },
        services: vec!["a&b".to_owned()],
        ..Filter::default()
    };

    client.poll(channel(), Offset::new(15), 200).await.unwrap();
    client.search(channel(), &filter, 50, None).await.unwrap();
    client.health().await.unwrap();

    let base = "/v1/channels/7c9e6679-7425-40de-944b-e07fc1f90ae7/events";
    let asked = service.asked();
    let query = "type=watcher.event&type=operation.status&created.gte=7&created.lt=9&service=a%26b&limit=50";
    let paths: Vec<_> = asked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, [&format!("{base}?limit=200&offset=15"), &format!("{base}/search?{query}"), "/v1/health-check"]);
    for (path, headers) in &asked {
        assert_eq!(headers["accept"], "application/json");
        assert_eq!(headers["accept-encoding"], "gzip");
        assert_eq!(headers["user-agent"], concat!("channeld/", env!("CARGO_PKG_VERSION")));
        let key = headers.get("authorization").map(|key| key.to_str().unwrap());
        assert_eq!(key, (!path.contains("health")).then_some("Apikey k3y-secret"), "health is asked without the key");
    }
}

#[tokio::test]
async fn each_resource_has_its_own_path() {
    let (client, service) = answering(200, "{}").await.client_and_server();
    // The answers do not matter here.
    let _ = client.event(channel(), event_id()).await;
    let _ = client.watcher(channel(), event_id().0).await;
    let _ = client.channels().await;
    let _ = client.network_names().await;
    let of_channel = "/v1/channels/7c9e6679-7425-40de-944b-e07fc1f90ae7";
    let expected = [
        format!("{of_channel}/events/search/{}", event_id()),
        format!("{of_channel}/watchers/{}", event_id()),
        "/v1/channels?limit=100&offset=0".to_owned(),
        "/v1/networks".to_owned(),
    ];
    assert_eq!(service.asked().iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_page_keeps_every_record_byte_for_byte() {
    let body = "{\"new\":1, \"has_more\":false,\"events\":[ {\"headers\" : {\"offset\":9,\"x\":1e400}, \"π\":\"€\"} ,\n\
                {\"headers\":{\"offset\":0},\"event_id\":\"d290f1ee-6c54-4b01-90e6-d701748f0851\"}]}\n";
    let page = polled(200, body).await.unwrap();
    assert!(!page.has_more);
    assert_eq!(page.events[0].json, "{\"headers\" : {\"offset\":9,\"x\":1e400}, \"π\":\"€\"}");
    assert_eq!((offsets(&page), page.events[1].id), (vec![9, 0], Some(event_id())));
}

#[tokio::test]
async fn one_malformed_record_costs_only_itself() {
    let body = r#"{"events":[{"headers":{"offset":3}},{"headers":{"offset":"2"},"payload":7}],"has_more":true}"#;
    assert!(
        matches!(polled(200, body).await, Err(ApiError::Malformed(bad)) if bad.0 == "record 1 of the page has no readable offset")
    );
    let body =
        r#"{"events":[{"headers":{"offset":3}},{"headers":{"offset":2},"event_id":[],"payload":7}],"has_more":true}"#;
    assert_eq!(offsets(&polled(200, body).await.unwrap()), [3, 2]);
}

#[tokio::test]
async fn invalid_utf8_survives_and_spoils_no_other_record() {
    let mut body = "{\"events\":[{\"headers\":{\"offset\":3},\"a\":\"é€\"},{\"headers\":{\"offset\":2},\"a\":\""
        .as_bytes()
        .to_vec();
    body.extend_from_slice(
        b"\xff\xc3\x80\x9f\"},{\"headers\":{\"offset\":1},\"a\":\"\xe2\x82\xac\"}],\"has_more\":true}",
    );
    let page = polled(200, body).await.unwrap();
    let records: Vec<&[u8]> = page.events.iter().map(|event| event.json.as_ref()).collect();
    assert_eq!(offsets(&page), [3, 2, 1]);
    assert_eq!(records[0], "{\"headers\":{\"offset\":3},\"a\":\"é€\"}".as_bytes());
    assert_eq!(records[1], b"{\"headers\":{\"offset\":2},\"a\":\"\xff\xc3\x80\x9f\"}");
    assert_eq!(records[2], "{\"headers\":{\"offset\":1},\"a\":\"€\"}".as_bytes());

    let one = answering(200, b" {\"headers\":{\"offset\":2},\"a\":\"\xff\"}\n").await;
    let event = one.client().event(channel(), event_id()).await.unwrap();
    assert_eq!(event.json, &b"{\"headers\":{\"offset\":2},\"a\":\"\xff\"}"[..]);
}

#[tokio::test]
async fn an_answer_that_is_not_a_page_is_malformed_with_the_reason() {
    let many = (0..=MAX_RECORDS).rev().map(|offset| format!(r#"{{"headers":{{"offset":{offset}}}}}"#));
    let many = format!(r#"{{"events":[{}],"has_more":true}}"#, many.collect::<Vec<_>>().join(","));
    for (status, body, expected) in [
        (200, "", "the answer is empty"),
        (204, "", "the answer is empty"),
        (200, "<html><body>Sign in</body></html>", "the answer is not JSON: is there a proxy in between?"),
        (200, &PAGE[..40], "the answer is truncated"),
        (200, &format!("{PAGE}{PAGE}"), "the answer is not JSON: is there a proxy in between?"),
        (200, "[]", "the answer does not have the documented shape"),
        (201, r#"{"events":[]}"#, "the answer does not have the documented shape"),
        (200, r#"{"has_more":false}"#, "the answer does not have the documented shape"),
        (200, r#"{"events":null,"has_more":false}"#, "the answer does not have the documented shape"),
        (200, r#"{"events":[],"has_more":null}"#, "the answer does not have the documented shape"),
        (200, r#"{"events":[],"events":[],"has_more":false}"#, "the answer does not have the documented shape"),
        (200, r#"{"events":[{}],"has_more":false}"#, "record 0 of the page has no readable offset"),
        (
            200,
            &PAGE.replace('3', "5"),
            "the offset of record 1 of the page is not below the offset of the record before it",
        ),
        (
            200,
            &PAGE.replace('3', "6"),
            "the offset of record 1 of the page is not below the offset of the record before it",
        ),
        (200, &many, "the page has too many records"),
        (304, "", "the service answered with a redirect (HTTP 304), which is never followed: is api.base_url correct?"),
        (600, "", "the service answered with the unexpected status 600"),
    ] {
        match polled(status, body).await {
            Err(ApiError::Malformed(bad)) => assert_eq!(bad.to_string(), expected),
            other => panic!("{status} {body:.60}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn more_records_than_requested_are_accepted() {
    let service = answering(200, PAGE).await;
    assert_eq!(offsets(&service.client().poll(channel(), None, 1).await.unwrap()), [5, 3]);
}

#[tokio::test]
async fn the_status_decides_and_a_404_needs_the_envelope() {
    let envelope = r#"{"type":"NOT_FOUND","code":"CHANNEL_NOT_FOUND","message":"no such channel"}"#;
    for body in ["", "<html>", "{\"type\":", envelope, PAGE] {
        for (status, poll, event, health) in [
            if body == envelope {
                (404, "channel-gone", "not-found", "refused")
            } else {
                (404, "malformed", "malformed", "malformed")
            },
            (400, "refused", "refused", "refused"),
            (401, "refused", "refused", "refused"),
            (403, "refused", "refused", "refused"),
            (409, "refused", "refused", "refused"),
            (410, "refused", "refused", "refused"),
            (429, "rate-limited", "rate-limited", "rate-limited"),
            (500, "transient", "transient", "transient"),
            (502, "transient", "transient", "transient"),
            (503, "transient", "transient", "transient"),
            (599, "transient", "transient", "transient"),
            (302, "malformed", "malformed", "malformed"),
        ] {
            let server = answering(status, body).await;
            // After a 429, a client pauses. Each request has a client of its own, so none waits.
            let client = || server.client();
            let kinds = [
                client().poll(channel(), None, 200).await.unwrap_err().kind(),
                client().search(channel(), &Filter::default(), 50, None).await.unwrap_err().kind(),
                client().event(channel(), event_id()).await.unwrap_err().kind(),
                client().watcher(channel(), event_id().0).await.unwrap_err().kind(),
                client().health().await.unwrap_err().kind(),
            ];
            assert_eq!(kinds, [poll, poll, event, event, health], "{status} {body}");
        }
    }
}

#[tokio::test]
async fn the_envelopes_message_reaches_the_operator() {
    let body = r#"{"type":"NOT_FOUND","code":"WATCHER_NOT_FOUND","message":"gone\nfor good"}"#;
    let (client, _server) = answering(404, body).await.client_and_server();
    let error = client.watcher(channel(), event_id().0).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the channel does not contain the requested event or watcher (HTTP 404 WATCHER_NOT_FOUND: gone for good)"
    );
    let ApiError::NotFound(answer) = error else { panic!("{error:?}") };
    assert_eq!(answer.code.as_deref(), Some("WATCHER_NOT_FOUND"));
}

#[tokio::test]
async fn the_code_is_shown_and_decides_nothing() {
    for (status, kind, codes) in [
        (
            404,
            "NOT_FOUND",
            &["CHANNEL", "WALLET", "OPERATION", "WATCHER", "QUERY"].map(|of| format!("{of}_NOT_FOUND"))[..],
        ),
        (409, "CONFLICT", &["RESOURCE_VERSION_CONFLICT".to_owned(), "A_NEW_CODE".to_owned()]),
    ] {
        for code in codes {
            let body = format!(r#"{{"type":"{kind}","code":"{code}","message":"no"}}"#);
            let (client, _server) = answering(status, body).await.client_and_server();
            let error = client.poll(channel(), None, 1).await.unwrap_err();
            assert!(error.to_string().contains(&format!("HTTP {status} {code}: no")), "{error}");
            assert_eq!(matches!(error, ApiError::ChannelGone(_)), status == 404, "{error:?}");
        }
    }
}

#[tokio::test]
async fn no_error_or_debug_text_contains_the_key() {
    let echo = format!(r#"{{"code":"{KEY}","message":"bad key {KEY}","type":"{KEY}"}}"#);
    for (status, body) in [(401, echo.clone()), (500, echo.clone()), (404, echo.clone()), (200, echo)] {
        let (client, server) = answering(status, body).await.client_and_server();
        let error = client.poll(channel(), None, 1).await.unwrap_err();
        let everything = format!("{} {client:?} {:?}", said(&error), server.settings());
        assert!(!everything.contains(KEY), "{everything}");
    }
    let nobody = Settings { base_url: "http://127.0.0.1:9/v1".parse().unwrap(), ..answering(200, "").await.settings() };
    let error = Client::new(nobody).unwrap().poll(channel(), None, 1).await.unwrap_err();
    assert!(!said(&error).contains(KEY), "{}", said(&error));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let service = Scripted::start(|_| {
        Response::builder().status(307).header("location", "/v1/elsewhere").body(Body::empty()).unwrap()
    });
    let service = service.await;
    let error = service.client().poll(channel(), None, 1).await.unwrap_err();
    assert_malformed(&error, "the service answered with a redirect (HTTP 307)");
    assert_eq!(service.asked().len(), 1);
}

#[tokio::test]
async fn retry_after_is_read_from_429_and_5xx() {
    for status in [429, 503] {
        let service = Scripted::start(move |_| {
            Response::builder().status(status).header("retry-after", "7").body(Body::from("<html>")).unwrap()
        });
        let error = service.await.client_and_server().0.poll(channel(), None, 1).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error:?}");
    }
    assert_eq!(polled(429, "").await.unwrap_err().retry_after(), None);
    assert_eq!(polled(404, "").await.unwrap_err().retry_after(), None);
}

#[tokio::test]
async fn a_429_makes_every_channel_wait_but_no_other_status() {
    for (status, waits) in [(429, true), (503, false), (401, false), (200, false)] {
        let service = Scripted::start(move |_| {
            Response::builder().status(status).header("retry-after", "60").body(Body::from(PAGE)).unwrap()
        });
        let (service, turns) = (service.await, Arc::<Turns>::default());
        let [told, other] = [(); 2].map(|()| Caller::of(&turns));
        let client = |caller: &Arc<Caller>| service.client().counted_by(Arc::default(), caller.clone());
        let _ = client(&told).poll(channel(), None, 1).await;

        let (client, filter) = (client(&other), Filter::default());
        // A timeout of zero polls each request once: it begins to wait for its turn.
        let _ = tokio::time::timeout(Duration::ZERO, client.poll(channel(), None, 1)).await;
        assert_eq!(other.waited_until().is_some(), waits, "{status}");
        let mut search = Box::pin(client.search(channel(), &filter, 1, None));
        let mut event = Box::pin(client.event(channel(), event_id()));
        let _ = tokio::time::timeout(Duration::ZERO, async { tokio::join!(&mut search, &mut event) }).await;
        assert_eq!((turns.pause().is_some(), other.waits()), (waits, waits), "{status}");
        if waits {
            assert_eq!(service.asked().len(), 1);
        }
    }
}

#[tokio::test]
async fn the_size_limit_applies_to_the_decompressed_page() {
    let zipped = |body: Vec<u8>| {
        Scripted::start(move |_| {
            Response::builder().header("content-encoding", "gzip").body(Body::from(body.clone())).unwrap()
        })
    };
    let service = zipped(gzip(PAGE.as_bytes())).await;
    assert_eq!(offsets(&service.client().poll(channel(), None, 2).await.unwrap()), [5, 3]);

    let service = zipped(gzip(&vec![0; 1_000_000])).await;
    let client = Client { max_body: 10_000, ..service.client() };
    let error = client.poll(channel(), None, 2).await.unwrap_err();
    assert!(matches!(error, ApiError::TooLong { bytes: 10_000 }), "{error:?}");

    let service = zipped(b"this is no gzip".to_vec()).await;
    let error = service.client().poll(channel(), None, 2).await.unwrap_err();
    assert_malformed(&error, "the answer could not be decompressed");
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let service = answering(200, PAGE).await;
    let exact = Client { max_body: PAGE.len(), ..service.client() };
    exact.poll(channel(), None, 2).await.unwrap();
    let short = Client { max_body: PAGE.len() - 1, ..service.client() };
    let error = short.poll(channel(), None, 2).await.unwrap_err();
    assert!(matches!(error, ApiError::TooLong { .. }), "{error:?}");
}

/// A channel whose guaranteed memory is half a page, while another channel uses all shared memory.
fn short_of_memory() -> (Arc<ChannelMemory>, Reserved) {
    let memory = Arc::<Memory>::default();
    memory.share_among(8 * LENGTH as u64, 2);
    let [busy, short] = [(); 2].map(|()| ChannelMemory::of(&memory));
    (short, busy.exceed(10 * LENGTH))
}

#[tokio::test]
async fn a_page_size_follows_the_free_memory() {
    let (short, in_hand) = short_of_memory();
    let body = format!("{}{PAGE}", " ".repeat(LENGTH - PAGE.len()));
    let service = answering(200, body).await;
    let client = service.client().counted_by(short, Arc::default());
    let error = client.poll(channel(), None, SMALLEST_PAGE + 1).await.unwrap_err();
    assert!(matches!(error, ApiError::TooLong { bytes: LENGTH }), "{error:?}");
    let mut smallest = Box::pin(client.poll(channel(), None, SMALLEST_PAGE));
    tokio::time::timeout(Duration::from_millis(300), &mut smallest).await.unwrap_err();
    drop(in_hand);
    assert_eq!(offsets(&smallest.await.unwrap()), [5, 3]);
}

#[tokio::test]
async fn an_event_is_requested_again_without_free_memory() {
    let (short, _in_hand) = short_of_memory();
    let body = format!("{}{{\"headers\":{{\"offset\":5}}}}", " ".repeat(LENGTH));
    let service = answering(200, body).await;
    let client = service.client().counted_by(short, Arc::default());
    assert_eq!(client.event(channel(), event_id()).await.unwrap().offset.get(), 5);
}

#[tokio::test]
async fn a_broken_connection_is_transient() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"events\":[",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"eve",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 100\r\n\r\n\x1f\x8b\x08\x00",
    ] {
        let service = Scripted::raw(bytes).await;
        let error = service.client().poll(channel(), None, 1).await.unwrap_err();
        assert!(matches!(error, ApiError::Transient(TransientError::Network(_))), "{}", said(&error));
    }
}

#[tokio::test]
async fn a_non_http_server_is_reported() {
    for bytes in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\x15\x03\x03\x00\x02\x02\x0a"] {
        let service = Scripted::raw(bytes).await;
        let error = service.client().poll(channel(), None, 1).await.unwrap_err();
        assert!(error.to_string().contains("does not use plain HTTP"), "{}", said(&error));
    }
    let (client, _server) =
        answering(400, "<html>The plain HTTP request was sent to HTTPS port").await.client_and_server();
    let error = client.poll(channel(), None, 1).await.unwrap_err();
    assert!(error.to_string().contains("should api.base_url begin with https://?"), "{error}");
}

#[tokio::test]
async fn no_connection_and_no_answer_are_transient() {
    let settings = |address: SocketAddr| Settings {
        account: AccountName::default(),
        base_url: format!("http://{address}").parse().unwrap(),
        api_keys: vec![Secret::new(KEY)],
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_millis(100),
    };
    // The socket does not listen, and keeps its port from other tests.
    let gone = tokio::net::TcpSocket::new_v4().unwrap();
    gone.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = Client::new(settings(gone.local_addr().unwrap())).unwrap().health().await.unwrap_err();
    assert_eq!(error.kind(), "transient", "{}", said(&error));

    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let settings = settings(silent.local_addr().unwrap());
    let error = Client::new(settings).unwrap().health().await.unwrap_err();
    assert!(matches!(error, ApiError::Transient(TransientError::Timeout)), "{}", said(&error));
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    // The second connection would never be accepted.
    let once = async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut connection, _) = listener.accept().await.unwrap();
        while connection.read(&mut [0; 4096]).await.unwrap() > 0 {
            connection.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 11\r\n\r\n{\"code\":\"\"}").await.unwrap();
        }
    };
    let second = Duration::from_secs(1);
    let (account, api_keys) = (AccountName::default(), vec![Secret::new(KEY)]);
    let settings = Settings { account, base_url, api_keys, connect_timeout: second, request_timeout: 5 * second };
    let client = Client::new(settings).unwrap();
    // A client of another account uses the same connection.
    let other = AccountName::new("fund");
    let other = client.beside(Settings { account: other, ..(*client.settings).clone() }).unwrap();
    let asking = async {
        for client in [&client, &client, &other] {
            assert_eq!(client.clone().poll(channel(), None, 1).await.unwrap_err().kind(), "channel-gone");
        }
    };
    tokio::select! { () = asking => (), () = once => panic!("the connection was closed") }
}

#[tokio::test]
async fn another_event_than_requested_is_malformed() {
    let body = r#"{"event_id":"00000000-0000-4000-8000-000000000000","headers":{"offset":1}}"#;
    let (client, _server) = answering(200, body).await.client_and_server();
    let error = client.event(channel(), event_id()).await.unwrap_err();
    assert_malformed(&error, "the service answered with a different event than the requested one");
}

#[tokio::test]
async fn a_watcher_is_its_status_and_its_bytes() {
    let body = r#"{"watcher_id":1,"status":"active","new":[]}"#;
    let (client, _server) = answering(200, body).await.client_and_server();
    let watcher = client.watcher(channel(), event_id().0).await.unwrap();
    assert_eq!(watcher.name(), None);
    assert_eq!((watcher.status.as_str(), watcher.status_reason, &watcher.json[..]), ("active", None, body.as_bytes()));
    for (name, read) in [(r#""dvp""#, Some("dvp")), ("7", None), ("null", None)] {
        let body = format!(r#"{{"status":"active","name":{name}}}"#);
        let (client, _server) = answering(200, body).await.client_and_server();
        assert_eq!(client.watcher(channel(), event_id().0).await.unwrap().name().as_deref(), read);
    }
}

#[test]
fn impossible_settings_are_refused() {
    let with = |base_url: &str, api_key: &str| {
        let (api_keys, timeout) = (vec![Secret::new(api_key)], Duration::from_secs(1));
        let (account, base_url) = (AccountName::default(), base_url.parse().unwrap());
        Client::new(Settings { account, base_url, api_keys, connect_timeout: timeout, request_timeout: timeout })
    };
    for url in
        ["ftp://host/v1", "data:x", "http://me@host/v1", "http://:pw@host/v1", "http://host/?a", "http://host/#a"]
    {
        assert!(matches!(with(url, KEY), Err(SettingsError::BaseUrl)), "{url}");
    }
    assert!(matches!(with("http://host/v1", ""), Err(SettingsError::NoKey)));
    assert!(matches!(with("http://host/v1", "a\nb"), Err(SettingsError::KeyCharacters)));
    assert!(with("http://host", KEY).is_ok());
}

#[test]
fn a_filter_that_matches_no_type_is_refused() {
    let filter = |types: &[&str]| {
        let types = types.iter().map(|&kind| kind.into()).collect();
        Filter { types, event_name: Some("Settled".to_owned()), ..Filter::default() }
    };
    assert_eq!(filter(&[]).check(), Ok(()));
    assert_eq!(filter(&["watcher.event", "wallet.status"]).check(), Ok(()));
    assert_eq!(filter(&["comet.sighted"]).check(), Ok(()));
    let error = filter(&["wallet.status"]).check().unwrap_err();
    assert_eq!(error, "`event_name` applies to watcher.event only");
}

#[test]
fn reading_a_long_page_yields_to_other_tasks() {
    let page = format!(
        r#"{{"events":[{}],"has_more":false}}"#,
        r#"{"headers":{"offset":5}}"#.to_owned() + &" ".repeat(1 << 20)
    );
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        // The only blocking thread is busy until another task has its turn.
        let (release, released) = std::sync::mpsc::channel();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let another = async {
            release.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            page = page::read(page.into()) => assert_eq!(offsets(&page.unwrap()), [5]),
            () = another => {}
        }
        assert_eq!(busy.await.unwrap(), Ok(()), "the other task has run");
    });
}
