//! The database that instances share. A build can leave its client out, by the feature `postgres`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Store;
use crate::StateError;
use net::postgres::ServerSettings;

/// Whether this program was built with the client of the database.
pub const HAS_POSTGRES: bool = cfg!(feature = "postgres");

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
