//! Requests with an unclear end, about which the feed and a proxy in front of it may disagree. Each attack is sent to the feed
//! directly, through `nginx` and through `haproxy`, with the settings that deploy/OPERATIONS.md shows.
//!
//! The attacker has no token, or the token of a consumer that may read only the first channel. It must never receive an event of the
//! second channel. At the same time, another client reads the second channel, and must always receive its own answer.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use simulator::Options;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{FeedClient, Served, TOKEN, assert_positions};
use crate::support::{Daemon, LONGEST_WAIT, LOOK_AGAIN, free_address, programs};

mod attacks;

use attacks::{Attack, attacks};

/// The token of the client that is attacked.
const OTHER: &str = "token-of-other-never-to-be-shown";

/// The longest wait for each part of a request in the proxies, so that they end an unfinished request soon.
const PATIENCE: Duration = Duration::from_secs(3);

/// A running proxy. It is killed when it is dropped.
struct Proxy {
    process: Child,
    address: SocketAddr,
    directory: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The settings in OPERATIONS.md, for a feed at this address.
fn documented(language: &str, feed: SocketAddr) -> String {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/OPERATIONS.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, block) = document.split_once(&format!("```{language}\n")).expect("the document has the settings");
    let (settings, _) = block.split_once("```").unwrap();
    assert!(settings.contains("127.0.0.1:9465"), "{settings}");
    settings.replace("127.0.0.1:9465", &feed.to_string())
}

impl Proxy {
    /// Starts `nginx` or `haproxy`.
    async fn start(name: &str, feed: SocketAddr) -> Self {
        let (directory, address, seconds) = (tempfile::tempdir().unwrap(), free_address(), PATIENCE.as_secs());
        let path = directory.path().display();
        let settings = directory.path().join("settings");
        let mut command = Command::new(name);
        let text = if name == "nginx" {
            command
                .arg("-p")
                .arg(directory.path())
                .arg("-e")
                .arg(directory.path().join("log"))
                .arg("-c")
                .arg(&settings);
            let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
            let temporary = kinds.map(|kind| format!("{kind}_temp_path {path}/{kind};\n")).concat();
            let location = documented(name, feed);
            format!(
                "daemon off;\nmaster_process off;\npid {path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\
                 client_header_timeout {seconds}s;\nclient_body_timeout {seconds}s;\nkeepalive_timeout {seconds}s;\n\
                 server {{\nlisten {address};\n{location}}}\n}}\n"
            )
        } else {
            command.arg("-db").arg("-f").arg(&settings);
            let backend = documented(name, feed);
            format!(
                "global\nmaxconn 500\ndefaults\nmode http\ntimeout connect 5s\ntimeout client {seconds}s\n\
                 timeout http-request {seconds}s\ntimeout http-keep-alive {seconds}s\n\
                 frontend all\nbind {address}\ndefault_backend feed\n{backend}"
            )
        };
        std::fs::write(&settings, text).unwrap();
        let log = std::fs::File::create(directory.path().join("output")).unwrap();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut proxy = Self { process, address, directory };
        let deadline = Instant::now() + LONGEST_WAIT;
        while TcpStream::connect(address).await.is_err() {
            let output = || std::fs::read_to_string(proxy.directory.path().join("output"));
            assert!(proxy.process.try_wait().unwrap().is_none(), "{name} has ended: {:?}", output());
            assert!(Instant::now() < deadline, "{name} does not listen: {:?}", output());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        proxy
    }
}

/// A feed of two channels, and a client for each of them.
struct Target {
    daemon: Daemon,
    client: FeedClient,
    /// Text in each event of the channel that the attacker must not read.
    secret: String,
    /// Text in each event of the channel that the attacker may read with its token.
    open: String,
    _served: Served,
}

impl Target {
    async fn start() -> Self {
        let mut served = Served::by("sqlite", Options { channels: 2, events: 5, ..Options::default() }).await.unwrap();
        served.setup.set("feed.consumers.ledger.channels", vec!["c0"]);
        served.add_consumer("other", OTHER, &["c1"]);
        let mut daemon = served.setup.start();
        let client = FeedClient::of(&mut daemon).await.with_token(Some(OTHER));
        client.until(&mut daemon, "c1", 5).await;
        client.with_token(Some(TOKEN)).until(&mut daemon, "c0", 5).await;
        let [open, secret] = [0, 1].map(|channel| served.simulator.announcement().channels[channel].to_string());
        Self { daemon, client, secret, open, _served: served }
    }

