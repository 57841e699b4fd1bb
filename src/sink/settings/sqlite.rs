//! The settings of an SQLite sink.

use std::path::PathBuf;
use std::time::Duration;

use super::Search;

/// An SQLite database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    /// The path of its file.
    pub path: PathBuf,
    /// The name of the table: an identifier that needs no escaping.
    pub table: String,
    /// The kind of full-text search.
    pub search: Search,
    /// Rows that were written longer ago are deleted. If not set, no row is deleted because of its age.
    pub keep_for: Option<Duration>,
    /// The oldest rows are deleted while the database uses more bytes than this. If not set, no row is deleted because of
    /// the size.
    pub keep_size: Option<u64>,
}
