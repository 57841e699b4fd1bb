//! The errors of the state, grouped by the operator's remedy.

use std::sync::Arc;

/// Why the state could not be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name each field")]
pub enum StateError {
    /// Another process uses the directory. `holder` is the process id from the lock file, or `unknown`.
    #[error(
        "{path} is in use by another channeld (process {holder}): stop that process, or set another state.path for this one"
    )]
    InUse { path: String, holder: String },
    /// The state cannot be used in its present form. The text contains the reason and a remedy.
    #[error("{0}")]
    Unusable(String),
    /// The file system or the database reported an error. `doing` names the failed operation and its target.
    #[error("{doing}")]
    Io { doing: String, source: Arc<std::io::Error> },
    /// The database server cannot be reached, or rejects the request.
    #[error("the state's database cannot be used")]
    Database(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The sled database is damaged. If the mirror `cursors.json` can be read, a new database starts from it.
    #[error("the state database is damaged: {0}")]
    DamagedDatabase(String),
    /// A stored entry or the mirror cannot be read.
    #[error("the state is damaged: {0}")]
    Damaged(String),
    #[error("the state is closed")]
    Closed,
}

impl StateError {
    /// Whether the machine lacks descriptors, memory or disk space, and may have them again later.
    pub(super) fn is_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_shortage(source))
    }

    pub(super) fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { doing: doing.into(), source: Arc::new(source) }
    }

    /// The state was written in a format that this version does not know.
    pub(super) fn unknown_format(found: &str, known: &str) -> Self {
        Self::Unusable(format!(
            "the state has format {found}, but this version knows only {known}: run the version that wrote the state, or a newer version"
        ))
    }
}

fn is_shortage(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let of_space = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::NOMEM, Errno::AGAIN];
    is_shortage_of_descriptors(error) || Errno::from_io_error(error).is_some_and(|errno| of_space.contains(&errno))
}

/// Whether a file could not be opened because this process or the machine has too many open files.
pub(super) fn is_shortage_of_descriptors(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|errno| [Errno::MFILE, Errno::NFILE].contains(&errno))
}
