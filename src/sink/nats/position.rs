//! The position message of a lane: the last message on the lane's own subject of the stream.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::stream;

/// A position, and the claim under which it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    #[serde(flatten)]
    pub(super) lane: stream::Position,
    /// Identifies the run of the process that wrote it.
    pub(super) instance: Uuid,
    /// Written for instances of an older version: they look for events after the position only if this is true. This version
    /// always looks.
    pub(super) follow: bool,
    /// The sequence number after which the stream may contain unrecorded events of the lane. `None` if it is the sequence
    /// number of this message. It differs in a claim, which repeats the position of an earlier message.
    pub(super) since: Option<u64>,
}

impl Position {
    pub(super) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let read: Self = serde_json::from_slice(body)?;
        Ok(Self { lane: read.lane.upgraded(), ..read })
    }

    pub(super) fn to_json(&self) -> Bytes {
        serde_json::to_vec(self).expect("a position has text keys and no value that can fail").into()
    }

    /// The most events that a delivery may have if a message may have `max_bytes` bytes. The position of a delivery can
    /// also name events of the previous delivery, so this is half of the number that fits.
    pub(super) fn most_events(max_bytes: usize) -> usize {
        ((max_bytes / 2).saturating_sub(stream::Position::BYTES) / stream::Position::BYTES_PER_EVENT).max(1)
    }
}
