//! The database behind the few operations that the rest needs. The only file that knows sled.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bytes::Bytes;
use sled::Transactional;
use sled::transaction::{ConflictableTransactionError, TransactionError, TransactionalTree};
use tokio::sync::watch;

use super::codec::{self, Late, Quarantined};
use super::{Acquitted, Commit, Cursor, Held, LaneKey, Pending, StateError};
use crate::event::{ChannelId, Offset};

const FORMAT: &str = "1";
const FORMAT_KEY: &str = "format";

/// sled would take a gigabyte; the state of a thousand channels is far below a megabyte.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// A flush that takes longer may be waiting for nothing.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// The open database.
#[derive(Clone, Debug)]
pub(super) struct Store {
    db: sled::Db,
    cursors: sled::Tree,
    late: sled::Tree,
    quarantine: sled::Tree,
    json: sled::Tree,
    /// What the quarantine holds. Counted once, at opening.
    held: Arc<watch::Sender<Held>>,
}

type Aborted = ConflictableTransactionError<StateError>;

impl Store {
    /// Opens the database in `path`. sled has been seen to panic on a damaged one: that is an error like any other.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let open = || -> Result<Self, sled::Error> {
            let db = sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .mode(sled::Mode::LowSpace)
                .flush_every_ms(None)
                .open()?;
            let tree = |name: &str| db.open_tree(name);
            Ok(Self {
                cursors: tree("cursors")?,
                late: tree("late")?,
                quarantine: tree("quarantine")?,
                json: tree("json")?,
                held: Arc::default(),
                db,
            })
        };
        match std::panic::catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(store)) => store.of_our_format()?.counted(),
            Ok(Err(error)) if is_damage(&error) => Err(StateError::DamagedDatabase(error.to_string())),
            Ok(Err(error)) => Err(database("opening", &error)),
            Err(_) => Err(StateError::DamagedDatabase("it panicked".to_owned())),
        }
    }

    fn of_our_format(self) -> Result<Self, StateError> {
        match self.db.get(FORMAT_KEY).map_err(|error| database("reading", &error))? {
            Some(format) if format == FORMAT.as_bytes() => Ok(self),
            Some(format) => {
                Err(StateError::Format { found: String::from_utf8_lossy(&format).into_owned(), known: FORMAT })
            }
            None => {
                let written =
                    self.db.insert(FORMAT_KEY, FORMAT.as_bytes()).map_err(|error| database("writing", &error));
                written.inspect_err(|_| self.abandon())?;
                Ok(self)
            }
        }
    }

    /// Leaves the database as it is, for good: sled would try to write once more when it is dropped, and panic where that
    /// fails too. The process is about to end, and what was not written is read again from the service.
    pub(super) fn abandon(&self) {
        std::mem::forget(self.clone());
    }

    fn counted(self) -> Result<Self, StateError> {
        let mut held = Held::default();
        for key in self.quarantine.iter().keys() {
            let json = key.and_then(|key| self.json.get(key)).map_err(|error| database("reading", &error))?;
            held = held.with(json.map_or(0, |json| json.len()));
        }
        self.held.send_replace(held);
        Ok(self)
    }

    pub(super) fn held(&self) -> watch::Receiver<Held> {
        self.held.subscribe()
    }

    /// Applies commits as one transaction and hands them to the operating system. Not yet on disk: see
    /// [`DatabaseFiles::sync`](super::directory::DatabaseFiles::sync).
    pub(super) fn apply(&self, commits: &[Commit]) -> Result<(), StateError> {
        let before = *self.held.borrow();
        let trees = (&self.cursors, &self.late, &self.quarantine, &self.json);
        let applied = trees.transaction(|(cursors, late, quarantine, json)| {
            let trees = Trees { cursors, late, quarantine, json, held: Cell::new(before) };
            commits.iter().try_for_each(|commit| trees.apply(commit))?;
            Ok(trees.held.get())
        });
        match applied {
            Ok(held) => {
                self.held.send_if_modified(|known| std::mem::replace(known, held) != held);
                self.flush().map_err(|error| database("writing", &error))
            }
            Err(TransactionError::Abort(error)) => Err(error),
            Err(TransactionError::Storage(error)) => Err(database("writing", &error)),
        }
    }

    /// Hands everything to the operating system.
    ///
    /// Where a write of its own threads fails, sled notes that down and may wake nobody, so that its flush waits for ever.
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

    /// Writes cursors and late proofs as a mirror has them. A cursor that is further already stays.
    pub(super) fn restore(&self, cursors: &BTreeMap<LaneKey, Cursor>, late: &LateEvents) -> Result<(), StateError> {
        let known = self.cursors()?;
        let write = || -> Result<(), sled::Error> {
            for (lane, cursor) in cursors.iter().filter(|(lane, cursor)| known.get(lane) < Some(cursor)) {
                self.cursors.insert(codec::lane_key(lane), codec::encode(&cursor.through))?;
            }
            for ((channel, offset), entry) in late {
                self.late.insert(codec::event_key(*channel, *offset), codec::encode(entry))?;
            }
            self.flush()
        };
        write().map_err(|error| database("restoring", &error))
    }

    pub(super) fn cursor(&self, lane: &LaneKey) -> Result<Option<Cursor>, StateError> {
        let stored = self.cursors.get(codec::lane_key(lane)).map_err(|error| database("reading", &error))?;
        stored.map(|value| Ok(Cursor { through: codec::decode(&value)? })).transpose()
    }

    pub(super) fn cursors(&self) -> Result<BTreeMap<LaneKey, Cursor>, StateError> {
        entries(&self.cursors, &[], |key, value| Ok((codec::lane_of(key)?, Cursor { through: codec::decode(value)? })))
    }

    pub(super) fn all_late(&self) -> Result<LateEvents, StateError> {
        entries(&self.late, &[], |key, value| Ok((codec::event_of(key)?, codec::decode(value)?)))
    }

    pub(super) fn late(&self, channel: ChannelId) -> Result<BTreeMap<Offset, Late>, StateError> {
        entries(&self.late, channel.0.as_bytes(), |key, value| Ok((codec::event_of(key)?.1, codec::decode(value)?)))
    }

    pub(super) fn quarantined(&self, channel: ChannelId) -> Result<BTreeMap<Offset, Quarantined>, StateError> {
        let entry = |key: &[u8], value: &[u8]| Ok((codec::event_of(key)?.1, codec::decode(value)?));
        entries(&self.quarantine, channel.0.as_bytes(), entry)
    }

    pub(super) fn late_at(&self, channel: ChannelId, offset: Offset) -> Result<Option<Late>, StateError> {
        let stored = self.late.get(codec::event_key(channel, offset)).map_err(|error| database("reading", &error))?;
        stored.map(|value| codec::decode(&value)).transpose()
    }

    pub(super) fn channels_in_quarantine(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        let keys = self.quarantine.iter().keys();
        keys.map(|key| Ok(codec::event_of(&key.map_err(|error| database("reading", &error))?)?.0)).collect()
    }

    pub(super) fn json(&self, channel: ChannelId, offset: Offset) -> Result<Option<Bytes>, StateError> {
        let stored = self.json.get(codec::event_key(channel, offset)).map_err(|error| database("reading", &error))?;
        Ok(stored.map(|json| Bytes::copy_from_slice(&json)))
    }
}

