//! The location of the state, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::database::PostgresSettings;
use super::directory::Directory;
use super::{Sled, Store};
use crate::StateError;

/// The location of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// `state.path`: the directory of the sled database and the control socket.
    pub path: PathBuf,
    /// The database that the instances share. `None` selects sled.
    pub database: Option<PostgresSettings>,
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

#[cfg(feature = "postgres")]
mod client {
    use super::{Arc, Path, PostgresSettings, StateError, Store};
    use crate::store::postgres::Postgres;

    impl PostgresSettings {
        /// Opens the store. Blocks. `directory` is locked, and remembers which state was used.
        ///
        /// # Errors
        /// If the directory is in use, or the state cannot be used in its present form.
        pub fn open(self, directory: Option<&Path>) -> Result<Arc<dyn Store>, StateError> {
            Ok(Arc::new(Postgres::open(directory, self)?))
        }

        /// Opens the database as the source or target of a copy. Blocks. It may be incomplete. The runtime directory is
        /// locked by another store.
        ///
        /// # Errors
        /// If the state cannot be used in its present form.
        pub fn open_for_copy(self, directory: &Path, is_source: bool) -> Result<Arc<dyn Store>, StateError> {
            Ok(Arc::new(Postgres::open_for_copy(directory, self, is_source)?))
        }

        /// Describes what [`open`](Self::open) would find or create. Changes nothing.
        ///
        /// # Errors
        /// If the state cannot be used. The error names the problem.
        pub async fn examine(&self, directory: &Path) -> Result<String, StateError> {
            Postgres::examine(directory, self).await
        }
    }
}

#[cfg(not(feature = "postgres"))]
mod client {
    use super::{Arc, Path, PostgresSettings, StateError, Store};

    impl PostgresSettings {
        /// Does not open the store.
        ///
        /// # Errors
        /// Always: this program was built without PostgreSQL.
        pub fn open(self, _directory: Option<&Path>) -> Result<Arc<dyn Store>, StateError> {
            Err(absent())
        }

        /// Does not open the store.
        ///
        /// # Errors
        /// Always: this program was built without PostgreSQL.
        pub fn open_for_copy(self, _directory: &Path, _is_source: bool) -> Result<Arc<dyn Store>, StateError> {
            Err(absent())
        }

        /// Does not look at the database.
        ///
        /// # Errors
        /// Always: this program was built without PostgreSQL.
        #[expect(clippy::unused_async, reason = "as with the client")]
        pub async fn examine(&self, _directory: &Path) -> Result<String, StateError> {
            Err(absent())
        }
    }

    fn absent() -> StateError {
        StateError::Unusable("this channeld was built without the feature postgres".to_owned())
    }
}
