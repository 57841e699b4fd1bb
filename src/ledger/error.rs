//! What can go wrong with what is remembered, by what its owner can do about it.

use std::sync::Arc;

use super::{Cursor, SinkName};

/// Why a ledger does not apply a commit. A defect: nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A cursor would go back.
    #[error("the cursor of sink {sink} would go back from {from} to {to}: this is a defect, nothing was written")]
    Backwards {
        /// The lane's sink.
        sink: SinkName,
        /// The recorded cursor.
        from: Cursor,
        /// The refused one.
        to: Cursor,
    },
}

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
    /// The directory is not the daemon's own. Says what to do.
    #[error("the state directory {path} {problem}")]
    Unsafe {
        /// The directory, or what stands in it.
        path: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The file system did not let us.
    #[error("{doing}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// What the system said.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// sled did not let us.
    #[error("the state database failed while {doing}: {message}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What sled said.
        message: String,
    },
    /// The database itself is at fault. It is replaced where there is a mirror.
    #[error("the state database is damaged: {0}")]
    DamagedDatabase(String),
    /// The database does not open and nothing says where we were.
    #[error(
        "the state database in {path} cannot be opened ({message}) and there is no cursors.json to restore the cursors \
         from: restore the directory from a backup, or move it away and set `start` of each channel"
    )]
    Lost {
        /// The directory.
        path: String,
        /// What sled said.
        message: String,
    },
    /// Written by a version that this one does not know.
    #[error("the state has format {found}, this version knows {known}: run the version that wrote it, or a newer one")]
    Format {
        /// What stands there.
        found: String,
        /// What we write.
        known: &'static str,
    },
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

    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }
}
