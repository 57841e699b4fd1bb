//! An operator's machine: a directory with a configuration, a state and the files that receive events.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledger::store::Sled;
use ledger::{Change, Commit, Key, Ledger, Ledgers, QUARANTINE, Quarantined, QuarantinedEvent};
use proof::event::{ChannelId, EventKey, Offset};
use serde_json::{Value, json};
use simulator::Simulator;
use tempfile::TempDir;
use tokio::process::ChildStdout;

use crate::support::{Daemon, Delivered, Receiver, Told, eventually};

/// Each secret of a test contains this text, so that an output with a secret is recognized.
const WEBHOOK_SECRET: &str = "whsec_b25seSBhIHRlc3Qga25vd3MgdGhpcyBzZWNyZXQ=";

/// The configuration, by dotted keys, and its directory. Channels are named `c0`, `c1` and so on, in the order of the
/// service. Their sink is the file sink `file`, unless a test sets another sink.
pub(crate) struct Setup {
    directory: TempDir,
    keys: BTreeMap<String, Value>,
    secrets: Vec<String>,
    environment: BTreeMap<&'static str, OsString>,
}

impl Setup {
    /// Reads every channel of the simulator.
    pub(crate) fn reading(simulator: &Simulator) -> Self {
        let known = simulator.announcement();
        let signers: Vec<_> = known.valid_signers.iter().map(ToString::to_string).collect();
        Self::of(&known.base_url, &known.api_key, &known.channels)
            .with("verification.org_id", known.org_id.as_str())
            .with("verification.valid_signers", signers)
            .with("verification.min_required_signatures", known.min_required_signatures)
    }

    /// Reads these channels of a service whose events are not signed by the simulator.
    pub(crate) fn of(base_url: &str, api_key: &str, channels: &[ChannelId]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let keys = [
            ("api.base_url", json!(base_url)),
            ("api.api_key", json!(api_key)),
            ("api.idle_wait", json!("20ms")),
            ("api.retry_wait", json!("20ms")),
            ("api.retry_wait_max", json!("50ms")),
            ("verification.org_id", json!("org_of_a_test")),
            ("state.path", json!(path("state"))),
            ("admin.listen", json!("")),
            ("log.level", json!("debug")),
            ("log.format", json!("json")),
            ("sinks.file.type", json!("file")),
            ("sinks.file.path", json!(path("events.jsonl"))),
        ];
        let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut setup = Self { directory, keys, secrets: vec![api_key.to_owned()], environment: BTreeMap::new() };
        for (number, id) in channels.iter().enumerate() {
            setup.set(&format!("channels.c{number}.id"), id.to_string());
            setup.set(&format!("channels.c{number}.sinks"), json!(["file"]));
        }
        setup
    }

