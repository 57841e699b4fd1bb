//! A feed with a table in memory, and a client that sends one request per connection.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::memory_table::MemoryTable;
use crate::listener::{BOUNDS, serve_within};
use crate::{Consumer, FeedChannel, FeedListener, FeedSettings, Listen, Served, TokenHash};
use operator::feed::{FeedHandle, FeedMetrics};
use operator::server::Bounds;

/// The longest wait for anything that must happen.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(30);

/// The channel that the consumer `ledger` may read.
pub(crate) const OPEN: Uuid = Uuid::from_u128(1);

/// The channel that only the consumer `other` may read.
pub(crate) const CLOSED: Uuid = Uuid::from_u128(2);

/// The token of the consumer `ledger`.
pub(crate) const TOKEN: &str = "the-token-of-ledger";

/// The token of the consumer `other`.
pub(crate) const OTHER_TOKEN: &str = "the-token-of-other";

pub(crate) fn settings() -> FeedSettings {
    let consumer = |name: &str, token: &str, channels: &[&str]| Consumer {
        name: name.into(),
        tokens: vec![TokenHash::of(token)],
        channels: channels.iter().map(|name| Arc::from(*name)).collect(),
    };
    FeedSettings {
        identity: None,
        channels: [("open", OPEN), ("closed", CLOSED)].map(|(name, id)| FeedChannel { name: name.into(), id }).into(),
        consumers: vec![consumer("ledger", TOKEN, &["open"]), consumer("other", OTHER_TOKEN, &["open", "closed"])],
        connections: 100,
        connections_per_consumer: 50,
        lease: Duration::from_secs(30),
    }
}

/// A feed that is served during a test.
pub(crate) struct TestFeed {
    pub(crate) table: Arc<MemoryTable>,
    pub(crate) served: watch::Sender<Arc<Served>>,
    pub(crate) stop: CancellationToken,
    pub(crate) operators: FeedHandle,
    address: Option<std::net::SocketAddr>,
}

/// Runs a test while a feed with these settings is served on TCP.
pub(crate) async fn served(settings: FeedSettings, test: impl AsyncFnOnce(&TestFeed)) {
    served_on(&Listen::Tcp(([127, 0, 0, 1], 0).into()), BOUNDS, settings, test).await;
}

pub(crate) async fn served_on(
    listen: &Listen,
    bounds: Bounds,
    settings: FeedSettings,
    test: impl AsyncFnOnce(&TestFeed),
) {
    let listener = FeedListener::bind(listen).await.unwrap();
    let table = Arc::<MemoryTable>::default();
    let (operators, queue) = FeedHandle::new("test".to_owned(), FeedMetrics::default());
    let feed = TestFeed {
        served: watch::Sender::new(Arc::new(Served::new(settings, table.clone()))),
        table,
        stop: CancellationToken::new(),
        operators: operators.clone(),
        address: listener.address(),
    };
    let serving =
        serve_within(bounds, listener, 64 << 20, feed.served.subscribe(), (operators, queue), feed.stop.clone());
    tokio::select! {
        never = serving => match never {},
        () = test(&feed) => {}
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The lines of the head after the first one, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The positions of the events.
    pub(crate) fn positions(&self) -> Vec<i64> {
        let events = self.json()["events"].as_array().unwrap_or_else(|| panic!("no events: {self:?}")).clone();
        events.iter().map(|event| event["position"].as_i64().unwrap()).collect()
    }
}

impl TestFeed {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address.unwrap()).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, Some(TOKEN), "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, Some(TOKEN), body).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
        let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        ask_on(&mut self.connect().await, &request(method, path, &token, body)).await
    }

    /// Requests the stream of the open channel with this token. The request ends when the connection is dropped.
    pub(crate) async fn open_stream(&self, token: &str) -> TcpStream {
        let mut client = self.connect().await;
        let request = request("GET", "/v1/channels/open/stream", &format!("Authorization: Bearer {token}\r\n"), "");
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    /// Replaces the settings, as a reload does.
    pub(crate) fn set(&self, settings: FeedSettings) {
        let served = self.served.borrow().with(settings);
        self.served.send_replace(served.into());
    }

    /// Waits until something is true.
    pub(crate) async fn until(&self, is_true: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !is_true(self) {
                tokio::task::yield_now().await;
            }
        };
        timeout(MAX_WAIT, waiting).await.expect("it happens in time");
    }

    /// Waits until this number of requests can be woken by a change of the table.
    pub(crate) async fn until_waiting(&self, requests: usize) {
        self.until(|feed| feed.table.waiting() == requests).await;
    }
}

/// A request. Each of the headers ends with a line break.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: feed\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// Sends a request, and reads its answer until the server closes the connection.
pub(crate) async fn ask_on(client: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), request: &str) -> Answer {
    let exchange = async {
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    answer_of(&timeout(MAX_WAIT, exchange).await.expect("the server answers"))
}

pub(crate) fn answer_of(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok()).unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let headers: Vec<_> = lines.map(header).collect();
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    Answer { status, headers, body: if is_chunked { unchunked(body) } else { body.to_owned() } }
}

/// The content of a complete chunked body.
fn unchunked(mut body: &str) -> String {
    let mut content = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").expect("the body is complete");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
}
