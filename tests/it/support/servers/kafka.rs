//! A Kafka broker for tests, in a temporary directory, and its topics.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tempfile::TempDir;

use crate::support::{Authority, LONGEST_WAIT, LOOK_AGAIN, Setup, free_address, run, skip, until_count};

/// The client that reads records and queries the broker.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/servers/kafka/client.py");

/// The user who may log in, if a listener requires a login.
pub(crate) const USER: &str = "me";
pub(crate) const PASSWORD: &str = "hunter2";

/// A broker that is its own controller. It ends with the test process, or earlier when it is dropped.
pub(crate) struct Broker {
    directory: PathBuf,
    /// Deletes the directory, if the broker ends before the process.
    temporary: Option<TempDir>,
    ports: Ports,
    /// The shell that stops the broker when its input ends.
    keeper: Mutex<Option<Child>>,
    authority: Authority,
}

/// The addresses on which the broker listens.
#[derive(Clone, Copy, Debug)]
struct Ports {
    plain: SocketAddr,
    /// With TLS, for clients with a certificate.
    tls: SocketAddr,
    /// For clients that log in.
    login: SocketAddr,
    /// For clients behind the relay. The broker tells them to connect to the relay's address.
    relayed: SocketAddr,
    controller: SocketAddr,
}

/// A topic of one test, and the topic of its positions. Neither topic exists yet.
pub(crate) struct Topic {
    pub(crate) broker: Arc<Broker>,
    pub(crate) name: String,
    reader: Mutex<Option<Reader>>,
}

/// A transaction of another client in the topic of positions. It is open until this is dropped.
pub(crate) struct Held(Child);

/// A process that prints the records as they come.
struct Reader {
    process: Child,
    records: Arc<Mutex<Vec<Record>>>,
}

/// A committed record, as the tests' own client reads it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) key: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
}

impl Record {
    pub(crate) fn offset(&self) -> i64 {
        self.headers["Channeld-Offset"].parse().unwrap()
    }
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools")
}

/// The path of the client. `None` if the library of the client is missing.
fn python() -> Command {
    let mut python = Command::new(tools().join("bin/python"));
    python.env_clear();
    python
}

/// Whether all requirements are met. Otherwise the test is skipped.
fn is_there() -> bool {
    let java = Command::new("java").arg("-version").output().is_ok_and(|output| output.status.success());
    let jars = fs::read_dir(tools().join("kafka")).is_ok_and(|mut jars| jars.next().is_some());
    let client = python().args(["-c", "import kafka"]).output().is_ok_and(|output| output.status.success());
    if !(java && jars && client) {
        skip("java, and Kafka and kafka-python, which .ci/run puts into target/tools");
    }
    java && jars && client
}

