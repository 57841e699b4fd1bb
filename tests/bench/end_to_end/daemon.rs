//! `channeld run` in its own directory, which contains the configuration, the state and the output files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;

use super::machine::{binary, scratch};
use super::process::{Cost, Process};
use super::service::Known;

/// The wait between two checks of a condition.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The longest time without progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The token of the feed's consumer.
pub(crate) const TOKEN: &str = "token-of-the-benchmark";

/// Settings of a file whose content is not checked.
const KEEP_LITTLE: &str = "rotate_size = \"64MiB\", keep_files = 1";

/// A directory for one daemon.
pub(crate) struct Place {
    directory: TempDir,
}

pub(crate) struct Daemon<'a> {
    process: Process,
    place: &'a Place,
}

/// The part of `cursors.json` that the benchmarks need.
#[derive(Deserialize)]
struct Mirror {
    channels: BTreeMap<String, Cursors>,
}

#[derive(Deserialize)]
struct Cursors {
    cursors: BTreeMap<String, Option<u64>>,
}

impl Place {
    /// The first `first` channels are delivered to the first file, and the others to the second. `keys` are additional
    /// lines of the configuration.
    pub(crate) fn new(known: &Known, first: usize, keys: &[&str]) -> Self {
        let file = |place: &Self, number| format!("type = \"file\", path = \"{}\"", place.events(number).display());
        let sinks =
            |place: &Self| [format!("{{{}}}", file(place, 0)), format!("{{{}, {KEEP_LITTLE}}}", file(place, 1))];
        Self::with_sinks(known, first, sinks, keys)
    }

    /// Every channel is delivered to one sink. `sink` returns its table in the configuration.
    pub(crate) fn into(known: &Known, sink: impl FnOnce(&Self) -> String) -> Self {
        Self::with_sinks(known, usize::MAX, |place| [sink(place)], &[])
    }

    /// Every channel is delivered to an SQLite table, which is served as a feed with one consumer. `keys` are additional lines of the
    /// configuration.
    pub(crate) fn with_feed(known: &Known, keys: &[&str]) -> Self {
        let names: Vec<_> = (0..known.channels.len()).map(|number| format!("c{number}")).collect();
        let consumer = format!("feed.consumers.benchmark.channels = {names:?}");
        let sink = |place: &Self| [format!("{{type = \"sqlite\", path = \"{}\"}}", place.table().display())];
        let keys = [&["feed.sink = \"f0\"", "feed.listen = \"127.0.0.1:0\"", &*consumer], keys].concat();
        let place = Self::with_sinks(known, usize::MAX, sink, &keys);
        place.add_token();
        place
    }

    /// Writes the file with the consumer's token, and names it in the configuration.
    fn add_token(&self) {
        let (token, config) = (self.path("token"), self.path("channeld.toml"));
        std::fs::write(&token, TOKEN).unwrap();
        let document = std::fs::read_to_string(&config).unwrap();
        let key = format!("feed.consumers.benchmark.token_file = \"{}\"\n", token.display());
        std::fs::write(config, key + &document).unwrap();
    }

    fn with_sinks<const N: usize>(
        known: &Known,
        first: usize,
        sinks: impl FnOnce(&Self) -> [String; N],
        keys: &[&str],
    ) -> Self {
        let place = Self { directory: scratch() };
        let mut document = format!(
            "api.base_url = {:?}\napi.api_key = {:?}\nverification.org_id = {:?}\nverification.valid_signers = {:?}\n\
             verification.min_required_signatures = {}\nstate.path = \"{}\"\nadmin.listen = \"127.0.0.1:0\"\n",
            known.base_url,
            known.api_key,
            known.org_id,
            known.valid_signers,
            known.min_required_signatures,
            place.path("state").display(),
        );
        for (number, sink) in sinks(&place).iter().enumerate() {
            writeln!(document, "sinks.f{number} = {sink}").unwrap();
        }
        for key in keys {
            writeln!(document, "{key}").unwrap();
        }
        document.push_str("[channels]\n");
        for (number, id) in known.channels.iter().enumerate() {
            writeln!(document, "c{number}={{id={id:?},sinks=[\"f{}\"]}}", usize::from(number >= first)).unwrap();
        }
        std::fs::write(place.path("channeld.toml"), document).unwrap();
        place
    }

    /// The path of an output file.
    pub(crate) fn events(&self, file: usize) -> PathBuf {
        self.path(&format!("events{file}.jsonl"))
    }

    /// The path of the table's database.
    pub(crate) fn table(&self) -> PathBuf {
        self.path("events.db")
    }

    /// The address of the daemon's admin listener, after the daemon has logged it.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.logged_address("health, metrics and status are served")
    }

    /// The address of the feed, after the daemon has logged it.
    pub(crate) fn feed(&self) -> Option<SocketAddr> {
        self.logged_address("the feed is served")
    }

    fn logged_address(&self, message: &str) -> Option<SocketAddr> {
        let log = std::fs::read_to_string(self.path("log")).ok()?;
        let line = log.lines().find(|line| line.contains(message))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("address=")?.trim_matches('"').parse().ok())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn start(&self) -> Daemon<'_> {
        self.start_build(&binary())
    }

    pub(crate) fn start_build(&self, program: &Path) -> Daemon<'_> {
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(self.path("channeld.toml"));
        Daemon { process: Process::start(&mut command, Stdio::null(), &self.path("log")), place: self }
    }

    /// The number of durably processed events of all channels. Offsets start at 1 and have no gaps, so this is the sum
    /// of the cursors.
    pub(crate) fn recorded(&self) -> u64 {
        let mirror = std::fs::read(self.path("state/cursors.json")).unwrap_or_default();
        // The file does not exist before the state is opened for the first time.
        let mirror: Option<Mirror> = serde_json::from_slice(&mirror).ok();
        mirror
            .iter()
            .flat_map(|mirror| mirror.channels.values())
            .flat_map(|channel| channel.cursors.values())
            .flatten()
            .sum()
    }
}

impl Daemon<'_> {
    /// Waits until this many events are durably processed.
    pub(crate) fn until_recorded(&mut self, events: u64) {
        let (mut seen, mut moved) = (0, Instant::now());
        while seen < events {
            let now = self.place.recorded();
            if now != seen {
                (seen, moved) = (now, Instant::now());
            }
            self.process.must_run();
            assert!(moved.elapsed() < PATIENCE, "nothing for {PATIENCE:?} at {seen}:\n{}", self.process.log_tail());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends the benchmark if the daemon has ended.
    pub(crate) fn must_run(&mut self) {
        self.process.must_run();
    }

    pub(crate) fn cost(&self) -> Cost {
        self.process.cost()
    }

    pub(crate) fn stop(self) {
        self.process.stop();
    }
}

/// Whether a listener of the daemon answers with status 200.
pub(crate) fn probe(listener: SocketAddr, path: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&listener, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {listener}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200 "))
}
