//! The database itself: the only file that knows sled.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bytes::Bytes;
use sled::Transactional;
use sled::transaction::{ConflictableTransactionError, TransactionError};
use strum::IntoEnumIterator;
use uuid::Uuid;

use crate::event::ChannelId;
use crate::ledger::store::Lease;
use crate::ledger::{Effects, Key, StateError, Table, Value};

/// Since 2 a dead letter's body stands apart from what is known about it.
const FORMAT: &str = "2";
const FORMAT_KEY: &str = "format";

/// sled would take a gigabyte; the state of a thousand channels is far below a megabyte.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// A flush that takes longer may be waiting for nothing.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

const UUID_LENGTH: usize = 16;

/// The open database.
#[derive(Clone, Debug)]
pub(super) struct Database {
    db: sled::Db,
    /// One for each [`Table`], in its order.
    trees: Vec<sled::Tree>,
}

impl Database {
    /// Opens the database in `path`. sled has been seen to panic on a damaged one: that is an error like any other.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let open = || -> Result<Self, sled::Error> {
            let db = sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .mode(sled::Mode::LowSpace)
                .flush_every_ms(None)
                .open()?;
            let trees = Table::iter().map(|table| db.open_tree(name(table))).collect::<Result<_, _>>()?;
            Ok(Self { db, trees })
        };
        match std::panic::catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(database)) => database.in_our_format(),
            Ok(Err(error)) if is_damage(&error) => Err(StateError::DamagedDatabase(error.to_string())),
            Ok(Err(error)) => Err(failed("opening", &error)),
            Err(_) => Err(StateError::DamagedDatabase("it panicked".to_owned())),
        }
    }

    /// Leaves the database as it is, for good: sled would try to write once more when it is dropped, and panic where that
    /// fails too. The process is about to end, and what was not written is read again from the service.
    pub(super) fn abandon(&self) {
        std::mem::forget(self.clone());
    }

    fn in_our_format(self) -> Result<Self, StateError> {
        match self.db.get(FORMAT_KEY).map_err(|error| failed("reading", &error))? {
            Some(format) if format == FORMAT.as_bytes() => return Ok(self),
            Some(format) if format == b"1" => {}
            Some(format) => {
                return Err(StateError::Format { found: String::from_utf8_lossy(&format).into_owned(), known: FORMAT });
            }
            None => {}
        }
        let written = self.separate_dead_bodies().and_then(|()| self.db.insert(FORMAT_KEY, FORMAT.as_bytes()));
        if let Err(error) = written.and_then(|_| self.flush()) {
            self.abandon();
            return Err(failed("writing", &error));
        }
        Ok(self)
    }

    /// Format 1 has a dead letter's body below what is known about it. Can be interrupted and done again.
    fn separate_dead_bodies(&self) -> Result<(), sled::Error> {
        let (letters, bodies) = (self.tree(Table::DeadLetters), self.tree(Table::DeadBodies));
        for entry in letters {
            let (key, value) = entry?;
            if let Some(end) = value.iter().position(|byte| *byte == b'\n') {
                bodies.insert(&key, &value[end + 1..])?;
                letters.insert(&key, &value[..end])?;
            }
        }
        Ok(())
    }

    fn tree(&self, table: Table) -> &sled::Tree {
        &self.trees[table as usize]
    }

    /// Every entry of a channel, with bodies by their size alone.
    pub(super) fn entries(&self, channel: ChannelId) -> Result<Vec<(Key, Value)>, StateError> {
        let mut entries = Vec::new();
        for table in Table::iter() {
            for entry in self.tree(table).scan_prefix(channel.0.as_bytes()) {
                let (key, value) = entry.map_err(|error| read_failed(&error))?;
                let key = Key::parse(table, &key[UUID_LENGTH..])?;
                let size = Value::Size(value.len() as u64);
                let value = if table.holds_bodies() { size } else { Value::Bytes(Bytes::copy_from_slice(&value)) };
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    pub(super) fn get(&self, channel: ChannelId, key: &Key) -> Result<Option<Bytes>, StateError> {
        let found = self.tree(key.table()).get(full(channel, key)).map_err(|error| failed("reading", &error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// The channels that have an entry.
    pub(super) fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        let mut channels = BTreeSet::new();
        for tree in &self.trees {
            for key in tree.iter().keys() {
                let key = key.map_err(|error| read_failed(&error))?;
                let id = key.get(..UUID_LENGTH).and_then(|id| Uuid::from_slice(id).ok());
                channels.insert(ChannelId(id.ok_or_else(|| StateError::damaged("a key cannot be read"))?));
            }
        }
        Ok(channels)
    }

    /// Makes every change of a group or none, and hands them to the operating system.
    pub(super) fn apply(&self, group: &[(Lease, Effects)]) -> Result<(), StateError> {
        let changes =
            || group.iter().flat_map(|(lease, effects)| effects.changes.iter().map(move |change| (lease, change)));
        let tables: Vec<Table> =
            changes().map(|(_, (key, _))| key.table()).collect::<BTreeSet<_>>().into_iter().collect();
        let trees: Vec<&sled::Tree> = tables.iter().map(|table| self.tree(*table)).collect();
        let changed = trees[..].transaction(|trees| {
            for (lease, (key, value)) in changes() {
                let tree = tables.binary_search(&key.table()).expect("it was collected from the same changes");
                let full = full(lease.channel, key);
                match value {
                    Some(value) => trees[tree].insert(full, &value[..])?,
                    None => trees[tree].remove(full)?,
                };
            }
            Ok::<(), ConflictableTransactionError<()>>(())
        });
        match changed {
            Ok(()) => self.flush().map_err(|error| failed("writing", &error)),
            Err(TransactionError::Storage(error)) => Err(failed("writing", &error)),
            Err(TransactionError::Abort(())) => unreachable!("nothing aborts it"),
        }
    }

    /// Hands everything to the operating system.
    ///
    /// Where a write of its own threads fails, sled notes that down and may wake nothing, so that its flush waits for ever.
    /// A second flush finds what was noted down, and wakes the first.
    fn flush(&self) -> sled::Result<()> {
        std::thread::scope(|scope| {
            let (done, waiting) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while waiting.recv_timeout(SLOW_FLUSH) == Err(RecvTimeoutError::Timeout) {
                    // What comes of it, the first flush says too.
                    let _ = self.db.flush();
                }
            });
            let flushed = self.db.flush().map(drop);
            drop(done);
            flushed
        })
    }
}

fn name(table: Table) -> &'static str {
    table.into()
}

fn full(channel: ChannelId, key: &Key) -> Vec<u8> {
    [&channel.0.as_bytes()[..], &key.bytes()].concat()
}

/// Whether the database itself is at fault, and not the system that it stands on: a full disk is no damage.
fn is_damage(error: &sled::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    match error {
        sled::Error::Corruption { .. }
        | sled::Error::ReportableBug(_)
        | sled::Error::Unsupported(_)
        | sled::Error::CollectionNotFound(_) => true,
        sled::Error::Io(error) => {
            matches!(error.kind(), InvalidData | InvalidInput | IsADirectory | NotADirectory | NotFound | UnexpectedEof)
        }
    }
}

fn failed(doing: &'static str, error: &sled::Error) -> StateError {
    StateError::Database { doing, message: error.to_string() }
}

fn read_failed(error: &sled::Error) -> StateError {
    if is_damage(error) { StateError::DamagedDatabase(error.to_string()) } else { failed("reading", error) }
}