impl Broker {
    /// The broker that most tests share. Returns `None` if this machine has no broker: the test is skipped.
    pub(crate) fn shared() -> Option<Arc<Self>> {
        static SHARED: OnceLock<Option<Arc<Broker>>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            // This broker runs as long as the process, so the keeper deletes its directory.
            is_there()
                .then(|| Arc::new(Self::in_directory(tempfile::tempdir().unwrap().keep(), None, Ports::new(), None)))
        });
        if shared.is_none() && !is_there() {
            return None;
        }
        shared.clone()
    }

    /// A broker of one test. Clients reach one of its listeners through a relay, if `before` makes one.
    pub(crate) async fn own<R>(before: impl AsyncFnOnce(SocketAddr) -> (SocketAddr, R)) -> Option<(Arc<Self>, R)> {
        if !is_there() {
            return None;
        }
        let ports = Ports::new();
        let (advertised, relay) = before(ports.relayed).await;
        Some((Arc::new(Self::temporary(tempfile::tempdir().unwrap(), ports, Some(advertised))), relay))
    }

    /// A broker of one test, with its data in a directory.
    pub(crate) fn own_in(directory: &Path) -> Option<Arc<Self>> {
        is_there().then(|| Arc::new(Self::temporary(tempfile::tempdir_in(directory).unwrap(), Ports::new(), None)))
    }

    fn temporary(directory: TempDir, ports: Ports, relay: Option<SocketAddr>) -> Self {
        Self::in_directory(directory.path().to_owned(), Some(directory), ports, relay)
    }

    fn in_directory(directory: PathBuf, own: Option<TempDir>, ports: Ports, relay: Option<SocketAddr>) -> Self {
        let authority = Authority::new("tests");
        let path = |name: &str| directory.join(name);
        authority.write(&path("ca.pem"));
        authority.issue_server(&path("server.pem"), &path("server-key.pem"));
        let both = [path("server-key.pem"), path("server.pem")].map(|part| fs::read_to_string(part).unwrap());
        fs::write(path("server-both.pem"), both.concat()).unwrap();
        fs::write(path("server.properties"), properties(&directory, ports, relay.unwrap_or(ports.relayed))).unwrap();
        fs::write(path("log4j.properties"), LOG).unwrap();
        let broker = Self { directory, temporary: own, ports, keeper: Mutex::default(), authority };
        // The option and its value are one argument, because one id in 64 begins with a hyphen.
        let id = format!("--cluster-id={}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>()));
        let login = format!("[name={USER},password={PASSWORD}]");
        let scram = ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(|mechanism| format!("{mechanism}={login}"));
        let mut format = broker.java("kafka.tools.StorageTool");
        format.args(["format", &id, "--add-scram", &scram[0], "--add-scram", &scram[1], "-c"]);
        run(format.arg(broker.directory.join("server.properties")));
        broker.run();
        broker
    }

    fn java(&self, class: &str) -> Command {
        let mut java = Command::new("java");
        let log = format!("-Dlog4j.configuration=file:{}", self.directory.join("log4j.properties").display());
        java.args(["-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", &log, "-cp"]);
        java.arg(tools().join("kafka/*")).arg(class);
        java
    }

    /// Starts the broker with the existing data, and waits until it listens.
    pub(crate) fn run(&self) {
        let java = self.java("kafka.Kafka");
        let mut keeper = Command::new("sh");
        // The shell stops the broker when the shell's input ends. The input ends with this process, even if the
        // process is killed.
        let script =
            "own=$1; shift; \"$@\" & read -r end; kill -KILL $!; wait; if [ \"$own\" ]; then rm -rf \"$own\"; fi";
        let own = if self.temporary.is_some() { Path::new("") } else { &self.directory };
        keeper.args(["-c", script, "sh"]).arg(own).arg(java.get_program()).args(java.get_args());
        keeper.arg(self.directory.join("server.properties"));
        let log = fs::File::options().create(true).append(true).open(self.directory.join("log")).unwrap();
        keeper.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        *self.keeper.lock().unwrap() = Some(keeper.spawn().unwrap());
        let deadline = Instant::now() + LONGEST_WAIT;
        while TcpStream::connect(self.ports.plain).is_err() {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the broker does not start: {}", log());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Kills the broker.
    pub(crate) fn kill(&self) {
        let Some(mut keeper) = self.keeper.lock().unwrap().take() else { return };
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.ports.plain
    }

    /// The address for clients with a certificate. Its host is `localhost`, the name in the broker's own certificate.
    pub(crate) fn tls(&self) -> String {
        format!("localhost:{}", self.ports.tls.port())
    }

    pub(crate) fn login(&self) -> SocketAddr {
        self.ports.login
    }

    /// The authority of the broker's certificate and of the accepted client certificates.
    pub(crate) fn authority(&self) -> (&Authority, PathBuf) {
        (&self.authority, self.directory.join("ca.pem"))
    }

    /// The client's output for a command.
    fn ask(&self, what: &[&str]) -> Vec<u8> {
        run(python().arg(CLIENT).arg(what[0]).arg(self.ports.plain.to_string()).args(&what[1..]))
    }

    /// A topic that no other test has.
    pub(crate) fn topic(self: &Arc<Self>) -> Topic {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("events-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Topic { broker: self.clone(), name, reader: Mutex::default() }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Ports {
    fn new() -> Self {
        let [plain, tls, login, relayed, controller] = [(); 5].map(|()| free_address());
        Self { plain, tls, login, relayed, controller }
    }
}

impl Topic {
    /// Creates the topic, with these settings.
    pub(crate) fn make(&self, partitions: u16, settings: &[&str]) {
        self.broker.ask(&[&["make", &self.name, &partitions.to_string()], settings].concat());
    }

    /// The topic of positions.
    pub(crate) fn positions(&self) -> String {
        format!("{}-positions", self.name)
    }

    /// Creates the topic of positions, with these settings.
    pub(crate) fn make_positions(&self, settings: &[&str]) {
        self.broker.ask(&[&["make", &self.positions(), "1"], settings].concat());
    }

    /// From now on, [`USER`] has only these rights to the topic.
    pub(crate) fn permit(&self, rights: &[&str]) {
        self.broker.ask(&[&["permit", &self.name, USER], rights].concat());
    }

    /// From now on, [`USER`] has only these rights to the topic of positions.
    pub(crate) fn permit_positions(&self, rights: &[&str]) {
        self.broker.ask(&[&["permit", &self.positions(), USER], rights].concat());
    }

    pub(crate) fn alter(&self, settings: &[&str]) {
        self.broker.ask(&[&["alter", &self.name], settings].concat());
    }

    pub(crate) fn delete(&self) {
        self.broker.ask(&["delete", &self.name]);
    }

    /// Deletes the topic of positions.
    pub(crate) fn delete_positions(&self) {
        self.broker.ask(&["delete", &self.positions()]);
    }

    /// Produces a record to the topic of positions. Without a value, the record deletes the position of the key.
    pub(crate) fn put_position(&self, key: &str, value: Option<&str>) {
        self.broker.ask(&[&["put", &self.positions(), key], value.as_slice()].concat());
    }

    /// The committed records of the topic of positions, in order.
    pub(crate) fn all_positions(&self) -> Vec<Record> {
        self.all_of(&self.positions())
    }

    /// Begins a transaction in the topic of positions.
    pub(crate) fn hold_positions(&self) -> Held {
        let mut client = python();
        client.args([CLIENT, "hold"]).arg(self.broker.ports.plain.to_string()).arg(self.positions());
        let mut process = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Held(process)
    }

    /// The settings of a topic, as the client prints them.
    pub(crate) fn settings(&self, topic: &str) -> String {
        String::from_utf8(self.broker.ask(&["settings", topic])).unwrap()
    }

    /// The records until now, in the order in which they arrived.
    fn come(&self) -> Arc<Mutex<Vec<Record>>> {
        let mut reader = self.reader.lock().unwrap();
        let start = || Reader::start(self.broker.ports.plain, &self.name);
        reader.get_or_insert_with(start).records.clone()
    }

    /// The number of committed records until now.
    pub(crate) fn count(&self) -> usize {
        self.come().lock().unwrap().len()
    }

    /// Waits until at least `count` records have arrived.
    pub(crate) async fn until_count(&self, count: usize) {
        until_count(count, async || self.count()).await;
    }

    /// The committed records. The records of each partition are in order.
    pub(crate) fn all(&self) -> Vec<Record> {
        self.all_of(&self.name)
    }

    fn all_of(&self, topic: &str) -> Vec<Record> {
        let printed = self.broker.ask(&["all", topic]);
        printed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(read).collect()
    }

    /// The offsets of the committed events, in ascending order.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        let mut offsets: Vec<_> = self.all().iter().map(Record::offset).collect();
        offsets.sort_unstable();
        offsets
    }
}

fn read(line: &[u8]) -> Record {
    serde_json::from_slice(line).unwrap()
}

impl Reader {
    fn start(address: SocketAddr, topic: &str) -> Self {
        let mut client = python();
        client.args([CLIENT, "read"]).arg(address.to_string()).arg(topic);
        let mut process = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (records, printed) = (Arc::<Mutex<Vec<Record>>>::default(), BufReader::new(process.stdout.take().unwrap()));
        let come = records.clone();
        std::thread::spawn(move || {
            for line in printed.split(b'\n').map_while(Result::ok) {
                come.lock().unwrap().push(read(&line));
            }
        });
        Self { process, records }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Setup {
    /// Adds the topic at this address as the sink `log`, which is then the only sink of every channel.
    pub(crate) fn producing(mut self, channels: usize, topic: &Topic, address: &impl ToString) -> Self {
        for channel in 0..channels {
            self.set(&format!("channels.c{channel}.sinks"), vec!["log"]);
        }
        self.remove("sinks.file");
        self.and_producing(topic, address)
    }

    /// Adds the topic as the sink `log`, which no channel uses yet.
    pub(crate) fn and_producing(self, topic: &Topic, address: &impl ToString) -> Self {
        self.with("sinks.log.type", "kafka")
            .with("sinks.log.brokers", vec![address.to_string()])
            .with("sinks.log.topic", &*topic.name)
            .with("sinks.log.positions_topic", topic.positions())
            .with("sinks.log.transactional_id", &*topic.name)
            .with("sinks.log.retry_wait", "20ms")
            .with("sinks.log.retry_wait_max", "50ms")
            .with("sinks.log.timeout", "3s")
    }
}

/// The log settings of the broker: only important entries, on standard output.
const LOG: &str = "log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c %m%n
";

fn properties(directory: &Path, ports: Ports, advertised: SocketAddr) -> String {
    let Ports { plain, tls, login, relayed, controller } = ports;
    let tls = format!("localhost:{}", tls.port());
    let path = |name: &str| directory.join(name).display().to_string();
    let jaas = "org.apache.kafka.common.security";
    [
        "process.roles=broker,controller".to_owned(),
        "node.id=1".to_owned(),
        format!("controller.quorum.voters=1@{controller}"),
        format!(
            "listeners=PLAIN://{plain},TLS://{tls},LOGIN://{login},RELAYED://{relayed},CONTROLLER://{controller}"
        ),
        format!("advertised.listeners=PLAIN://{plain},TLS://{tls},LOGIN://{login},RELAYED://{advertised}"),
        "inter.broker.listener.name=PLAIN".to_owned(),
        "controller.listener.names=CONTROLLER".to_owned(),
        "listener.security.protocol.map=PLAIN:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,RELAYED:PLAINTEXT,CONTROLLER:PLAINTEXT"
            .to_owned(),
        "listener.name.tls.ssl.client.auth=required".to_owned(),
        "listener.name.tls.ssl.keystore.type=PEM".to_owned(),
        format!("listener.name.tls.ssl.keystore.location={}", path("server-both.pem")),
        "listener.name.tls.ssl.truststore.type=PEM".to_owned(),
        format!("listener.name.tls.ssl.truststore.location={}", path("ca.pem")),
        "listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned(),
        format!(
            "listener.name.login.plain.sasl.jaas.config={jaas}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"
        ),
        format!("listener.name.login.scram-sha-256.sasl.jaas.config={jaas}.scram.ScramLoginModule required;"),
        format!("listener.name.login.scram-sha-512.sasl.jaas.config={jaas}.scram.ScramLoginModule required;"),
        format!("log.dirs={}", path("data")),
        // A broker that was killed can register again when its session has ended.
        "broker.session.timeout.ms=1500".to_owned(),
        "broker.heartbeat.interval.ms=300".to_owned(),
        "num.network.threads=1".to_owned(),
        "num.io.threads=4".to_owned(),
        "log.cleaner.threads=1".to_owned(),
        "auto.create.topics.enable=true".to_owned(),
        "offsets.topic.replication.factor=1".to_owned(),
        "offsets.topic.num.partitions=1".to_owned(),
        "transaction.state.log.replication.factor=1".to_owned(),
        "transaction.state.log.min.isr=1".to_owned(),
        "transaction.state.log.num.partitions=4".to_owned(),
        "group.initial.rebalance.delay.ms=0".to_owned(),
        // Only the user of `Topic::permit` is restricted, and only in that topic.
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
        "allow.everyone.if.no.acl.found=true".to_owned(),
        "super.users=User:ANONYMOUS".to_owned(),
    ]
    .join("\n")
}
