//! A NATS server with JetStream and default settings, except for the directory.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::daemon::LOOK_AGAIN;
use super::machine::scratch;
use super::process::{Cost, Process};

/// The longest wait for the start of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with its own data. It is stopped on drop.
pub(crate) struct Nats {
    process: Process,
    address: SocketAddr,
    /// The data, which must not be deleted before the server has ended.
    _directory: TempDir,
}

impl Nats {
    /// Returns `None` if nats-server is not installed.
    pub(crate) fn start() -> Option<Self> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/nats-server");
        let program = if own.exists() { own } else { "nats-server".into() };
        Command::new(&program).arg("--version").output().ok()?;
        let directory = scratch();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let [file, store, log] = ["nats.conf", "store", "log"].map(|name| directory.path().join(name));
        fs::write(&file, format!("listen: \"{address}\"\njetstream {{ store_dir: \"{}\" }}\n", store.display()))
            .unwrap();
        let process = Process::start(Command::new(program).arg("-c").arg(file), Stdio::null(), &log);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the server does not start: {}", fs::read_to_string(log).unwrap());
            std::thread::sleep(LOOK_AGAIN);
        }
        Some(Self { process, address, _directory: directory })
    }

    /// The configuration of a sink that publishes to this stream.
    pub(crate) fn sink(&self, stream: &str) -> String {
        format!(
            "{{type = \"nats\", url = \"nats://{}\", stream = \"{stream}\", subject = \"{stream}.{{channel}}.{{type}}\", \
             positions = \"{stream}-positions\"}}",
            self.address
        )
    }

    /// The number of events in a stream, without position messages.
    pub(crate) fn count(&self, stream: &str) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(async {
            let client = async_nats::connect(self.address.to_string()).await.unwrap();
            let question = json!({"subjects_filter": format!("{stream}.>")}).to_string();
            client.request(format!("$JS.API.STREAM.INFO.{stream}"), question.into()).await.unwrap()
        });
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        let counts = answer["state"]["subjects"].as_object().unwrap().values();
        counts.map(|count| usize::try_from(count.as_u64().unwrap()).unwrap()).sum()
    }

    pub(crate) fn cost(&self) -> Cost {
        self.process.cost()
    }
}
