//! Where a lane is in a stream: the last message on the lane's own subject of that stream.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::{ChannelId, Offset};
use crate::sink::stream::{offsets_in, ranges};

/// What a lane has delivered last, as its position message says.
///
/// Only the last delivery is named: the one before it was recorded before this one began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The channel, by its name, for a person who reads it.
    pub(super) channel: String,
    pub(super) channel_id: ChannelId,
    pub(super) sink: String,
    /// The epoch of the lease under which it was written, for a person who reads it.
    pub(super) epoch: u64,
    /// The run of the process that wrote it.
    pub(super) instance: Uuid,
    /// Names the last delivery. Claims leave it as it is.
    pub(super) delivery: Uuid,
    /// The highest offset that was delivered before the last delivery.
    pub(super) prior: Option<Offset>,
    /// The offsets of the last delivery that were there when this was written, as ranges that include both their ends.
    pub(super) offsets: Vec<(Offset, Offset)>,
    /// Further events of the last delivery follow this message one by one: which of them are there, a search tells.
    pub(super) follow: bool,
    /// The message that such events follow, where a claim has come in between.
    pub(super) since: Option<u64>,
}

impl Position {
    /// The offsets of the last delivery, as far as they are known.
    pub(super) fn delivered(&self) -> BTreeSet<Offset> {
        offsets_in(&self.offsets)
    }

    pub(super) fn to_json(&self) -> Bytes {
        serde_json::to_vec(self).expect("a position has text keys and no value that can fail").into()
    }

    /// With these offsets as the last delivery.
    pub(super) fn with(self, delivered: &BTreeSet<Offset>) -> Self {
        Self { offsets: ranges(delivered), ..self }
    }

    /// The highest offset that was delivered.
    pub(super) fn highest(&self) -> Option<Offset> {
        self.offsets.last().map(|(_, last)| *last).max(self.prior)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_names_the_offsets_of_a_delivery_and_the_highest_of_all() {
        let offsets: BTreeSet<_> = [1, 2, 3, 7, 9, 10].into_iter().filter_map(Offset::new).collect();
        let position = Position::default().with(&offsets);
        assert_eq!(position.delivered(), offsets);
        assert_eq!(position.highest(), Offset::new(10));
        let late = Position { prior: Offset::new(20), ..position };
        assert_eq!(late.highest(), Offset::new(20));
    }
}
