//! Everything that the daemon counts as processed is on the disk. A kill cannot test this, because the operating system
//! still writes unsynced data after a kill. These tests trace the daemon's writes, syncs and renames: the daemon must never
//! rely on a change that a power loss would undo.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use axum::response::IntoResponse;
use nix::sys::signal::Signal;
use proof::event::ChannelId;
use simulator::{EventSpec, Options, Simulator, Tampering};
use uuid::Uuid;

use crate::support::{Change, Files, Scripted, Setup, Traced, can_trace, deliverable, eventually};

const PAGE: usize = 10;

/// These events come first: their batches are committed although nothing is written for them.
const FORGED: usize = 12;

/// The database stores a value of this size in a separate file.
const LARGE: usize = 400_000;

/// The changes that a power loss would undo.
struct Disk {
    directory: PathBuf,
    /// Files that were written since their last sync.
    written: BTreeSet<PathBuf>,
    /// Names that were created or changed since the last sync of their directory.
    named: BTreeSet<PathBuf>,
    /// Whether the database was synced since the last write of events.
    is_recorded: bool,
    /// How often the copy of the database (`cursors.json`) was replaced, and how often an event file was closed.
    mirrors: usize,
    closed: usize,
    /// Synced files with large values.
    blobs: BTreeSet<PathBuf>,
}

impl Disk {
    fn of(setup: &Setup) -> Self {
        let (written, named) = (BTreeSet::new(), BTreeSet::new());
        let (directory, blobs) = (setup.path(""), BTreeSet::new());
        Self { directory, written, named, is_recorded: true, mirrors: 0, closed: 0, blobs }
    }

    /// Applies these changes. Panics if a change relies on something that a power loss would undo.
    fn after(setup: &Setup, changes: &[Change]) -> Self {
        let mut disk = Self::of(setup);
        for (number, change) in changes.iter().enumerate() {
            if let Err(problem) = disk.make(change.clone()) {
                panic!("{problem}:\n{:#?}", &changes[number.saturating_sub(40)..=number]);
            }
        }
        disk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Applies a change. Fails if it relies on something that a power loss would undo.
    fn make(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Write(path) => {
                if path == self.path("events.jsonl") {
                    self.is_recorded = false;
                    self.require("a batch is written before the previous batch is recorded", Self::is_mirror)?;
                }
                self.written.insert(path);
            }
            Change::Sync(path) => {
                self.is_recorded |= path == self.path("state/sled/db");
                self.named.retain(|name| name.parent() != Some(&path));
                if self.written.remove(&path) && self.is_large(&path) {
                    self.blobs.insert(path);
                }
            }
            Change::Create(path) => {
                if self.named.contains(&path) && !path.ends_with("..events.jsonl.index.tmp") {
                    return Err(format!("{} is created again before its rename is synced", path.display()));
                }
                self.named.insert(path);
            }
            Change::Rename { from, to } => self.rename(from, to)?,
            Change::Other(_) => {}
        }
        Ok(())
    }

    fn rename(&mut self, from: PathBuf, to: PathBuf) -> Result<(), String> {
        if self.written.contains(&from) {
            return Err(format!("{} is renamed before it is synced", from.display()));
        }
        if to == self.path("state/cursors.json") {
            self.mirrors += 1;
            if !self.is_recorded {
                return Err("the mirror is replaced before the database is synced".to_owned());
            }
            self.require("the mirror is replaced", Self::is_recorded)?;
        }
        self.closed += usize::from(from == self.path("events.jsonl"));
        self.named.extend([from, to]);
        Ok(())
    }

    fn is_mirror(&self, path: &Path) -> bool {
        path == self.path("state/cursors.json")
    }

    /// Whether the mirror relies on this file.
    fn is_recorded(&self, path: &Path) -> bool {
        // The active file and closed files, but not their index, which can be rebuilt.
        let is_events = path.starts_with(&self.directory)
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("events"));
        is_events || path == self.path("state/sled/db") || self.is_large(path)
    }

    /// Whether the file contains a value that is too large for the main file of the database.
    fn is_large(&self, path: &Path) -> bool {
        ["state/sled/blobs", "state/sled/bodies"].iter().any(|directory| path.starts_with(self.path(directory)))
    }

    fn require(&self, what: &str, matters: fn(&Self, &Path) -> bool) -> Result<(), String> {
        match self.written.iter().chain(&self.named).find(|path| matters(self, path)) {
            Some(path) => Err(format!("{what}, and a power loss would take {}", path.display())),
            None => Ok(()),
        }
    }
}

/// Runs the daemon until the file has this number of events, then stops it. Returns the changes that the daemon made.
async fn changes(setup: &Setup, events: usize) -> Vec<Change> {
    let (daemon, files, mut told) = (Traced::start(setup, None), Files::of(setup.path("events.jsonl")), false);
    let watched = || {
        if !told && files.lines() >= events {
            told = true;
            daemon.signal(Signal::SIGTERM);
        }
        daemon.has_ended().then_some(())
    };
    eventually("the traced daemon ends", watched).await;
    let traces = daemon.traces();
    assert_eq!(traces.code, Some(0), "{}", traces.log.0);
    traces.changes
}

#[tokio::test]
async fn processed_events_are_synced_to_the_disk() {
    if !can_trace() {
        return;
    }
    let simulator = Simulator::start(Options { unsigned: 0.2, ..Options::default() }).await.unwrap();
    for _ in 0..FORGED {
        simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    }
    simulator.publish(0, 240);
    let setup = Setup::reading(&simulator).with("api.page_limit", PAGE).with("sinks.file.rotate_size", "16KiB");
    let changes = changes(&setup, deliverable(&simulator, 0).len()).await;

    let Disk { mirrors, closed, .. } = Disk::after(&setup, &changes);
    println!("{} changes, {mirrors} mirrors, {closed} files closed", changes.len());
    assert!(mirrors > 5 && closed > 2, "{mirrors} mirrors, {closed} files closed");
}

#[tokio::test]
async fn large_pending_or_quarantined_events_are_synced_before_they_are_recorded() {
    if !can_trace() {
        return;
    }
    let event = |offset: i64, kind: &str, payload: &str| {
        let id = Uuid::from_u128(offset.unsigned_abs().into());
        let headers = format!(r#"{{"type":"{kind}","offset":{offset},"proofs":[]}}"#);
        format!(r#"{{"event_id":"{id}","headers":{headers},"payload":{payload}}}"#)
    };
    let text = "e30".repeat(LARGE / 3);
    let waits = event(1, "watcher.event", &format!(r#"{{"verifiable_event":"{text}"}}"#));
    let is_malformed = event(2, "watcher.event", &format!(r#""{text}""#));
    let page = [event(3, "wallet.status", r#"{"status":"deployed"}"#), is_malformed, waits].join(",");
    let service = Scripted::answering(move |asked| {
        let events = if asked.offset.is_some_and(|offset| offset >= 3) { "" } else { &page };
        format!(r#"{{"events":[{events}],"has_more":false}}"#).into_response()
    })
    .await;
    let channel = ChannelId(Uuid::from_u128(7));
    let setup = Setup::of(&service.base_url(), "key", &[channel]);
    let changes = changes(&setup, 1).await;

    let blobs = Disk::after(&setup, &changes).blobs;
    assert_eq!(blobs.len(), 2, "{blobs:?}");
    let ledger = setup.ledger(channel).await;
    assert_eq!((ledger.late().len(), ledger.quarantined().len()), (1, 1));
}
