//! What an operator decides about a table in a PostgreSQL database.

use crate::table::{Search, progress, quoted};
use net::postgres::ServerSettings;

/// A table. Its names are identifiers that need no escape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The database, and how it is reached.
    pub server: ServerSettings,
    /// The schema.
    pub schema: String,
    /// The table in it.
    pub table: String,
    /// Whether tables and columns are made where they are missing.
    pub create: bool,
    /// What can be searched for.
    pub search: Search,
    /// The channel that is notified of each transaction; `None` where none is.
    pub notify: Option<String>,
}

impl PostgresSettings {
    /// The table, as SQL has it.
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }

    /// The table with the positions of lanes, as SQL has it.
    pub(super) fn progress(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&progress(&self.table)))
    }
}
