//! The location of the state, and how it is opened. Without the feature `postgres`, the program has no client for a shared
//! database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::directory::Directory;
use super::{Sled, Store};
use crate::StateError;
use net::postgres::ServerSettings;

/// Whether this program was built with the client of the database.
pub const HAS_POSTGRES: bool = cfg!(feature = "postgres");

/// The location of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// `state.path`: the directory of the sled database and the control socket.
    pub path: PathBuf,
    /// The database that the instances share. `None` selects sled.
    pub database: Option<PostgresSettings>,
}

/// The address of the database and the identity of this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// `state.url` and its TLS settings.
    pub server: ServerSettings,
    /// `state.schema`: an identifier that needs no escaping.
    pub schema: String,
    /// `cluster.instance`: this instance's name.
    pub instance: String,
    /// `cluster.lease`: how long after its last heartbeat an instance is considered dead.
    pub lease: Duration,
}

impl StateSettings {
    /// Opens the store. Blocks.
    ///
    /// # Errors
    /// If the directory is in use, or the state cannot be used in its present form.
    pub fn open(self) -> Result<Arc<dyn Store>, StateError> {
        match self.database {
            None => Ok(Arc::new(Sled::open(&self.path)?)),
            Some(database) => database.open(Some(&self.path)),
        }
    }

    /// Describes what [`open`](Self::open) would find or create. Does not create or open anything.
    ///
    /// # Errors
    /// If the state cannot be used. The error names the problem.
    pub fn examine(&self) -> Result<String, StateError> {
        match &self.database {
            None => Sled::examine(&self.path),
            Some(_) => Directory::examine(&self.path),
        }
    }
}

impl StateSettings {
    /// The error with which [`open`](Self::open) would fail because another process has locked the directory. `None` if none
    /// has, or if the system does not tell.
    pub fn in_use(&self) -> Option<StateError> {
        Directory::in_use(&self.path)
    }
}

/// The functions of the shared database in a program without its client: each returns an error.
#[cfg(not(feature = "postgres"))]
mod absent {
    use std::path::Path;

    use super::{Arc, PostgresSettings, StateError, Store};

    #[expect(
        missing_docs,
        clippy::missing_errors_doc,
        clippy::unused_async,
        reason = "the same functions as with the client"
    )]
    impl PostgresSettings {
        pub fn open(self, _directory: Option<&Path>) -> Result<Arc<dyn Store>, StateError> {
            Err(absent())
        }

        pub fn open_for_copy(self, _directory: &Path, _is_source: bool) -> Result<Arc<dyn Store>, StateError> {
            Err(absent())
        }

        pub async fn examine(&self, _directory: &Path) -> Result<String, StateError> {
            Err(absent())
        }
    }

    fn absent() -> StateError {
        StateError::Unusable("this channeld was built without the feature postgres".to_owned())
    }
}
