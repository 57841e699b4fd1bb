//! Why a channel stops running.

use std::sync::Arc;

use tokio::task::JoinError;

use ledger::{CommitError, StateError};

/// Why a channel's loop ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The service reports that the channel is gone. This channel ends; the others keep running.
    #[error("the channel does not exist or is archived")]
    Gone,
    /// The lease of the channel is lost: another instance has it, or the channel must be loaded again. This run ends; the
    /// other channels keep running.
    #[error("the lease of the channel is lost")]
    Lost,
    /// The state cannot be read or written, and the daemon ends. Unrecorded events are read again.
    #[error("the state could not be read or written")]
    State(#[from] StateError),
    /// A sink's reader is permanently gone, and the daemon ends.
    #[error("nothing reads sink {sink} any more")]
    SinkClosed {
        /// The sink.
        sink: Arc<str>,
    },
    /// A part of the loop panicked. This is a defect; the channel starts again from its cursors.
    #[error("a part of the channel's loop panicked")]
    Panicked(#[source] JoinError),
    /// The ledger refused a commit. This is a defect; the channel starts again from its cursors.
    #[error("a commit was refused")]
    Refused(#[from] ledger::Refusal),
}

impl From<CommitError> for ChannelError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Refused(refusal) => Self::Refused(refusal),
            CommitError::Lost(_) => Self::Lost,
            CommitError::State(error) => Self::State(error),
        }
    }
}
