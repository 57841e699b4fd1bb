//! The failures of requests to the servers, with messages for an operator.

use serde::Deserialize;

use crate::SinkError;

/// Error code of the server: the last message on the subject is not the expected message.
pub(super) const WRONG_SEQUENCE: u64 = 10071;
/// The server has seen the id of one of the messages.
pub(super) const DUPLICATE: u64 = 10201;
/// A message of the batch was lost, or no message of the batch arrived for too long.
const INCOMPLETE: u64 = 10176;
/// The stream does not allow batches, or no longer does.
const BATCHES_DISABLED: u64 = 10174;
pub(super) const NO_STREAM: u64 = 10059;
/// Like [`WRONG_SEQUENCE`], without the number of the last message.
pub(super) const WRONG_SEQUENCE_UNNUMBERED: u64 = 10164;
pub(super) const NO_MESSAGE: u64 = 10037;
pub(super) const NAME_IN_USE: u64 = 10058;
/// JetStream has no leader, is starting, or has reached its limit of pending requests or batches.
const AWAY: [u64; 6] = [10008, 10009, 10104, 10118, WRONG_SEQUENCE_UNNUMBERED, 10210];
/// The account, the stream or the server has no space, or no JetStream.
const NO_ROOM: [u64; 10] = [10023, 10028, 10035, 10039, 10047, 10076, 10077, 10109, 10110, 10120];

/// The server's words, in lower case, for a missing permission.
pub(super) const DENIED: &str = "permissions violation";

/// Why a request was not carried out, or may not have been carried out.
#[derive(Debug)]
pub(super) enum RequestFailure {
    Unanswered(SinkError),
    Refused(ServerRefusal),
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServerRefusal {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl RequestFailure {
    /// Whether the server has refused the request with this code.
    pub(super) fn is(&self, code: u64) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.err_code == code)
    }

    /// The sequence number of the last message on a subject, if the server refuses a message because of this number.
    pub(super) fn last_sequence(&self) -> Option<u64> {
        let Self::Refused(ServerRefusal { err_code: WRONG_SEQUENCE, description }) = self else { return None };
        description.rsplit(' ').next()?.parse().ok().filter(|number| *number > 0)
    }

    /// The error of a request that uses this stream. `denied` returns a report of the server about a missing permission.
    /// `refused` makes the error for a code that is not about the server or the stream as a whole.
    pub(super) fn error(
        self,
        stream: &str,
        denied: impl FnOnce() -> Option<String>,
        refused: impl FnOnce(String) -> SinkError,
    ) -> SinkError {
        let ServerRefusal { err_code, description } = match self {
            Self::Unanswered(error) => return error,
            Self::Refused(refusal) => refusal,
        };
        let said = format!("{description} (error {err_code})");
        match err_code {
            // A server silently drops the messages of a batch that the user is not allowed to publish.
            INCOMPLETE => match denied() {
                Some(denied) => SinkError::unusable(format!("publishing to the stream {stream}: {said}: {denied}")),
                None => SinkError::away(said),
            },
            BATCHES_DISABLED | WRONG_SEQUENCE => SinkError::away(said),
            code if AWAY.contains(&code) => SinkError::away(said),
            NO_STREAM => SinkError::unusable(format!(
                "using the stream {stream}: {said}: create the stream, set create = true, or correct the name"
            )),
            code if NO_ROOM.contains(&code) => SinkError::unusable(format!(
                "publishing to the stream {stream}: {said}: give the stream or the account more room"
            )),
            _ => refused(said),
        }
    }
}

pub(super) fn unanswered(message: String) -> RequestFailure {
    RequestFailure::Unanswered(SinkError::away(message))
}

pub(super) fn unreadable(error: impl std::error::Error) -> RequestFailure {
    unanswered(format!("the answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn a_missing_permission_blocks_and_an_incomplete_batch_is_retried() {
        let refusal = |err_code| RequestFailure::Refused(ServerRefusal { err_code, description: "no".to_owned() });
        let error = |failure: RequestFailure, denied: Option<&str>| {
            failure.error("events", || denied.map(str::to_owned), SinkError::refused).fault()
        };
        assert_eq!(error(refusal(INCOMPLETE), None), Fault::Target);
        assert_eq!(error(refusal(INCOMPLETE), Some("permissions violation")), Fault::Operator);
        assert_eq!(error(unanswered("no answer".to_owned()), None), Fault::Target);
        assert_eq!(error(refusal(NO_ROOM[0]), None), Fault::Operator);
        assert_eq!(error(refusal(10054), None), Fault::Event);
    }
}
