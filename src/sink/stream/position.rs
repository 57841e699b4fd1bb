//! The position of a lane, as the lane writes it to its stream.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::{Confirmed, LaneRef, Recorded};
use proof::event::{ChannelId, EventId, EventKey, Offset};

/// The format that this version writes. Format 0 had neither `through` nor `ids`.
const FORMAT: u8 = 1;

/// The maximum number of events that are read from a position. No delivery has more. The limit bounds the memory for a
/// position that another program has written.
const MAX_EVENTS: usize = 10_000;

/// The cursor of a lane, and the events that it delivered last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    #[serde(default)]
    format: u8,
    /// The channel's name. No code reads it.
    channel: String,
    channel_id: ChannelId,
    sink: String,
    /// The epoch of the lease under which the position was written. No code reads it.
    pub(crate) epoch: u64,
    /// Identifies the last delivery.
    pub(crate) delivery: Uuid,
    /// The highest offset up to which every event was delivered. `None` before the first event.
    pub(crate) through: Option<Offset>,
    /// The highest offset of a delivered event that `offsets` does not name.
    pub(crate) prior: Option<Offset>,
    /// Whether the stream may contain any events of the lane above `through`. Written when a lane has lost its position, and
    /// removed by the next delivery, which follows a search. Thus a crash before the end of the search does not prevent it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unsearched: bool,
    /// The offsets of the last delivery as ranges that include both ends, in ascending order. An offset occurs twice if two
    /// events have it.
    offsets: Vec<(Offset, Offset)>,
    /// The ids of the same events in the same order.
    #[serde(default)]
    ids: Vec<Option<EventId>>,
}

impl Position {
    /// An upper bound of the size of a position without its events, in bytes.
    pub(crate) const BYTES: usize = 1_000;

    /// An upper bound of the bytes for each event: a range of large numbers and an id.
    pub(crate) const BYTES_PER_EVENT: usize = 96;

    /// The position of a lane that has delivered nothing yet.
    pub(crate) fn first(lane: &LaneRef, through: Option<Offset>) -> Self {
        Self {
            format: FORMAT,
            through,
            channel: lane.channel.name.to_string(),
            channel_id: lane.channel.id,
            sink: lane.sink.to_string(),
            ..Self::default()
        }
    }

    /// The position with which a lane continues after a claim. If the recorded state has a confirmed position, the lane
    /// continues with the position in the stream, `known`. `known` is `None` if the stream has no position. If no position
    /// is confirmed, the recorded cursor replaces the cursor in the stream's position. If the lane had a position before that was
    /// missing later, `was_missing` is true.
    pub(crate) fn adopted(known: Option<Self>, recorded: &Recorded, was_missing: bool) -> Option<Self> {
        let first = || Self::first(&recorded.lane, None);
        let mut position = if recorded.confirmed.is_some() { known? } else { known.unwrap_or_else(first) };
        position.is_unsearched |= was_missing;
        if let Some(Confirmed { position: confirmed, last }) = recorded.confirmed {
            // The position was restored. Its events were not, if they are in another log.
            position.is_unsearched |= position.through < confirmed.max(last.map(|last| last.offset));
        } else {
            position.through = recorded.through;
        }
        Some(position)
    }

    /// The position of a lane, from its recorded state, after the limits of the stream have deleted the position there.
    #[cfg(feature = "nats")]
    pub(crate) fn rewritten(lane: &LaneRef, confirmed: Confirmed) -> Self {
        let last = confirmed.last.map(|last| last.offset);
        Self { prior: last, ..Self::first(lane, confirmed.position.max(last)) }
    }

    /// Reads a position. A position of format 0 has no `through`: its highest offset becomes `through`.
    pub(crate) fn read<'de, D: Deserializer<'de>>(written: D) -> Result<Self, D::Error> {
        let read = Self::deserialize(written)?;
        let highest = || read.offsets.last().map(|(_, last)| *last).max(read.prior);
        let through = if read.format == 0 { highest() } else { read.through };
        Ok(Self { format: FORMAT, through, ..read })
    }

    /// The events of the last delivery. Empty if the position has offsets without ids.
    pub(crate) fn events(&self) -> BTreeSet<EventKey> {
        let keys = self.offsets().into_iter().zip(&self.ids).map(|(offset, &id)| EventKey { offset, id });
        if self.has_ids() { keys.collect() } else { BTreeSet::new() }
    }

    /// The late deliveries that the stream may have lost if it was restored to this position. They were delivered at this
    /// cursor, after the last delivery that the position names. Pending events are left out, because they are delivered again
    /// anyway.
    pub(super) fn late_in_doubt(&self, recorded: &Recorded) -> BTreeSet<EventKey> {
        // The position and its events are older than the cursor that an operator has set.
        let is_set = recorded.confirmed.is_none_or(|confirmed| confirmed.last.is_none());
        // The limits of the stream may have deleted the events together with the position that named them.
        let is_rewritten = self.delivery.is_nil() && self.prior.is_some();
        if is_set || is_rewritten {
            return BTreeSet::new();
        }
        let named = self.events();
        let at_cursor = recorded.late.iter().rev().filter(|delivery| delivery.after == self.through);
        let after_named = at_cursor.map(|delivery| delivery.event).take_while(|key| !named.contains(key));
        after_named.filter(|key| !recorded.pending.contains(key)).collect()
    }

