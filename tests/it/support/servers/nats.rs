//! NATS servers for tests, in temporary directories: a single server, or three servers that replicate a stream.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{LONGEST_WAIT, LOOK_AGAIN, Setup, free_address, skip, until_count};

mod client;
mod operator;
mod server;

pub(crate) use operator::Operator;

use client::Client;
use server::Server;

/// The stream that tests use.
pub(crate) const STREAM: &str = "events";

/// How long a stream remembers message ids, in nanoseconds: short, so that exactly-once delivery cannot rely on them.
const SHORTEST_WINDOW: u64 = 100_000_000;

/// The error code of a stream whose files cannot be created.
const CANNOT_STORE: u64 = 10049;

/// Servers with JetStream. They end with the test process, or earlier when this is dropped.
pub(crate) struct Nats {
    servers: Vec<Server>,
    /// The login of the tests' client.
    login: Value,
}

/// A message of a stream, as the tests' own client reads it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// A header's value: empty if the message does not have the header.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn offset(&self) -> i64 {
        self.header("Channeld-Offset").parse().unwrap()
    }
}

impl Nats {
    /// A server. Returns `None` if the program is missing: the test is skipped.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("", json!({}))
    }

    /// A server with additional configuration lines, and the login that a client sends.
    pub(crate) fn start_with(lines: &str, login: Value) -> Option<Self> {
        Self::of(vec![(tempfile::tempdir().unwrap(), lines.to_owned())], login)
    }

    /// A server with its data in this directory.
    pub(crate) fn start_in(directory: &Path) -> Option<Self> {
        Self::of(vec![(tempfile::tempdir_in(directory).unwrap(), String::new())], json!({}))
    }

    /// Three servers, called 0, 1 and 2.
    pub(crate) fn cluster() -> Option<Self> {
        let addresses = [(); 3].map(|()| free_address());
        let routes: Vec<_> = addresses.iter().map(|address| format!("\"nats://{address}\"")).collect();
        let lines = |(number, address): (usize, &SocketAddr)| {
            let routes = routes.join(", ");
            let cluster = format!("cluster {{ name: tests, listen: \"{address}\", routes: [{routes}] }}");
            (tempfile::tempdir().unwrap(), format!("server_name: \"{number}\"\n{cluster}"))
        };
        Self::of(addresses.iter().enumerate().map(lines).collect(), json!({}))
    }

    fn of(servers: Vec<(TempDir, String)>, login: Value) -> Option<Self> {
        if server::program().is_none() {
            skip("nats-server, which .ci/run puts into target/tools");
            return None;
        }
        let servers: Vec<_> = servers.into_iter().map(|(directory, lines)| Server::new(directory, &lines)).collect();
        servers.iter().for_each(Server::run);
        Some(Self { servers, login })
    }

    /// The address of the first server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.servers[0].address
    }

    /// The addresses of all servers, in the form of the sink's key `url`.
    pub(crate) fn url(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(|server| format!("nats://{}", server.address)).collect();
        urls.join(",")
    }

    /// Kills the first server.
    pub(crate) fn kill(&self) {
        self.kill_one(0);
    }

    /// Starts the first server again.
    pub(crate) fn run(&self) {
        self.run_one(0);
    }

    pub(crate) fn kill_one(&self, number: usize) {
        self.servers[number].kill();
    }

    pub(crate) fn run_one(&self, number: usize) {
        self.servers[number].run();
    }

    /// The number of the server that leads the stream.
    pub(crate) async fn leader(&self) -> usize {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let info = self.api(&format!("STREAM.INFO.{STREAM}"), json!({})).await;
            if let Some(leader) = info["cluster"]["leader"].as_str().and_then(|name| name.parse().ok()) {
                return leader;
            }
            assert!(Instant::now() < deadline, "the stream has no leader: {info}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The answer to a request of JetStream's API, once it answers.
    pub(crate) async fn api(&self, what: &str, request: Value) -> Value {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            if let Some(mut client) = self.connect().await
                && let Some(answer) = client.request(&format!("$JS.API.{what}"), &request.to_string()).await
            {
                return serde_json::from_slice(&answer).unwrap();
            }
            let log = || self.servers.iter().map(Server::log).collect::<String>();
            assert!(Instant::now() < deadline, "JetStream does not answer {what}: {}", log());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// A connection to a running server.
    async fn connect(&self) -> Option<Client> {
        for server in &self.servers {
            if let Ok(client) = Client::connect(server.address, &self.login).await {
                return Some(client);
            }
        }
        None
    }

    /// Creates the tests' stream, with changes by these settings.
    pub(crate) async fn make(&self, settings: Value) {
        let mut stream = json!({
            "name": STREAM, "subjects": ["channeld.>", "channeld-positions.>"], "retention": "limits", "storage": "file",
            "num_replicas": 1, "allow_atomic": true, "allow_rollup_hdrs": true, "duplicate_window": SHORTEST_WINDOW,
        });
        stream.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let made = self.api(&format!("STREAM.CREATE.{STREAM}"), stream.clone()).await;
            // The server may still remove the files of a stream of this name that was deleted.
            if made["error"]["err_code"] != CANNOT_STORE || Instant::now() > deadline {
                assert!(made["error"].is_null(), "{made}");
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Makes the stream forget the ids of messages as soon as possible, and asserts that all servers store the stream.
    pub(crate) async fn forget_ids(&self) {
        let changed = self.change(json!({"duplicate_window": SHORTEST_WINDOW})).await;
        assert_eq!(changed["config"]["num_replicas"], self.servers.len());
    }

    /// Changes these settings of the stream, and returns its new settings.
    pub(crate) async fn change(&self, settings: Value) -> Value {
        let mut config = self.api(&format!("STREAM.INFO.{STREAM}"), json!({})).await["config"].take();
        config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let changed = self.api(&format!("STREAM.UPDATE.{STREAM}"), config).await;
        assert!(changed["error"].is_null(), "{changed}");
        changed
    }

    /// The number of events in the stream.
    pub(crate) async fn count(&self) -> usize {
        let info = self.api(&format!("STREAM.INFO.{STREAM}"), json!({"subjects_filter": "channeld.>"})).await;
        let subjects = info["state"]["subjects"].as_object();
        let counts = subjects.into_iter().flat_map(|subjects| subjects.values());
        counts.map(|count| usize::try_from(count.as_u64().unwrap()).unwrap()).sum()
    }

    /// Waits until the stream has at least `count` events.
    pub(crate) async fn until_count(&self, count: usize) {
        until_count(count, async || self.count().await).await;
    }

    /// The events in the stream, in order.
    pub(crate) async fn events(&self) -> Vec<Message> {
        let mut client = self.connect().await.unwrap();
        let (mut events, mut next) = (Vec::new(), 1);
        loop {
            let request = json!({"seq": next, "next_by_subj": "channeld.>"}).to_string();
            let answer = client.request(&format!("$JS.API.STREAM.MSG.GET.{STREAM}"), &request).await.unwrap();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            let message = &answer["message"];
            let Some(sequence) = message["seq"].as_u64() else { return events };
            events.push(client::message(message));
            next = sequence + 1;
        }
    }

    /// Publishes a message as a program other than the daemon, and returns its sequence number.
    pub(crate) async fn publish(&self, subject: &str, headers: &[(String, String)], body: &[u8]) -> u64 {
        let answer = self.connect().await.unwrap().publish(subject, headers, body).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["seq"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    }

    /// The last message on a subject.
    pub(crate) async fn last(&self, subject: &str) -> Option<Message> {
        let answer = self.api(&format!("STREAM.MSG.GET.{STREAM}"), json!({"last_by_subj": subject})).await;
        answer.get("message").map(client::message)
    }

    /// Deletes the messages on a subject.
    pub(crate) async fn purge(&self, subject: &str) {
        let purged = self.api(&format!("STREAM.PURGE.{STREAM}"), json!({"filter": subject})).await;
        assert!(purged["error"].is_null(), "{purged}");
    }

    /// Copies the data of the first server, which must have been killed before.
    pub(crate) fn save(&self, to: &Path) {
        self.kill();
        self.servers[0].save(to);
        self.run();
    }

    /// Replaces the data of the first server with a copy.
    pub(crate) fn restore(&self, from: &Path) {
        self.kill();
        self.servers[0].restore(from);
        self.run();
    }

    /// The offsets of a channel's events in the stream, in order.
    pub(crate) async fn offsets(&self) -> Vec<i64> {
        self.events().await.iter().map(Message::offset).collect()
    }
}

impl Setup {
    /// Adds the stream at this address as the sink `bus`, which is then the only sink of every channel.
    pub(crate) fn publishing(mut self, channels: usize, address: SocketAddr) -> Self {
        for channel in 0..channels {
            self.set(&format!("channels.c{channel}.sinks"), vec!["bus"]);
        }
        self.remove("sinks.file");
        self.and_publishing(address)
    }

    /// Adds the stream as the sink `bus`, which no channel uses yet.
    pub(crate) fn and_publishing(self, address: SocketAddr) -> Self {
        self.with("sinks.bus.type", "nats")
            .with("sinks.bus.url", format!("nats://{address}"))
            .with("sinks.bus.stream", STREAM)
            .with("sinks.bus.retry_wait", "20ms")
            .with("sinks.bus.retry_wait_max", "50ms")
            .with("sinks.bus.timeout", "2s")
    }
}
