//! Why a range cannot be read.

use crate::status::Problem;
use crate::verify::RejectionReason;
use api::ApiError;
use proof::event::Offset;

/// Why no range was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The service did not answer with a page.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Events that the service did not show may exist between two offsets.
    #[error(
        "it is unknown whether events exist {}below offset {below}: the range is in doubt, and nothing is skipped",
        .above.map_or_else(String::new, |above| format!("above offset {above} and "))
    )]
    InDoubt {
        /// The last offset read.
        above: Option<Offset>,
        /// The lowest offset that was shown.
        below: Offset,
    },
    /// The channel has never had a verified event, and none of its events can be verified.
    #[error(
        "{rejected} of {events} events rejected ({reason}), and no event of the channel was ever verified: nothing is quarantined yet; check {}", .reason.what_to_check()
    )]
    NoneVerified {
        /// The number of rejected events.
        rejected: usize,
        /// The number of events that were read.
        events: usize,
        /// The reason for the last rejection.
        reason: RejectionReason,
    },
    /// The service's newest event is far above all others.
    #[error(
        "the event at offset {at} is far above all others, the last of which is at {above}: reading passes it when another event follows; if the offset is correct, run `channeld cursor set`"
    )]
    FarAbove {
        /// The last offset below it.
        above: Offset,
        /// The offset of the event.
        at: Offset,
    },
}

impl ReadError {
    /// Returns a short constant name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Api(ApiError::TooLong { .. }) => Problem::TOO_LONG,
            Self::Api(error) => error.kind(),
            Self::InDoubt { .. } => "range-in-doubt",
            Self::FarAbove { .. } => Problem::FAR_ABOVE,
            Self::NoneVerified { .. } => Problem::NONE_VERIFIED,
        }
    }

    /// Returns whether the error is expected to resolve without an operator.
    pub(crate) fn heals(&self) -> bool {
        match self {
            Self::Api(error) => !matches!(error, ApiError::Refused(_) | ApiError::ChannelGone(_)),
            Self::InDoubt { .. } | Self::FarAbove { .. } | Self::NoneVerified { .. } => false,
        }
    }
}
