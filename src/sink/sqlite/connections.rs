//! Connections to a database, and the descriptors of its files that this process has in addition to the descriptors of SQLite.
//!
//! # Invariants
//!
//! * **Closed after the last connection.** Closing any descriptor of a file releases all locks that the process has on the file,
//!   including the locks of its other connections. Another process could then remove the log of a database that is in use. A
//!   descriptor is therefore closed only when the process has no connection to the database. SQLite does the same with its own
//!   descriptors.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::system::{Identity, identity, identity_at};
use net::tasks::lock;

/// How long to wait for a lock of another program.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// The permissions of a new database, reduced by the umask. A file sink uses the same permissions.
const MODE: u32 = 0o640;

/// The databases to which this process has connections, by the identity of the main file.
static CONNECTED: Mutex<BTreeMap<Identity, Descriptors>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Descriptors {
    connections: usize,
    /// Of the main file and of the log's index.
    files: Vec<(Identity, Arc<File>)>,
}

/// Opens a database whose file exists.
pub(super) fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// A main file to which a connection is open, or will be opened. It must be dropped after the connection, and after the
/// descriptors that it has returned.
pub(super) struct ConnectedFile(Identity);

impl ConnectedFile {
    /// An existing main file.
    pub(super) fn of(main: &Metadata) -> Self {
        let identity = identity(main);
        lock(&CONNECTED).entry(identity).or_default().connections += 1;
        Self(identity)
    }

    /// The main file at the path, and its descriptor. Creates the file if it does not exist.
    pub(super) fn create(path: &Path) -> io::Result<(Self, Arc<File>)> {
        if let Ok(main) = path.metadata() {
            let connected = Self::of(&main);
            if let Some(main) = connected.known(connected.0) {
                return Ok((connected, main));
            }
        }
        let main = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path)?;
        let connected = Self::of(&main.metadata()?);
        let main = connected.keep(connected.0, main);
        Ok((connected, main))
    }

    pub(super) fn identity(&self) -> Identity {
        self.0
    }

    /// A descriptor of the log's index, which is at the path.
    pub(super) fn index(&self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(known) = identity_at(path).and_then(|identity| self.known(identity)) {
            return Ok(known);
        }
        let index = File::open(path)?;
        Ok(self.keep(identity(&index.metadata()?), index))
    }

    fn known(&self, identity: Identity) -> Option<Arc<File>> {
        let connected = lock(&CONNECTED);
        let mut files = connected.get(&self.0)?.files.iter();
        files.find(|(known, _)| *known == identity).map(|(_, file)| file.clone())
    }

    fn keep(&self, identity: Identity, file: File) -> Arc<File> {
        let file = Arc::new(file);
        lock(&CONNECTED).entry(self.0).or_default().files.push((identity, file.clone()));
        file
    }
}

impl Drop for ConnectedFile {
    fn drop(&mut self) {
        // The descriptors are closed under the lock: afterwards a new connection may have locks.
        let mut connected = lock(&CONNECTED);
        if let Some(descriptors) = connected.get_mut(&self.0) {
            descriptors.connections -= 1;
            if descriptors.connections == 0 {
                connected.remove(&self.0);
            }
        }
    }
}
