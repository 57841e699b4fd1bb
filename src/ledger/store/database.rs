//! The database that instances share. A build can leave its client out, by the feature `postgres`.

use std::time::Duration;

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
