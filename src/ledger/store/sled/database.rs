//! The database. Only this file uses the sled API.
//!
//! sled's own flush ends in `sync_file_range`, which is not a durability barrier. This module therefore syncs sled's
//! files by name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bytes::Bytes;
use net::shortage::Shortage;
use sled::Transactional;
use sled::transaction::{ConflictableTransactionError, TransactionError};
use strum::IntoEnumIterator;
use uuid::Uuid;

use super::bodies::{self, Bodies};
use super::room;
use crate::store::Lease;
use crate::store::directory::sync_directory;
use crate::{Effects, Entries, Key, StateError, Table, Value};
use net::tasks::lock;
use proof::event::ChannelId;

/// Since format 2, a dead letter's body is stored separately from its facts.
const FORMAT: &str = "2";
const FORMAT_KEY: &str = "format";

/// sled's default is a gigabyte. The state of a thousand channels is far below a megabyte.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// A flush that takes longer than this may wait forever: see [`flush`](Database::flush).
const SLOW_FLUSH: Duration = Duration::from_secs(1);

const UUID_LENGTH: usize = 16;

#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    db: sled::Db,
    /// sled's log, opened once more.
    log: File,
    /// One tree for each [`Table`], in the same order.
    trees: Vec<sled::Tree>,
    synced_blobs: Mutex<BTreeSet<OsString>>,
    bodies: Bodies,
    is_abandoned: AtomicBool,
}

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let open = || -> Result<Self, sled::Error> {
            let db = sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .mode(sled::Mode::LowSpace)
                .flush_every_ms(None)
                .open()?;
            let trees =
                Table::iter().map(|table| db.open_tree(<&str>::from(table))).collect::<Result<Vec<sled::Tree>, _>>()?;
            let mut marked = BTreeSet::new();
            for table in Table::BODIES {
                for entry in &trees[table as usize] {
                    let (key, value) = entry?;
                    marked.extend(
                        bodies::marked(&value).map(|length| bodies::file_name(&event_name(table.into(), &key), length)),
                    );
                }
            }
            // An error of the file system is not damage to the database.
            let bodies =
                Bodies::open(path.join("bodies"), &marked).map_err(|error| sled::Error::Io(io::Error::other(error)))?;
            let log = OpenOptions::new().write(true).open(path.join("db"))?;
            Ok(Self {
                path: path.to_owned(),
                db,
                log,
                trees,
                synced_blobs: Mutex::default(),
                bodies,
                is_abandoned: AtomicBool::new(false),
            })
        };
        let database = caught(|| open().map_err(|error| unreadable("opening", &error)), || {})?;
        database.caught(Self::be_in_our_format)?;
        let synced = |error| StateError::io(format!("syncing {}", path.display()), error);
        database.sync_all().map_err(synced).inspect_err(|_| database.abandon())?;
        Ok(database)
    }

    /// Runs `work` on a database that may be damaged. If sled panics, the database is abandoned.
    pub(super) fn caught<T>(&self, work: impl FnOnce(&Self) -> Result<T, StateError>) -> Result<T, StateError> {
        caught(|| work(self), || self.abandon())
    }

    /// Leaves the database unchanged from now on, by never dropping it: when it is dropped, sled tries to write once more,
    /// and panics if that fails too. The process is about to end, and events that were not recorded are read again from
    /// the service.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        std::mem::forget((self.db.clone(), self.trees.clone()));
    }

    fn be_in_our_format(&self) -> Result<(), StateError> {
        let format = self.db.get(FORMAT_KEY).map_err(|error| unreadable("reading", &error))?;
        match format.as_deref().map(String::from_utf8_lossy).as_deref() {
            Some(FORMAT) => return Ok(()),
            Some("1") | None => {}
            Some(other) => return Err(StateError::unknown_format(other, FORMAT)),
        }
        let written = self.separate_dead_bodies().and_then(|()| self.db.insert(FORMAT_KEY, FORMAT.as_bytes()));
        if let Err(error) = written.and_then(|_| self.flush()) {
            self.abandon();
            return Err(failed("writing", &error));
        }
        Ok(())
    }

    /// Format 1 stores a dead letter's body after its facts in the same value. The migration can be interrupted and
    /// repeated.
    fn separate_dead_bodies(&self) -> Result<(), sled::Error> {
        let (letters, bodies) = (&self.trees[Table::DeadLetter as usize], &self.trees[Table::DeadBody as usize]);
        for entry in letters {
            let (key, value) = entry?;
            if let Some(end) = value.iter().position(|byte| *byte == b'\n') {
                bodies.insert(&key, &value[end + 1..])?;
                letters.insert(&key, &value[..end])?;
            }
        }
        Ok(())
    }

    /// All entries of a channel. Bodies are represented by their size only.
    pub(super) fn entries(&self, channel: ChannelId) -> Result<Entries, StateError> {
        let mut entries = Entries::new();
        for tree in self.all_trees()? {
            let kind = String::from_utf8_lossy(&tree.name()).into_owned();
            for entry in tree.scan_prefix(channel.0.as_bytes()) {
                let (full, value) = entry.map_err(|error| unreadable("reading", &error))?;
                let key = Key::parse(&kind, &full[UUID_LENGTH..])?;
                let is_body = Table::BODIES.contains(&(&key).into());
                let value = match bodies::marked(&value).filter(|_| is_body) {
                    None => Value::of(&key, &value),
                    Some(length) if self.bodies.has(&event_name(&kind, &full), length) => Value::Size(length),
                    // The body is lost, and its entry is left out. `recovery` notices this when the database is opened:
                    // it removes quarantined events and dead letters without a body, and compares their numbers with
                    // the mirror.
                    Some(_) => continue,
                };
                entries.insert(key, value);
            }
        }
        Ok(entries)
    }

    /// The trees of the tables, and then the trees of unknown kinds, which a newer version created.
    fn all_trees(&self) -> Result<Vec<sled::Tree>, StateError> {
        let mut trees = self.trees.clone();
        let default = self.db.name();
        for name in self.db.tree_names() {
            let is_known = name == default || self.trees.iter().any(|tree| tree.name() == name);
            if !is_known {
                trees.push(self.db.open_tree(name).map_err(|error| unreadable("reading", &error))?);
            }
        }
        Ok(trees)
    }

    /// The tree of a table. Creates the tree of an unknown kind.
    fn tree(&self, key: &Key) -> Result<sled::Tree, StateError> {
        match key {
            Key::Other(other) => self.db.open_tree(&*other.kind).map_err(|error| failed("writing", &error)),
            known => Ok(self.trees[Table::from(known) as usize].clone()),
        }
    }

    pub(super) fn get(&self, channel: ChannelId, key: &Key) -> Result<Option<Bytes>, StateError> {
        let (kind, full) = (key.kind(), full(channel, key));
        let found = self.tree(key)?.get(&full).map_err(|error| unreadable("reading", &error))?;
        match found.as_deref().map(|value| (value, bodies::marked(value))) {
            Some((_, Some(length))) => {
                let event = event_name(kind, &full);
                let failed = |error| StateError::io(format!("reading the body {event}"), error);
                self.bodies.read(&event, length).map_err(failed)
            }
            found => Ok(found.map(|(value, _)| Bytes::copy_from_slice(value))),
        }
    }

    /// The channels that have entries. A key that is too short to name a channel concerns none.
    pub(super) fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        let mut channels = BTreeSet::new();
        for tree in self.all_trees()? {
            for key in tree.iter().keys() {
                let key = key.map_err(|error| unreadable("reading", &error))?;
                channels.extend(key.get(..UUID_LENGTH).and_then(|id| Uuid::from_slice(id).ok()).map(ChannelId));
            }
        }
        Ok(channels)
    }

    /// Whether the database accepts no more writes.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Applies all changes of a group or none, and returns when they are on disk. After a failure the database is
    /// abandoned, unless the same group can be applied again: nothing was written to the database, or a file could not be
    /// opened to sync it.
    pub(super) fn apply(&self, group: &[(Lease, Effects)]) -> Result<(), StateError> {
        let failed_body = |doing| move |error| StateError::io(format!("{doing} a body"), error);
        let abandon_unless_short = |error: &StateError| {
            if error.shortage().is_none() {
                self.abandon();
            }
        };
        let changes = group.iter().flat_map(|(_, effects)| &effects.changes);
        let bytes = changes.filter_map(|(_, value)| value.as_ref()).map(Bytes::len).sum();
        room::reserve(&self.path, &self.log, bytes)?;
        let bodies = bodies_of(group);
        let written = bodies.iter().filter_map(|(event, body)| Some((event, (*body)?)));
        self.bodies.write(written).map_err(failed_body("writing")).inspect_err(abandon_unless_short)?;
        let mut trees = self.trees.clone();
        let mut others = BTreeMap::new();
        for (key, _) in group.iter().flat_map(|(_, effects)| &effects.changes) {
            if let Key::Other(other) = key
                && !others.contains_key(&other.kind)
            {
                others.insert(other.kind.clone(), trees.len());
                trees.push(self.tree(key)?);
            }
        }
        let changed = trees[..].transaction(|trees| {
            for (lease, effects) in group {
                for (key, value) in &effects.changes {
                    let table = Table::from(key);
                    let tree = match key {
                        Key::Other(other) => &trees[others[&other.kind]],
                        _ => &trees[table as usize],
                    };
                    let key = full(lease.channel, key);
                    let marker =
                        value.as_ref().filter(|_| Table::BODIES.contains(&table)).and_then(|body| bodies::marker(body));
                    match value {
                        Some(value) => tree.insert(key, marker.as_deref().unwrap_or(value))?,
                        None => tree.remove(key)?,
                    };
                }
            }
            Ok::<(), ConflictableTransactionError<()>>(())
        });
        let changed = match changed {
            Ok(()) => self.flush(),
            Err(TransactionError::Storage(error)) => Err(error),
            Err(TransactionError::Abort(())) => unreachable!("nothing aborts it"),
        };
        changed.map_err(|error| failed("writing", &error)).inspect_err(|_| self.abandon())?;
        self.sync().map_err(|error| {
            let failed = StateError::io(format!("syncing {}", self.path.display()), error);
            // After a failed sync, the contents of the disk are unknown. If a descriptor was missing, nothing was synced.
            if failed.shortage() != Some(Shortage::Descriptors) {
                self.abandon();
            }
            failed
        })?;
        self.bodies
            .remove_others(bodies.iter().map(|(event, body)| (event, *body)))
            .map_err(failed_body("removing"))
            .inspect_err(abandon_unless_short)
    }

    /// Passes all writes to the operating system.
    ///
    /// If a write on one of sled's own threads fails, sled records the error but may not wake the waiting flush, which
    /// then waits forever. A second flush finds the recorded error and wakes the first.
    fn flush(&self) -> sled::Result<()> {
        std::thread::scope(|scope| {
            let (done, waiting) = std::sync::mpsc::channel::<()>();
            let flush_again = move || {
                while waiting.recv_timeout(SLOW_FLUSH) == Err(RecvTimeoutError::Timeout) {
                    // The first flush returns the same error.
                    let _ = self.db.flush();
                }
            };
            // If the machine has no thread left, the flush continues without the second one, which is rarely needed.
            let _ = std::thread::Builder::new().spawn_scoped(scope, flush_again);
            let flushed = self.db.flush().map(drop);
            drop(done);
            flushed
        })
    }

    /// Syncs the files that were found at the start. A killed process may have left unsynced data, and new files whose
    /// directory entries are not synced.
    fn sync_all(&self) -> io::Result<()> {
        self.sync()?;
        sync_directory(&self.bodies.path)?;
        sync_directory(&self.path)
    }

    /// Syncs the log and the blobs. Blobs are values that are too large for the log. sled keeps them in separate files
    /// and never syncs them.
    fn sync(&self) -> io::Result<()> {
        let blobs = self.path.join("blobs");
        let mut synced = lock(&self.synced_blobs);
        let names = fs::read_dir(&blobs)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<BTreeSet<_>>>()?;
        let new: Vec<_> = names.difference(&synced).collect();
        for name in &new {
            match File::open(blobs.join(name)) {
                Ok(blob) => blob.sync_data()?,
                // sled has already deleted the blob.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if !new.is_empty() {
            sync_directory(&blobs)?;
        }
        *synced = names;
        self.log.sync_data()
    }
}

