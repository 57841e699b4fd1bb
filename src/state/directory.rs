//! The state directory: its lock, its database, and the way back when the database does not open.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::StateError;
use super::mirror::{Contents, Mirror};
use super::store::Store;
use crate::telemetry::Chain;

const DATABASE: &str = "sled";
const LOCK: &str = "lock";

/// The locked directory. The lock goes with the process, however it ends.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates the directory where it is missing, readable by its owner alone, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, StateError> {
        let failed =
            |doing: &str, error| StateError::io(format!("{doing} the state directory {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed("creating", error))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut lock = options.open(path.join(LOCK)).map_err(|error| failed("writing to", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, lock)),
            Err(TryLockError::Error(error)) => return Err(failed("locking", error)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(|e| failed("writing to", e))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn mirror(&self) -> Mirror {
        Mirror::in_directory(&self.path)
    }

    /// Opens the database, and makes sure that it knows no less than the mirror.
    pub(super) fn open_store(&self) -> Result<Store, StateError> {
        let mut mirror = self.mirror().read();
        let database = self.path.join(DATABASE);
        let missing = !database.exists();
        if missing && matches!(mirror, Ok(None)) {
            // It says that nothing was ever recorded: what a crash leaves of a database that was being created is then
            // not taken for one that knew where we were.
            self.mirror().write(&Contents::default())?;
            mirror = Ok(Some(Contents::default()));
        }
        let store = match Store::open(&database) {
            Ok(store) => store,
            Err(StateError::DamagedDatabase(message)) => return self.replace_store(&database, mirror?, message),
            Err(error) => return Err(error),
        };
        let mirror = match mirror {
            Ok(Some(mirror)) => mirror,
            Ok(None) => return Ok(store),
            Err(error @ StateError::Damaged(_)) if !missing => {
                tracing::warn!(error = %Chain(&error), "the mirror is of no use: the state database holds, and the mirror is written anew");
                return Ok(store);
            }
            Err(error) => return Err(error),
        };
        if !knows_all(&store, &mirror)? {
            tracing::warn!(
                database_missing = missing,
                "the state database is older than cursors.json: the cursors and late proofs of cursors.json hold"
            );
            self.restore(&store, &mirror)?;
        }
        Ok(store)
    }

    /// Keeps the damaged database aside and begins a new one where the mirror says.
    fn replace_store(&self, database: &Path, mirror: Option<Contents>, message: String) -> Result<Store, StateError> {
        let Some(mirror) = mirror else {
            return Err(StateError::Lost { path: self.path.display().to_string(), message });
        };
        let aside = self.path.join(format!("{DATABASE}.damaged-{}", jiff::Timestamp::now().as_millisecond()));
        let failed = |error| StateError::io(format!("keeping {} aside", database.display()), error);
        fs::rename(database, &aside).map_err(failed)?;
        tracing::error!(
            error = message,
            kept = %aside.display(),
            "the state database could not be opened: it is kept aside with its quarantined events, and the cursors \
             and late proofs go on from cursors.json"
        );
        let store = Store::open(database)?;
        self.restore(&store, &mirror)?;
        Ok(store)
    }

    fn restore(&self, store: &Store, mirror: &Contents) -> Result<(), StateError> {
        let restored = store.restore(&mirror.cursors, &mirror.late);
        restored.and_then(|()| DatabaseFiles::in_directory(&self.path).sync()).inspect_err(|_| store.abandon())
    }

    /// The files that must be synced for a commit to be on disk.
    pub(super) fn database_files(&self) -> DatabaseFiles {
        DatabaseFiles::in_directory(&self.path)
    }
}

/// Whether no cursor of the database is behind the mirror's. It never is, unless the database lost something that it
/// had already confirmed: the mirror is written last.
fn knows_all(store: &Store, mirror: &Contents) -> Result<bool, StateError> {
    let cursors = store.cursors()?;
    Ok(mirror.cursors.iter().all(|(lane, mirrored)| cursors.get(lane).is_some_and(|cursor| cursor >= mirrored)))
}

fn in_use(path: &Path, mut lock: File) -> StateError {
    let mut holder = String::new();
    let read = lock.rewind().and_then(|()| lock.read_to_string(&mut holder));
    let holder = if read.is_ok() && !holder.trim().is_empty() { holder.trim() } else { "unknown" };
    StateError::InUse { path: path.display().to_string(), holder: holder.to_owned() }
}

/// sled's files, synced by name: its own flush does not.
#[derive(Debug)]
pub(super) struct DatabaseFiles {
    directory: PathBuf,
    synced_blobs: BTreeSet<OsString>,
}

impl DatabaseFiles {
    fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.join(DATABASE), synced_blobs: BTreeSet::new() }
    }

    /// Syncs the log, and the values too large for it, which sled keeps in files of their own and never syncs.
    pub(super) fn sync(&mut self) -> Result<(), StateError> {
        let log = self.directory.join("db");
        self.sync_blobs()
            .and_then(|()| File::open(&log)?.sync_data())
            .map_err(|error| StateError::io(format!("syncing {}", self.directory.display()), error))
    }

    fn sync_blobs(&mut self) -> io::Result<()> {
        let blobs = self.directory.join("blobs");
        let names: BTreeSet<OsString> =
            fs::read_dir(&blobs)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<_>>()?;
        let mut new = names.difference(&self.synced_blobs).peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        for name in new {
            match File::open(blobs.join(name)) {
                Ok(blob) => blob.sync_data()?,
                // Already garbage again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        File::open(&blobs)?.sync_all()?;
        self.synced_blobs = names;
        Ok(())
    }
}