    /// The other client reads its channel. It must receive exactly its own answer.
    async fn other_client_reads(&self, address: SocketAddr, attack: &str) {
        let client = FeedClient { base_url: format!("http://{address}/v1"), ..self.client.clone() };
        let events = client.read("c1", 0, 10).await;
        assert_positions(&events, 1..=5);
        assert!(events.iter().all(|event| event.event["channel_id"] == *self.secret), "after {attack}: {events:?}");
    }

    /// Sends an attack, lets the other client read before and after the attacker's connection ends, and returns everything that
    /// the attacker has received.
    async fn attack(&self, address: SocketAddr, attack: &Attack) -> String {
        let name = attack.name;
        let (mut reading, mut writing) = TcpStream::connect(address).await.unwrap().into_split();
        let mut received = Vec::new();
        let ((), ()) = tokio::join!(
            async {
                // Fails if the connection was closed before the whole attack was sent.
                let _ = writing.write_all(&attack.bytes).await;
                self.other_client_reads(address, name).await;
            },
            async {
                // The connection may be reset. The writing half stays open until then.
                let ended = timeout(LONGEST_WAIT, reading.read_to_end(&mut received)).await;
                let _ = ended.unwrap_or_else(|_| panic!("{name}: the connection stays open"));
            }
        );
        self.other_client_reads(address, name).await;
        let received = String::from_utf8_lossy(&received).into_owned();
        assert!(!received.contains(&self.secret), "{name} reads the other channel: {received}");
        let may_read = attack.has_token;
        assert!(may_read || !received.contains(&self.open), "{name} reads a channel without a token: {received}");
        received
    }
}

/// The statuses of the final answers in the text.
fn statuses(received: &str) -> Vec<&str> {
    let begins = received.split("HTTP/1.").skip(1);
    begins.map(|answer| answer.get(2..5).unwrap_or(answer)).filter(|status| *status != "100").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_on_the_boundaries_of_requests_reads_or_changes_the_answer_of_another_client() {
    let target = Target::start().await;
    let direct = target.client.address();
    let attacks = attacks();
    let received = join_all(attacks.iter().map(|attack| target.attack(direct, attack))).await;
    let found: Vec<_> = attacks.iter().zip(&received).map(|(attack, it)| (attack.name, statuses(it))).collect();
    // A connection carries one request.
    let expected =
        attacks.iter().map(|attack| (attack.name, Vec::from_iter(Some(attack.status).filter(|it| !it.is_empty()))));
    let wrong: Vec<_> = found.iter().zip(expected).filter(|(found, expected)| *found != expected).collect();
    assert!(wrong.is_empty(), "found, and expected: {wrong:#?}");
    target.daemon.stop().await;
}

async fn through(name: &str) {
    if !programs(&[name]) {
        return;
    }
    let target = Target::start().await;
    let proxy = Proxy::start(name, target.client.address()).await;
    let client = FeedClient { base_url: format!("http://{}/v1", proxy.address), ..target.client.clone() };
    let attacker = client.with_token(Some(TOKEN));
    assert_positions(&attacker.read("c0", 0, 10).await, 1..=5);
    assert_eq!(attacker.get("/channels/c1/events").await.status, 403);
    let attacks = attacks();
    let received = join_all(attacks.iter().map(|attack| target.attack(proxy.address, attack))).await;
    for (attack, received) in attacks.iter().zip(&received) {
        println!("{name}: {}: {:?}", attack.name, statuses(received));
    }
    target.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_through_nginx_reads_or_changes_the_answer_of_another_client() {
    through("nginx").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_through_haproxy_reads_or_changes_the_answer_of_another_client() {
    through("haproxy").await;
}