/// Every event that waits for its proof.
pub(super) type LateEvents = BTreeMap<(ChannelId, Offset), Late>;

fn entries<K: Ord, V>(
    tree: &sled::Tree,
    prefix: &[u8],
    read: impl Fn(&[u8], &[u8]) -> Result<(K, V), StateError>,
) -> Result<BTreeMap<K, V>, StateError> {
    tree.scan_prefix(prefix)
        .map(|entry| {
            let (key, value) = entry.map_err(|error| database("reading", &error))?;
            read(&key, &value)
        })
        .collect()
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

fn database(doing: &'static str, error: &sled::Error) -> StateError {
    StateError::Database { doing, message: error.to_string() }
}

/// The trees inside a transaction.
struct Trees<'t> {
    cursors: &'t TransactionalTree,
    late: &'t TransactionalTree,
    quarantine: &'t TransactionalTree,
    json: &'t TransactionalTree,
    held: Cell<Held>,
}

impl Trees<'_> {
    fn apply(&self, commit: &Commit) -> Result<(), Aborted> {
        for (lane, pending) in &commit.pending {
            self.owe(lane, pending)?;
        }
        for (lane, offset) in &commit.settled {
            self.settle(lane, *offset)?;
        }
        for (channel, evidence) in &commit.quarantined {
            let key = codec::event_key(*channel, evidence.facts.offset);
            self.late.remove(key.as_slice())?;
            self.release(&key)?;
            self.quarantine.insert(key.as_slice(), codec::encode(&evidence.facts))?;
            self.json.insert(key.as_slice(), &evidence.json[..])?;
            self.held.set(self.held.get().with(evidence.json.len()));
        }
        for (channel, acquitted) in &commit.acquitted {
            self.acquit(*channel, acquitted)?;
        }
        for (channel, offset) in &commit.dropped {
            self.discard(*channel, *offset)?;
        }
        for (lane, cursor) in &commit.set {
            self.cursors.insert(codec::lane_key(lane), codec::encode(&cursor.through))?;
        }
        match &commit.cursor {
            Some((lane, cursor)) => self.advance(lane, *cursor),
            None => Ok(()),
        }
    }

    fn acquit(&self, channel: ChannelId, acquitted: &Acquitted) -> Result<(), Aborted> {
        let key = codec::event_key(channel, acquitted.offset);
        if self.quarantine.get(&key)?.is_none() {
            return Ok(());
        }
        let mut owed = match self.late.get(&key)? {
            Some(stored) => codec::decode::<Late>(&stored).map_err(ConflictableTransactionError::Abort)?.owed,
            None => BTreeSet::new(),
        };
        for sink in &acquitted.sinks {
            let passed = self.cursors.get(codec::lane_key(&LaneKey { channel, sink: sink.clone() }))?;
            let passed = passed.map(|through| codec::decode::<Option<Offset>>(&through)).transpose();
            let passed = passed.map_err(ConflictableTransactionError::Abort)?.flatten();
            if passed.is_some_and(|through| through >= acquitted.offset) {
                owed.insert(sink.to_string());
            }
        }
        if !owed.is_empty() {
            let late = Late { event_id: acquitted.event_id, first_seen: acquitted.since, owed };
            self.late.insert(key.as_slice(), codec::encode(&late))?;
            self.release(&key)?;
        }
        Ok(())
    }

    /// Takes an event out of the quarantine, if it was in it; its bytes stay.
    fn release(&self, key: &[u8]) -> Result<bool, Aborted> {
        let there = self.quarantine.remove(key)?.is_some();
        if there {
            let bytes = self.json.get(key)?.map_or(0, |json| json.len());
            self.held.set(self.held.get().without(bytes));
        }
        Ok(there)
    }

    fn discard(&self, channel: ChannelId, offset: Offset) -> Result<(), Aborted> {
        let key = codec::event_key(channel, offset);
        if self.release(&key)? && self.late.get(&key)?.is_none() {
            self.json.remove(key.as_slice())?;
        }
        Ok(())
    }

    fn owe(&self, lane: &LaneKey, pending: &Pending) -> Result<(), Aborted> {
        let key = codec::event_key(lane.channel, pending.offset);
        let mut late: Late = match self.late.get(&key)? {
            Some(stored) => codec::decode(&stored).map_err(ConflictableTransactionError::Abort)?,
            None => Late { event_id: Some(pending.event_id), first_seen: pending.first_seen, owed: [].into() },
        };
        late.owed.insert(lane.sink.to_string());
        self.late.insert(key.as_slice(), codec::encode(&late))?;
        // What is evidence already keeps the bytes that it was condemned for.
        if self.quarantine.get(&key)?.is_none() {
            self.json.insert(key.as_slice(), &pending.json[..])?;
        }
        Ok(())
    }

    fn settle(&self, lane: &LaneKey, offset: Offset) -> Result<(), Aborted> {
        let key = codec::event_key(lane.channel, offset);
        let Some(stored) = self.late.get(&key)? else { return Ok(()) };
        let mut late: Late = codec::decode(&stored).map_err(ConflictableTransactionError::Abort)?;
        late.owed.remove(&*lane.sink);
        if late.owed.is_empty() {
            self.late.remove(key.as_slice())?;
            if self.quarantine.get(&key)?.is_none() {
                self.json.remove(key.as_slice())?;
            }
        } else {
            self.late.insert(key.as_slice(), codec::encode(&late))?;
        }
        Ok(())
    }

    fn advance(&self, lane: &LaneKey, cursor: Cursor) -> Result<(), Aborted> {
        let key = codec::lane_key(lane);
        if let Some(stored) = self.cursors.get(&key)? {
            let recorded: Option<Offset> = codec::decode(&stored).map_err(ConflictableTransactionError::Abort)?;
            if recorded > cursor.through {
                return Err(ConflictableTransactionError::Abort(backwards(lane, recorded, cursor.through)));
            }
        }
        self.cursors.insert(key, codec::encode(&cursor.through))?;
        Ok(())
    }
}

fn backwards(lane: &LaneKey, from: Option<Offset>, to: Option<Offset>) -> StateError {
    let show = |through| Cursor { through }.to_string();
    StateError::Backwards { channel: lane.channel, sink: lane.sink.to_string(), from: show(from), to: show(to) }
}
