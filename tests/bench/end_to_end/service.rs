//! The simulated service, as a separate process or in this process, and its announcement.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use bytes::Bytes;
use proof::verify::{Address, SignerSet, Verifier};
use serde::Deserialize;
use simulator::{Options, Simulator};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::machine::scratch;
use super::process::{Cost, Process};

/// The most events in a page.
const PAGE: u32 = 200;

/// `channeld simulate` in a separate process.
pub(crate) struct Service {
    process: Process,
    known: Known,
    _directory: TempDir,
}

/// The service in this process. This allows a benchmark to publish events and to count requests.
pub(crate) struct Hosted {
    pub(crate) simulator: Simulator,
    known: Known,
    _runtime: Runtime,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Known {
    pub(crate) base_url: String,
    pub(crate) api_key: String,
    pub(crate) org_id: String,
    pub(crate) workflow_owner: String,
    pub(crate) valid_signers: Vec<String>,
    pub(crate) min_required_signatures: usize,
    pub(crate) channels: Vec<String>,
}

impl Service {
    /// Starts the service and waits for its announcement.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = scratch();
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        command.arg("simulate").args(arguments);
        let mut process = Process::start(&mut command, Stdio::piped(), &directory.path().join("log"));
        let mut line = String::new();
        BufReader::new(process.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        let known = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}:\n{}", process.log_tail()));
        Self { process, known, _directory: directory }
    }

    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    pub(crate) fn cost(&self) -> Cost {
        self.process.cost()
    }
}

impl Hosted {
    pub(crate) fn start(options: Options) -> Self {
        let runtime = Runtime::new().unwrap();
        let simulator = runtime.block_on(Simulator::start(options)).unwrap();
        let known = serde_json::to_value(simulator.announcement()).and_then(serde_json::from_value).unwrap();
        Self { simulator, known, _runtime: runtime }
    }

    pub(crate) fn known(&self) -> &Known {
        &self.known
    }
}

impl Known {
    /// The pages with the oldest events of a channel.
    pub(crate) fn pages(&self, channel: usize, events: u32) -> impl Iterator<Item = Bytes> {
        (0..events).step_by(PAGE as usize).map(move |offset| self.page(channel, offset, PAGE.min(events - offset)))
    }

    fn page(&self, channel: usize, offset: u32, limit: u32) -> Bytes {
        let (host, base) = self.base_url.trim_start_matches("http://").split_once('/').unwrap();
        let (channel, key) = (&self.channels[channel], &self.api_key);
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "GET /{base}/channels/{channel}/events?offset={offset}&limit={limit} HTTP/1.1\r\nHost: {host}\r\n\
             Authorization: Apikey {key}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        Bytes::from(answer).slice(head + 4..)
    }

    /// The addresses of the valid signers.
    pub(crate) fn signers(&self) -> Vec<Address> {
        self.valid_signers.iter().map(|signer| signer.parse().unwrap()).collect()
    }

    pub(crate) fn verifier(&self) -> Verifier {
        let signers = SignerSet::new(self.signers(), self.min_required_signatures).unwrap();
        Verifier::new(signers, self.workflow_owner.parse().unwrap())
    }
}