    /// Whether the position has an id, or its absence, for each event of the last delivery.
    pub(crate) fn has_ids(&self) -> bool {
        self.offsets().len() == self.ids.len()
    }

    /// The offsets of the last delivery, in ascending order.
    pub(crate) fn offsets(&self) -> Vec<Offset> {
        let each = |&(first, last): &(Offset, Offset)| (first.get()..=last.get()).filter_map(Offset::new);
        self.offsets.iter().flat_map(each).take(MAX_EVENTS).collect()
    }

    /// The position with these events as the last delivery.
    pub(crate) fn with(self, events: &BTreeSet<EventKey>) -> Self {
        let ids = events.iter().map(|key| key.id).collect();
        Self { offsets: ranges(events.iter().map(|key| key.offset)), ids, ..self }
    }

    /// This position, but naming only `events`. The other events that it named then count as delivered before the last
    /// delivery.
    pub(crate) fn keeping(&self, events: &BTreeSet<EventKey>) -> Self {
        let dropped = self.offsets().into_iter().rev().find(|offset| !has_offset(events, *offset));
        Self { prior: dropped.max(self.prior), ..self.clone() }.with(events)
    }
}

pub(super) fn has_offset(events: &BTreeSet<EventKey>, offset: Offset) -> bool {
    events.range(EventKey::first_at(offset)..=EventKey::last_at(offset)).next().is_some()
}

/// Offsets in ascending order as ranges that include both ends.
fn ranges(offsets: impl Iterator<Item = Offset>) -> Vec<(Offset, Offset)> {
    let mut ranges: Vec<(Offset, Offset)> = Vec::new();
    for offset in offsets {
        match ranges.last_mut() {
            Some((_, last)) if Some(*last) == offset.before() => *last = offset,
            _ => ranges.push((offset, offset)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::{channel, lane, offset};

    /// The event with this id at an offset. Id 0 means no id.
    fn key(at: i64, id: u128) -> EventKey {
        EventKey { offset: offset(at), id: (id > 0).then(|| EventId(Uuid::from_u128(id))) }
    }

    fn position(events: &BTreeSet<EventKey>) -> Position {
        Position::first(&lane(&channel(1)), None).with(events)
    }

    #[test]
    fn a_position_names_events_by_offset_and_id() {
        let events = BTreeSet::from([key(1, 10), key(2, 0), key(3, 30), key(3, 31), key(4, 40), key(9, 90)]);
        let written = serde_json::to_value(position(&events)).unwrap();
        assert_eq!(written["offsets"], json!([[1, 3], [3, 4], [9, 9]]));
        assert_eq!(Position::read(written).unwrap().events(), events);
    }

    #[test]
    fn the_highest_offset_of_the_older_format_becomes_the_cursor() {
        let old = json!({"channel": "c", "channel_id": Uuid::nil(), "sink": "s", "epoch": 1, "delivery": Uuid::nil(),
            "prior": 20, "offsets": [[3, 4], [7, 7]]});
        let read = Position::read(old).unwrap();
        assert_eq!(read.through, Some(offset(20)));
        assert_eq!((read.events().len(), read.has_ids(), read.offsets()), (0, false, [3, 4, 7].map(offset).into()));
        let again = Position::read(serde_json::to_value(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn an_initial_position_is_not_treated_as_the_older_format() {
        let reset = Position { prior: Some(offset(20)), ..position(&BTreeSet::new()) };
        let read = Position::read(serde_json::to_value(&reset).unwrap()).unwrap();
        assert_eq!(read.through, None);
    }

    #[test]
    fn an_event_that_is_no_longer_named_counts_as_delivered() {
        let all = position(&BTreeSet::from([key(1, 1), key(2, 2), key(3, 3)]));
        let (kept, none) = (BTreeSet::from([key(2, 2), key(3, 3)]), BTreeSet::new());
        assert_eq!((all.keeping(&kept).prior, all.keeping(&kept).events()), (Some(offset(1)), kept));
        assert_eq!(all.keeping(&none).prior, Some(offset(3)));
        let late = Position { prior: Some(offset(20)), ..all };
        assert_eq!(late.keeping(&none).prior, Some(offset(20)));
    }

    #[test]
    fn the_events_read_from_a_position_are_bounded() {
        let huge = Position { offsets: vec![(offset(1), offset(i64::MAX))], ..Position::default() };
        assert_eq!(huge.offsets().len(), MAX_EVENTS);
    }

    #[test]
    fn a_position_stays_within_its_size_limit() {
        let far = |number: i64| key(i64::MAX - 2 * number, u128::MAX - u128::try_from(number).unwrap());
        let events: BTreeSet<_> = (0..100).map(far).collect();
        let bytes = serde_json::to_vec(&position(&events)).unwrap().len();
        assert!(bytes <= Position::BYTES + 100 * Position::BYTES_PER_EVENT, "{bytes}");
    }
}
