//! sled. The only file that knows it.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use bytes::Bytes;
use sled::Transactional;
use sled::transaction::{
    ConflictableTransactionError, TransactionError, TransactionalTree, UnabortableTransactionError,
};

use super::StateError;
use super::trees::{Aborted, Change, Database, See, Tree, Trees};

const FORMAT: &str = "1";
const FORMAT_KEY: &str = "format";

/// sled would take a gigabyte; the state of a thousand channels is far below a megabyte.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// A flush that takes longer may be waiting for nothing.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// The open database.
#[derive(Debug)]
pub(super) struct Sled {
    db: sled::Db,
    /// As in [`Tree::ALL`].
    trees: Vec<sled::Tree>,
}

impl Sled {
    /// Opens the database in `path`. sled has been seen to panic on a damaged one: that is an error like any other.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let open = || -> Result<Self, sled::Error> {
            let db = sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .mode(sled::Mode::LowSpace)
                .flush_every_ms(None)
                .open()?;
            let trees = Tree::ALL.iter().map(|tree| db.open_tree(tree.name())).collect::<Result<_, _>>()?;
            Ok(Self { db, trees })
        };
        match std::panic::catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(sled)) => sled.of_our_format(),
            Ok(Err(error)) if is_damage(&error) => Err(StateError::DamagedDatabase(error.to_string())),
            Ok(Err(error)) => Err(failed("opening", &error)),
            Err(_) => Err(StateError::DamagedDatabase("it panicked".to_owned())),
        }
    }

    fn of_our_format(self) -> Result<Self, StateError> {
        match self.db.get(FORMAT_KEY).map_err(|error| failed("reading", &error))? {
            Some(format) if format == FORMAT.as_bytes() => Ok(self),
            Some(format) => {
                Err(StateError::Format { found: String::from_utf8_lossy(&format).into_owned(), known: FORMAT })
            }
            None => match self.db.insert(FORMAT_KEY, FORMAT.as_bytes()) {
                Ok(_) => Ok(self),
                Err(error) => {
                    // Left as it is, for good: sled would write once more when it is dropped, and panic.
                    std::mem::forget(self);
                    Err(failed("writing", &error))
                }
            },
        }
    }

    fn tree(&self, tree: Tree) -> &sled::Tree {
        &self.trees[tree as usize]
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
}

impl Database for Sled {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let found = self.tree(tree).get(key).map_err(|error| failed("reading", &error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, tree: Tree, prefix: &[u8], see: &mut See<'_>) -> Result<(), StateError> {
        self.tree(tree).scan_prefix(prefix).try_for_each(|entry| {
            let (key, value) = entry.map_err(|error| failed("reading", &error))?;
            see(&key, &value)
        })
    }

    fn transact(&self, change: &Change<'_>) -> Result<(), StateError> {
        let changed = self.trees[..].transaction(|trees| {
            change(&InTransaction(trees)).map_err(|aborted| match aborted {
                Aborted::Failed(error) => ConflictableTransactionError::Abort(error),
                Aborted::Conflict => ConflictableTransactionError::Conflict,
            })
        });
        match changed {
            Ok(()) => self.flush().map_err(|error| failed("writing", &error)),
            Err(TransactionError::Abort(error)) => Err(error),
            Err(TransactionError::Storage(error)) => Err(failed("writing", &error)),
        }
    }
}

/// As in [`Tree::ALL`].
struct InTransaction<'t>(&'t [TransactionalTree]);

impl InTransaction<'_> {
    fn tree(&self, tree: Tree) -> &TransactionalTree {
        &self.0[tree as usize]
    }
}

impl Trees for InTransaction<'_> {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Bytes>, Aborted> {
        Ok(self.tree(tree).get(key)?.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn insert(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Aborted> {
        self.tree(tree).insert(key, value)?;
        Ok(())
    }

    fn remove(&self, tree: Tree, key: &[u8]) -> Result<bool, Aborted> {
        Ok(self.tree(tree).remove(key)?.is_some())
    }
}

impl From<UnabortableTransactionError> for Aborted {
    fn from(error: UnabortableTransactionError) -> Self {
        match error {
            UnabortableTransactionError::Conflict => Self::Conflict,
            UnabortableTransactionError::Storage(error) => Self::Failed(failed("writing", &error)),
        }
    }
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
