//! What an operator decides about a SQLite database.

use std::path::PathBuf;
use std::time::Duration;

use crate::table::Search;

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    /// Its file.
    pub path: PathBuf,
    /// The table: an identifier that needs no escape.
    pub table: String,
    /// What can be searched for.
    pub search: Search,
    /// Rows that were written longer ago are deleted; without it, none is.
    pub keep_for: Option<Duration>,
    /// The oldest rows are deleted while the database holds more bytes than this; without it, none is.
    pub keep_size: Option<u64>,
}
