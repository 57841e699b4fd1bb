//! The feed: applications read the table of a sink over HTTP. Most tests run once with each database.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::Value;
use simulator::{Options, Simulator};
use tokio::task::JoinHandle;

use crate::support::{Answered, Daemon, Database, LONGEST_WAIT, LOOK_AGAIN, Setup};

pub(crate) mod access;
mod certificate;
mod clients;
mod consumers;
mod instances;
mod kills;
mod memory;
mod operators;
mod proxies;
mod reading;
mod readme;
mod stream;
mod tail;

/// How long a request for later events waits at most.
const WAIT: Duration = Duration::from_secs(60);

const TOKEN: &str = "token-of-ledger-never-to-be-shown";

/// Defines a test for each database. The function receives the name of the type of the sink.
macro_rules! with_each_table {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() { super::$test("sqlite").await })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() { super::$test("postgres").await })*
        }
    };
}
use with_each_table;

/// A service, and the settings of a daemon that serves the events of all its channels.
struct Served {
    simulator: Simulator,
    setup: Setup,
    /// The address of the feed. If its port is 0, the system chooses the port.
    listen: SocketAddr,
    /// `None` if the table is in a file.
    database: Option<Database>,
}

impl Served {
    /// Returns `None` if the test is skipped.
    async fn by(kind: &str, options: Options) -> Option<Self> {
        if kind == "postgres" {
            return Some(Self::on(Database::new().await?, options).await);
        }
        let mut served = Self::of(kind, options).await;
        let path = served.setup.path("events.db").display().to_string();
        served.setup.set("sinks.table.path", path);
        Some(served)
    }

    /// The table is in this PostgreSQL database.
    async fn on(database: Database, options: Options) -> Self {
        let mut served = Self::of("postgres", options).await;
        served.setup.set("sinks.table.url", database.url());
        Self { database: Some(database), ..served }
    }

    async fn of(kind: &str, options: Options) -> Self {
        let simulator = Simulator::start(options).await.unwrap();
        let mut setup = Setup::reading(&simulator);
        setup.remove("sinks.file");
        setup.set("sinks.table.type", kind);
        let names: Vec<_> = (0..simulator.announcement().channels.len()).map(|number| format!("c{number}")).collect();
        for name in &names {
            setup.set(&format!("channels.{name}.sinks"), vec!["table"]);
        }
        setup.set("feed.sink", "table");
        let mut served = Self { simulator, setup, listen: (Ipv4Addr::LOCALHOST, 0).into(), database: None };
        served.listen_on(served.listen);
        served.add_consumer("ledger", TOKEN, &names.iter().map(String::as_str).collect::<Vec<_>>());
        served
    }

    fn listen_on(&mut self, address: SocketAddr) {
        self.listen = address;
        self.setup.set("feed.listen", address.to_string());
    }

    fn add_consumer(&mut self, name: &str, token: &str, channels: &[&str]) {
        self.write_token(name, token);
        let file = self.setup.path(&format!("{name}.token"));
        self.setup.set(&format!("feed.consumers.{name}.token_file"), file.display().to_string());
        self.setup.set(&format!("feed.consumers.{name}.channels"), channels.to_vec());
        self.setup.keep_secret(token);
    }

    fn write_token(&self, name: &str, token: &str) {
        let file = self.setup.path(&format!("{name}.token"));
        std::fs::write(&file, format!("{token}\n")).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }

    /// Executes statements in the database.
    async fn change(&self, statements: &str) {
        if let Some(database) = &self.database {
            return database.change(statements).await;
        }
        let connection = rusqlite::Connection::open(self.setup.path("events.db")).unwrap();
        connection.busy_timeout(LONGEST_WAIT).unwrap();
        connection.execute_batch(statements).unwrap();
    }
}

/// A client with a token.
#[derive(Clone)]
struct FeedClient {
    base_url: String,
    token: Option<String>,
    http: reqwest::Client,
}

impl FeedClient {
    /// A client of the consumer `ledger`. Waits until the daemon serves the feed.
    async fn of(daemon: &mut Daemon) -> Self {
        let serves = "the feed is served";
        daemon.until_logged(serves).await;
        let address = daemon.log().lines(serves)[0]["address"].as_str().unwrap().to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { base_url: format!("http://{address}/v1"), token: Some(TOKEN.to_owned()), http }
    }

    fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base_url));
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Fails if the daemon has ended.
    async fn try_send(request: reqwest::RequestBuilder) -> reqwest::Result<Answered> {
        let answer = request.send().await?;
        let kind = answer.headers().get("Content-Type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        Ok(Answered { status: answer.status(), kind, text: answer.text().await? })
    }

    async fn get(&self, path: &str) -> Answered {
        Self::try_send(self.request(Method::GET, path)).await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Answered {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Self::try_send(self.request(Method::POST, path).body(body)).await.unwrap()
    }

    /// The address of the feed.
    fn address(&self) -> SocketAddr {
        self.base_url["http://".len()..].trim_end_matches("/v1").parse().unwrap()
    }

    /// Begins to wait for an event of channel `c0` after this position, which is the newest one. Returns the page.
    async fn wait_after(&self, position: i64) -> JoinHandle<Value> {
        let (client, after) = (self.clone(), format!("/channels/c0/events?after={position}"));
        let path = format!("{after}&wait={}s", WAIT.as_secs());
        let waiting = tokio::spawn(async move { client.get(&path).await.json() });
        // The daemon answers this request after it has received the other one.
        assert!(self.get(&after).await.json()["events"].as_array().unwrap().is_empty());
        waiting
    }

    /// The newest position of a channel.
    async fn newest(&self, channel: &str) -> i64 {
        let channels = self.get("/channels").await.json();
        let found = channels["channels"].as_array().unwrap().iter().find(|found| found["name"] == channel);
        found.unwrap_or_else(|| panic!("{channels}"))["position"].as_i64().unwrap()
    }

    /// Waits until the newest position of a channel is at least this one.
    async fn until(&self, daemon: &mut Daemon, channel: &str, position: usize) {
        let deadline = Instant::now() + LONGEST_WAIT;
        while usize::try_from(self.newest(channel).await).unwrap() < position {
            daemon.until("it runs", |_| true).await;
            assert!(Instant::now() < deadline, "{position}: {}", daemon.log().tail());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Reads from a position on until nothing is left, in pages of `limit` events.
    async fn read(&self, channel: &str, mut after: i64, limit: usize) -> Vec<FeedEvent> {
        let mut read = Vec::new();
        loop {
            let page = self.get(&format!("/channels/{channel}/events?after={after}&limit={limit}")).await.json();
            let events = FeedEvent::all(&page["events"]);
            let last = events.last().map_or(after, |event| event.position);
            assert_eq!(page["next"], last);
            if events.is_empty() {
                return read;
            }
            assert!(events.len() <= limit);
            read.extend(events);
            after = last;
        }
    }
}

/// An event as clients receive it.
#[derive(Clone, Debug, PartialEq)]
struct FeedEvent {
    position: i64,
    offset: i64,
    event: Value,
}

impl FeedEvent {
    fn of(event: &Value) -> Self {
        let number = |name: &str| event[name].as_i64().unwrap_or_else(|| panic!("{name}: {event}"));
        Self { position: number("position"), offset: number("offset"), event: event.clone() }
    }

    fn all(events: &Value) -> Vec<Self> {
        events.as_array().unwrap_or_else(|| panic!("{events}")).iter().map(Self::of).collect()
    }
}

/// The offsets of the events, in ascending order.
fn sorted_offsets(events: &[FeedEvent]) -> Vec<i64> {
    let mut offsets: Vec<_> = events.iter().map(|event| event.offset).collect();
    offsets.sort_unstable();
    offsets
}

/// Asserts that the events have these positions, and no others, in order.
fn assert_positions(events: &[FeedEvent], expected: impl IntoIterator<Item = i64>) {
    let positions: Vec<_> = events.iter().map(|event| event.position).collect();
    assert_eq!(positions, expected.into_iter().collect::<Vec<_>>());
}

/// Asserts that an answer is a problem of this kind, and returns it.
fn assert_problem(answer: &Answered, status: StatusCode, kind: &str) -> Value {
    assert_eq!((answer.status, &*answer.kind), (status, "application/problem+json"), "{answer:?}");
    let problem: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(
        (&problem["type"], &problem["status"]),
        (&format!("urn:channeld:feed:{kind}").into(), &status.as_u16().into())
    );
    problem
}
