//! Why a channel stops running, and why a range cannot be read.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

use crate::status::Problem;
use crate::verify::reason::RejectionReason;
use api::ApiError;
use ledger::{CommitError, StateError};
use proof::event::Offset;

/// Why a channel's loop ended without being told to stop.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The service reports that the channel is gone. This channel ends; the others keep running.
    #[error("the channel does not exist or is archived")]
    Gone,
    /// The lease is lost: another instance has it, or this instance must load the channel again. The other channels keep
    /// running.
    #[error("the lease of the channel is lost")]
    Lost,
    /// The state cannot be read or written. The daemon ends. The next run reads the unrecorded events again.
    #[error("the state could not be read or written")]
    State(#[from] StateError),
    /// The program that reads a sink's output is permanently gone. The daemon ends.
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

/// Why no range was read. The request must be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The service did not answer with a page.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Between two offsets, events may exist that the service did not show.
    #[error(
        "it is unknown whether events exist {}below offset {below}: the range is in doubt, and nothing is skipped",
        .above.map_or_else(String::new, |above| format!("above offset {above} and "))
    )]
    InDoubt {
        /// The last offset read.
        above: Option<Offset>,
        /// The lowest offset above it that the service showed.
        below: Offset,
    },
    /// No event of the channel was ever verified, and many of the events that were just read are rejected.
    #[error(
        "{rejected} of {events} events rejected ({}), and no event of the channel was ever verified: nothing is quarantined yet; check {}",
        .reason.name(), .reason.what_to_check()
    )]
    NoneVerified {
        /// The number of rejected events.
        rejected: usize,
        /// The number of events that were read.
        events: usize,
        /// The reason for the last rejection.
        reason: RejectionReason,
    },
    /// The service's newest event is far above all other events.
    #[error(
        "the event at offset {at} is far above all others, which end at {above}: reading continues past this event when another event follows it; if the offset is correct, run `channeld cursor set`"
    )]
    FarAbove {
        /// The highest known offset below the event.
        above: Offset,
        /// The offset of the event.
        at: Offset,
    },
}

impl ReadError {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Api(ApiError::TooLong { .. }) => Problem::TOO_LONG,
            Self::Api(error) => error.kind(),
            Self::InDoubt { .. } => "range-in-doubt",
            Self::FarAbove { .. } => Problem::FAR_ABOVE,
            Self::NoneVerified { .. } => Problem::NONE_VERIFIED,
        }
    }

    /// Returns the wait that the service asked for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if let Self::Api(error) = self { error.retry_after() } else { None }
    }

    /// Returns whether the error is expected to end without an operator's help.
    pub(crate) fn heals(&self) -> bool {
        matches!(self, Self::Api(error) if !matches!(error, ApiError::Refused(_) | ApiError::ChannelGone(_)))
    }
}
