//! `channeld run` with a directory of its own: configuration, state, and the file that events go to.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;

use super::machine::{binary, scratch};
use super::process::{Cost, Process};
use super::service::Known;

/// How often it is looked whether something has happened.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// For so long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of a file that is not looked at.
const KEEP_LITTLE: &str = "rotate_size = \"64MiB\", keep_files = 1";

/// An operator's machine.
pub(crate) struct Place {
    directory: TempDir,
}

/// A daemon that runs in a place.
pub(crate) struct Daemon<'a> {
    process: Process,
    place: &'a Place,
}

/// `cursors.json`, as far as it matters here.
#[derive(Deserialize)]
struct Mirror {
    channels: BTreeMap<String, Cursors>,
}

#[derive(Deserialize)]
struct Cursors {
    cursors: BTreeMap<String, Option<u64>>,
}

impl Place {
    /// A place in which so many channels of the service go to the first file, and the others to the second, with the keys
    /// of choice beside.
    pub(crate) fn new(known: &Known, first: usize, keys: &[&str]) -> Self {
        let file = |place: &Self, number| format!("type = \"file\", path = \"{}\"", place.events(number).display());
        let sinks =
            |place: &Self| [format!("{{{}}}", file(place, 0)), format!("{{{}, {KEEP_LITTLE}}}", file(place, 1))];
        Self::with_sinks(known, first, sinks, keys)
    }

    /// A place in which every channel goes to one sink, whose table in the configuration `sink` gives.
    pub(crate) fn into(known: &Known, sink: impl FnOnce(&Self) -> String) -> Self {
        Self::with_sinks(known, usize::MAX, |place| [sink(place)], &[])
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

    /// A file that events go to.
    pub(crate) fn events(&self, file: usize) -> PathBuf {
        self.path(&format!("events{file}.jsonl"))
    }

    /// Where the daemon's admin listener is, once it has said so.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        let log = std::fs::read_to_string(self.path("log")).ok()?;
        let line = log.lines().find(|line| line.contains("health, metrics and status are served"))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("address=")?.parse().ok())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn start(&self) -> Daemon<'_> {
        let mut command = Command::new(binary());
        command.arg("run").arg("--config").arg(self.path("channeld.toml"));
        Daemon { process: Process::start(&mut command, Stdio::null(), &self.path("log")), place: self }
    }

    /// How many events are durably dealt with, over all channels, whose offsets begin with 1 and have no gaps.
    pub(crate) fn recorded(&self) -> u64 {
        let mirror = std::fs::read(self.path("state/cursors.json")).unwrap_or_default();
        // There is none before the state was opened for the first time.
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
    /// Waits until so many events are durably dealt with.
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

    /// Ends the program unless the daemon still runs.
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
