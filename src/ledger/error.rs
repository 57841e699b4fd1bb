//! The errors of the state, grouped by the operator's remedy.

use std::sync::Arc;

use net::shortage::Shortage;

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
    /// The store or the mirror contradicts itself.
    #[error("the state is damaged: {0}")]
    Damaged(String),
    /// An entry of one channel cannot be read. Only this channel stops.
    #[error(
        "the entry `{kind}` of the channel in the state, with key \\x{key}, cannot be read: {why}; nothing of the channel is read or delivered until the entry is readable: run the version that wrote it, or restore the state from a backup"
    )]
    UnreadableEntry { kind: String, key: String, why: String },
    #[error("the state is closed")]
    Closed,
}

impl StateError {
    /// What the machine lacks, if this is the reason. The machine may have it again later.
    pub fn shortage(&self) -> Option<Shortage> {
        if let Self::Io { source, .. } = self { Shortage::of(&**source) } else { None }
    }

    /// Whether the state can be used again later, without a restart.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Database(_)) || self.shortage().is_some()
    }

    /// The same error for a state that only a restart can use again, although the machine lacked something.
    pub(super) fn until_restart(self) -> Self {
        match self {
            Self::Io { doing, source } => Self::io(doing, std::io::Error::other(source.to_string())),
            other => other,
        }
    }

    pub(super) fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { doing: doing.into(), source: Arc::new(source) }
    }

    /// An entry of a channel cannot be read. `key` contains the bytes of its key within the channel.
    pub(super) fn unreadable_entry(kind: &str, key: &[u8], why: impl std::fmt::Display) -> Self {
        Self::UnreadableEntry { kind: kind.to_owned(), key: hex::encode(key), why: why.to_string() }
    }

    /// The state was written in a format that this version does not know.
    pub(super) fn unknown_format(found: &str, known: &str) -> Self {
        Self::Unusable(format!(
            "the state has format {found}, but this version knows only {known}: run the version that wrote the state, or a newer version"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_shortage_passes_unless_only_a_restart_helps() {
        for number in [24, 12, 28, 122] {
            let error = StateError::io("writing", io::Error::from_raw_os_error(number));
            assert!(error.may_pass(), "{error:?}");
            let shown = net::Chain(&error).to_string();
            let fatal = error.clone().until_restart();
            assert!(!fatal.may_pass(), "{fatal:?}");
            assert_eq!(net::Chain(&fatal).to_string(), shown, "the message names the shortage");
        }
        assert!(!StateError::io("writing", io::Error::from_raw_os_error(5)).may_pass());
        assert!(!StateError::Closed.may_pass());
    }
}