    /// Adds or changes a key.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.set(key, value);
        self
    }

    /// Adds a webhook sink to every channel.
    pub(crate) fn with_webhook(mut self, name: &str, receiver: &Receiver) -> Self {
        self.define_webhook(name, receiver);
        for (key, value) in &mut self.keys {
            if let (["channels", _, "sinks"], Value::Array(sinks)) = (&*key.split('.').collect::<Vec<_>>(), value) {
                sinks.push(json!(name));
            }
        }
        self
    }

    /// Defines a webhook that no channel uses yet.
    pub(crate) fn define_webhook(&mut self, name: &str, receiver: &Receiver) {
        let token = format!("token-of-{name}-never-to-be-shown");
        self.set(&format!("sinks.{name}.type"), "webhook");
        self.set(&format!("sinks.{name}.url"), format!("{}?token={token}", receiver.url()));
        self.set(&format!("sinks.{name}.secret"), WEBHOOK_SECRET);
        self.set(&format!("sinks.{name}.retry_wait"), "20ms");
        self.set(&format!("sinks.{name}.retry_wait_max"), "50ms");
        self.secrets.extend([token, WEBHOOK_SECRET.to_owned(), WEBHOOK_SECRET["whsec_".len()..].to_owned()]);
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.keys.insert(key.to_owned(), value.into());
    }

    /// Removes a key or a table.
    pub(crate) fn remove(&mut self, key: &str) {
        let table = format!("{key}.");
        self.keys.retain(|other, _| other != key && !other.starts_with(&table));
    }

    /// Adds a secret that must never be printed.
    pub(crate) fn keep_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }

    /// Sets an environment variable for the daemons that are started from now on. They inherit no other variables.
    pub(crate) fn set_environment(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.insert(name, value.into());
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a backup of the state. The daemon must be stopped.
    pub(crate) fn back_up_state(&self) {
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([self.path("state"), self.path("state.backup")])
            .status()
            .unwrap();
        assert!(copied.success());
    }

    /// Replaces the state with the backup. The daemon must be stopped.
    pub(crate) fn restore_state(&self) {
        std::fs::remove_dir_all(self.path("state")).unwrap();
        std::fs::rename(self.path("state.backup"), self.path("state")).unwrap();
    }

    /// Writes the configuration file.
    pub(crate) fn write(&self) -> PathBuf {
        self.write_keys(&self.keys)
    }

    /// Writes the configuration file with another value of one key. The setup does not change.
    pub(crate) fn write_but(&self, key: &str, value: impl Into<Value>) {
        let mut keys = self.keys.clone();
        keys.insert(key.to_owned(), value.into());
        self.write_keys(&keys);
    }

    /// Texts, numbers and lists have the same form in JSON and TOML.
    fn write_keys(&self, keys: &BTreeMap<String, Value>) -> PathBuf {
        let mut document = String::new();
        for (key, value) in keys {
            writeln!(document, "{key} = {value}").unwrap();
        }
        let path = self.path("channeld.toml");
        std::fs::write(&path, document).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Starts `channeld run`.
    pub(crate) fn start(&self) -> Daemon {
        Daemon::run_in(&["run"], &self.write(), &self.secrets, &self.environment)
    }

    /// Starts `channeld run --until-caught-up`.
    pub(crate) fn start_until_caught_up(&self) -> Daemon {
        Daemon::run_in(&["run", "--until-caught-up"], &self.write(), &self.secrets, &self.environment)
    }

    /// Like [`start`](Self::start), after a command of the shell, which can set limits.
    pub(crate) fn start_after(&self, shell: &str) -> Daemon {
        Daemon::run_after(shell, &["run"], &self.write(), &self.secrets)
    }

    /// Like [`start`](Self::start), and returns a reader of standard output.
    pub(crate) fn start_piped(&self) -> (Daemon, ChildStdout) {
        Daemon::run_piped(&["run"], Some(&self.write()), &self.secrets)
    }

    /// Runs a command to its end, with the configuration file that was written last.
    pub(crate) async fn tell(&self, arguments: &[&str]) -> Told {
        Told::by(arguments, &self.path("channeld.toml"), &self.secrets).await
    }

    /// Runs the daemon until the file has this number of lines, and stops it.
    pub(crate) async fn run_until_lines(&self, lines: usize) {
        let mut daemon = self.start();
        // Until the daemon handles signals, SIGTERM would kill it.
        daemon.until_logged("channel started").await;
        daemon.until(&format!("{lines} lines"), |_| self.lines() >= lines).await;
        daemon.stop().await;
    }

    /// The number of lines of the file sink. This is cheap enough for polling.
    pub(crate) fn lines(&self) -> usize {
        lines_of(&self.path("events.jsonl"))
    }

    /// The lines of the file sink.
    pub(crate) fn delivered(&self) -> Vec<Delivered> {
        Delivered::read(&self.path("events.jsonl"))
    }

    /// The offsets of a channel in the file sink, in the order of the lines.
    pub(crate) fn offsets(&self, channel: &str) -> Vec<i64> {
        let of_channel = |delivered: &Delivered| delivered.channel == channel;
        self.delivered().into_iter().filter(of_channel).map(|delivered| delivered.offset).collect()
    }

    /// A channel's ledger. No daemon may have the state open.
    pub(crate) async fn ledger(&self, channel: ChannelId) -> Ledger {
        let ledgers = self.ledgers().await;
        let claim = ledgers.claim(channel, 1000).await.unwrap().unwrap().0;
        let ledger = claim.ledger().clone();
        ledgers.close().await;
        ledger
    }

    /// The bytes of a pending or quarantined event. No daemon may have the state open.
    pub(crate) async fn body(&self, channel: ChannelId, offset: Offset) -> Option<Vec<u8>> {
        let ledgers = self.ledgers().await;
        let ledger = ledgers.read(channel).await.unwrap();
        let ids = ledger.late_at(offset).map(|late| late.event_id);
        let id = ids.chain(ledger.quarantined_at(offset).map(|facts| facts.event_id)).next().flatten();
        let body = ledgers.store.body(channel, Key::Body(EventKey { offset, id })).await.unwrap();
        ledgers.close().await;
        body.map(|body| body.to_vec())
    }

    /// The stored details of a quarantined event. No daemon may have the state open.
    pub(crate) async fn quarantined(&self, channel: ChannelId, offset: Offset) -> Quarantined {
        self.ledger(channel).await.quarantined_at(offset).next().unwrap().clone()
    }

    /// Changes a channel's ledger. No daemon may have the state open.
    pub(crate) async fn commit(&self, channel: ChannelId, commit: Commit) {
        let ledgers = self.ledgers().await;
        let claim = ledgers.claim(channel, 1000).await.unwrap().unwrap().0;
        claim.commit(commit).await.unwrap();
        ledgers.close().await;
    }

    /// The ledgers. No daemon may have the state open.
    pub(crate) async fn ledgers(&self) -> Ledgers {
        let opened = eventually("the state is free", || Sled::open(&self.path("state")).ok());
        Ledgers::over(Arc::new(opened.await))
    }
}

/// The number of lines of a file: 0 if the file does not exist.
fn lines_of(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |bytes| memchr::memchr_iter(b'\n', &bytes).count())
}

/// The first offset of the events that fill a quarantine. It is above the offsets that tests use.
pub(crate) const FILLER: i64 = 1_000_001;

/// Fills a channel's quarantine.
pub(crate) async fn fill_quarantine(setup: &Setup, channel: ChannelId) {
    let event = |number| {
        let offset = Offset::new(number).unwrap();
        let (reason, detail) = ("malformed".to_owned(), "a test".to_owned());
        let facts = Quarantined {
            offset,
            event_id: None,
            reason,
            detail,
            at: 0,
            original: None,
            digest: None,
            received: None,
            bytes: 0,
        };
        Change::Quarantine(QuarantinedEvent { facts, json: "{}".into() })
    };
    let quarantined = (FILLER..).take(usize::try_from(QUARANTINE.events).unwrap()).map(event).collect();
    setup.commit(channel, Commit(quarantined)).await;
}
