//! What can go wrong with what is remembered, by what its owner can do about it.

use std::sync::Arc;

use net::postgres::DatabaseError;

/// Why the state could not be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    /// Another process uses the directory.
    #[error(
        "{path} is in use by another channeld (process {holder}): end that one, or give this one its own state.path"
    )]
    InUse {
        /// The directory.
        path: String,
        /// Its process id, as far as it said so.
        holder: String,
    },
    /// The state is not to be used as it is. Says why, and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The file system, or the database, did not let us.
    #[error("{doing}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// What the system said.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The database server cannot be reached, or refuses.
    #[error("the state's database cannot be used")]
    Database(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The database itself is at fault. It is replaced where there is a mirror.
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

    /// Written by a version that this one does not know.
    pub(super) fn unknown_format(found: &str, known: &str) -> Self {
        Self::Unusable(format!(
            "the state has format {found}, this version knows {known}: run the version that wrote it, or a newer one"
        ))
    }
}

/// The error itself, without a word of its own around it.
impl From<DatabaseError> for StateError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(match error {
            DatabaseError::Server(source) => Arc::new(source),
            silent @ DatabaseError::Silent(_) => Arc::new(silent),
        })
    }
}
