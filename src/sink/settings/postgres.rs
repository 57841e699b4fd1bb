//! The settings of a PostgreSQL sink.

use super::Search;
use net::postgres::ServerSettings;

/// A table in a PostgreSQL database. Its names are identifiers that need no escaping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The database, and how to connect to it.
    pub server: ServerSettings,
    /// The schema.
    pub schema: String,
    /// The table in the schema.
    pub table: String,
    /// Whether missing tables and columns are created.
    pub create: bool,
    /// The kind of full-text search.
    pub search: Search,
    /// The PostgreSQL channel that is notified of each transaction. `None` for no notification.
    pub notify: Option<String>,
}