/// Turns a panic of sled into an error. sled was observed to panic on a damaged database.
fn caught<T>(work: impl FnOnce() -> Result<T, StateError>, panicked: impl FnOnce()) -> Result<T, StateError> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        panicked();
        Err(StateError::DamagedDatabase("it panicked".to_owned()))
    })
}

/// The bodies that a group changes, by event. The value is the new body if it is large, and `None` otherwise.
fn bodies_of(group: &[(Lease, Effects)]) -> BTreeMap<String, Option<&Bytes>> {
    let changes =
        group.iter().flat_map(|(lease, effects)| effects.changes.iter().map(|change| (lease.channel, change)));
    let of_bodies = changes.filter(|(_, (key, _))| Table::BODIES.contains(&key.into()));
    let large = |body: &&Bytes| bodies::marker(body).is_some();
    of_bodies
        .map(|(channel, (key, body))| (event_name(key.kind(), &full(channel, key)), body.as_ref().filter(large)))
        .collect()
}

/// The part of a body's file name that identifies the event.
fn event_name(kind: &str, key: &[u8]) -> String {
    format!("{kind}-{}", hex::encode(key))
}

fn full(channel: ChannelId, key: &Key) -> Vec<u8> {
    [&channel.0.as_bytes()[..], &key.bytes()].concat()
}

fn failed(doing: &str, error: &sled::Error) -> StateError {
    StateError::io(format!("the state database failed while {doing}"), io::Error::other(error.to_string()))
}

/// Distinguishes a damaged database from an error of the system below it. A full disk is not damage.
fn unreadable(doing: &str, error: &sled::Error) -> StateError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    let is_damage = match error {
        sled::Error::Io(error) => {
            matches!(error.kind(), InvalidData | InvalidInput | IsADirectory | NotADirectory | NotFound | UnexpectedEof)
        }
        sled::Error::Corruption { .. }
        | sled::Error::ReportableBug(_)
        | sled::Error::Unsupported(_)
        | sled::Error::CollectionNotFound(_) => true,
    };
    if is_damage { StateError::DamagedDatabase(error.to_string()) } else { failed(doing, error) }
}
