//! What the sinks that publish to a stream have in common: the headers of an event, and the offsets in a lane's position.

use std::collections::BTreeSet;

use super::LaneRef;
use crate::event::{ChannelId, Offset};
use crate::record::Message;

const CHANNEL_ID: &str = "Channeld-Channel-Id";
const OFFSET: &str = "Channeld-Offset";
const SINK: &str = "Channeld-Sink";

/// More offsets than any delivery has: a position that names more was not written by a lane.
const MAX_OFFSETS: usize = 10_000;

/// The headers of an event, with which a lane finds it again.
pub(super) fn headers(lane: &LaneRef, message: &Message) -> Vec<(&'static str, String)> {
    let record = message.record();
    let mut headers = vec![
        ("Content-Type", message.content_type().to_owned()),
        (CHANNEL_ID, record.channel.id.to_string()),
        (OFFSET, record.offset.to_string()),
        (SINK, lane.sink.to_string()),
    ];
    headers.extend(record.event_id.map(|id| ("Channeld-Event-Id", id.to_string())));
    headers.push(("Channeld-Verification", if record.is_verified() { "verified" } else { "unsigned" }.to_owned()));
    headers.extend(record.digest.as_ref().map(|digest| ("Channeld-Digest", digest.to_string())));
    headers
}

/// The offset of a message of this lane, by the values of its headers; `None` where it is of another.
pub(super) fn offset_of<'h>(channel: ChannelId, sink: &str, value: impl Fn(&str) -> Option<&'h str>) -> Option<Offset> {
    let is_ours = value(SINK)? == sink && value(CHANNEL_ID)?.parse::<ChannelId>().is_ok_and(|id| id == channel);
    value(OFFSET).filter(|_| is_ours)?.parse().ok()
}

/// Offsets as ranges that include both their ends.
pub(super) fn ranges(offsets: &BTreeSet<Offset>) -> Vec<(Offset, Offset)> {
    let mut ranges: Vec<(Offset, Offset)> = Vec::new();
    for &offset in offsets {
        match ranges.last_mut() {
            Some((_, last)) if Some(*last) == offset.before() => *last = offset,
            _ => ranges.push((offset, offset)),
        }
    }
    ranges
}

/// The offsets in ranges, as far as a lane can have written them.
pub(super) fn offsets_in(ranges: &[(Offset, Offset)]) -> BTreeSet<Offset> {
    let each = |&(first, last): &(Offset, Offset)| (first.get()..=last.get()).filter_map(Offset::new);
    ranges.iter().flat_map(each).take(MAX_OFFSETS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_a_few_ranges_and_come_back() {
        let offsets: BTreeSet<_> = [1, 2, 3, 7, 9, 10].into_iter().filter_map(Offset::new).collect();
        let ranges = ranges(&offsets);
        assert_eq!(serde_json::to_value(&ranges).unwrap(), serde_json::json!([[1, 3], [7, 7], [9, 10]]));
        assert_eq!(offsets_in(&ranges), offsets);
    }

    #[test]
    fn a_position_that_no_lane_has_written_takes_no_memory() {
        let offset = |number| Offset::new(number).unwrap();
        assert_eq!(offsets_in(&[(offset(1), offset(i64::MAX))]).len(), MAX_OFFSETS);
    }
}
