//! The errors of the state, grouped by the operator's remedy.

use std::sync::Arc;

/// Why the state could not be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name each field")]
pub enum StateError {
    /// Another process uses the directory. Its process id comes from the lock file, or is `unknown`.
    #[error(
        "{path} is in use by another channeld (process {holder}): stop that one, or give this one its own state.path"
    )]
    InUse { path: String, holder: String },
    /// The state cannot be used in its present form. The text says why, and gives a remedy.
    #[error("{0}")]
    Unusable(String),
    /// The file system or the database reported an error. `doing` names the failed operation and its target.
    #[error("{doing}")]
    Io { doing: String, source: Arc<std::io::Error> },
    /// The database server cannot be reached, or rejects the request.
    #[error("the state's database cannot be used")]
    Database(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The database itself is damaged. It is replaced if a mirror exists.
    #[error("the state database is damaged: {0}")]
    DamagedDatabase(String),
    /// A stored entry or the mirror cannot be read.
    #[error("the state is damaged: {0}")]
    Damaged(String),
    /// The state is being closed.
    #[error("the state is closed")]
    Closed,
}

impl StateError {
    pub(super) fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { doing: doing.into(), source: Arc::new(source) }
    }

    /// The state was written in a format that this version does not know.
    pub(super) fn unknown_format(found: &str, known: &str) -> Self {
        Self::Unusable(format!(
            "the state has format {found}, but this version knows only {known}: run the version that wrote it, or a newer one"
        ))
    }
}
