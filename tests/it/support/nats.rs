//! A NATS server of the tests' own, in a temporary directory.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::wait::{LONGEST_WAIT, LOOK_AGAIN};
use super::{Setup, skip};

mod client;

use client::Client;

/// The stream that tests use.
pub(crate) const STREAM: &str = "events";

/// So briefly a stream knows the ids of messages, in nanoseconds: what is exactly once is so without them.
const SHORTEST_WINDOW: u64 = 100_000_000;

/// A server with JetStream. It ends with the test process, or earlier when it is dropped.
pub(crate) struct Nats {
    directory: TempDir,
    address: SocketAddr,
    /// The shell that stops the server when its input ends.
    keeper: Mutex<Option<Child>>,
    /// How a client of the tests logs in.
    login: Value,
}

/// A message of a stream, as another client than ours reads it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// A header's value; empty where there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn offset(&self) -> i64 {
        self.header("Channeld-Offset").parse().unwrap()
    }
}

/// The program; nothing where it is not on this machine.
fn program() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/nats-server");
    let found = own.exists().then_some(own);
    let system = || Command::new("nats-server").arg("--version").output().is_ok().then(|| "nats-server".into());
    found.or_else(system)
}

impl Nats {
    /// A server, or nothing where there is no program, and the test is skipped.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("", json!({}))
    }

    /// With further lines of configuration, and what a client says of itself to be let in.
    pub(crate) fn start_with(lines: &str, login: Value) -> Option<Self> {
        if program().is_none() {
            skip("nats-server, which .ci/run puts into target/tools");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let store = directory.path().join("jetstream").display().to_string();
        let text = format!("listen: \"{address}\"\njetstream {{ store_dir: {store:?} }}\n{lines}\n");
        fs::write(directory.path().join("nats.conf"), text).unwrap();
        let server = Self { directory, address, keeper: Mutex::default(), login };
        server.run();
        Some(server)
    }

    /// Starts it on the data that is there, and waits until it listens.
    pub(crate) fn run(&self) {
        let mut keeper = Command::new("sh");
        // The server ends with its keeper's input, which ends with this process, however that ends.
        let script = "\"$0\" -c \"$1\" & read -r end; kill -KILL $!; wait";
        keeper.arg("-c").arg(script).arg(program().unwrap()).arg(self.directory.path().join("nats.conf"));
        let log = fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        *self.keeper.lock().unwrap() = Some(keeper.spawn().unwrap());
        let deadline = Instant::now() + LONGEST_WAIT;
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < deadline, "the server does not start: {}", self.log());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Kills it.
    pub(crate) fn kill(&self) {
        let Some(mut keeper) = self.keeper.lock().unwrap().take() else { return };
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The answer to a request of JetStream's API, once it answers.
    pub(crate) async fn api(&self, what: &str, request: Value) -> Value {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            if let Ok(mut client) = Client::connect(self.address, &self.login).await
                && let Some(answer) = client.request(&format!("$JS.API.{what}"), &request.to_string()).await
            {
                return serde_json::from_slice(&answer).unwrap();
            }
            assert!(Instant::now() < deadline, "JetStream does not answer {what}: {}", self.log());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Makes the tests' stream, but for these settings.
    pub(crate) async fn make(&self, settings: Value) {
        let mut stream = json!({
            "name": STREAM, "subjects": ["channeld.>", "channeld-positions.>"], "retention": "limits", "storage": "file",
            "num_replicas": 1, "allow_atomic": true, "allow_rollup_hdrs": true, "duplicate_window": SHORTEST_WINDOW,
        });
        stream.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let made = self.api(&format!("STREAM.CREATE.{STREAM}"), stream).await;
        assert!(made["error"].is_null(), "{made}");
    }

    /// How many events the stream holds.
    pub(crate) async fn count(&self) -> usize {
        let info = self.api(&format!("STREAM.INFO.{STREAM}"), json!({"subjects_filter": "channeld.>"})).await;
        let subjects = info["state"]["subjects"].as_object();
        let counts = subjects.into_iter().flat_map(|subjects| subjects.values());
        counts.map(|count| usize::try_from(count.as_u64().unwrap()).unwrap()).sum()
    }

    /// Waits until the stream holds so many events, or more.
    pub(crate) async fn until_count(&self, count: usize) {
        let mut deadline = Instant::now() + LONGEST_WAIT;
        let mut seen = 0;
        loop {
            let now = self.count().await;
            if now >= count {
                return;
            }
            if now > seen {
                (seen, deadline) = (now, Instant::now() + LONGEST_WAIT);
            }
            assert!(Instant::now() < deadline, "{now} of {count} events, and no more come");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The events in the stream, in their order.
    pub(crate) async fn events(&self) -> Vec<Message> {
        let mut client = Client::connect(self.address, &self.login).await.unwrap();
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

    /// The offsets of a channel's events in the stream, in their order.
    pub(crate) async fn offsets(&self) -> Vec<i64> {
        self.events().await.iter().map(Message::offset).collect()
    }
}

impl Setup {
    /// With the stream as the sink `bus`, the only one of every channel, by this address.
    pub(crate) fn publishing(mut self, channels: usize, address: SocketAddr) -> Self {
        for channel in 0..channels {
            self.set(&format!("channels.c{channel}.sinks"), vec!["bus"]);
        }
        self.remove("sinks.file");
        self.and_publishing(address)
    }

    /// With the stream as the sink `bus`, which no channel uses yet.
    pub(crate) fn and_publishing(self, address: SocketAddr) -> Self {
        self.with("sinks.bus.type", "nats")
            .with("sinks.bus.url", format!("nats://{address}"))
            .with("sinks.bus.stream", STREAM)
            .with("sinks.bus.retry_wait", "20ms")
            .with("sinks.bus.retry_wait_max", "50ms")
            .with("sinks.bus.timeout", "2s")
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}
