//! The protocol of the sinks that publish to a stream: the headers of an event, and the position of a lane.
//!
//! # Positions
//!
//! A lane writes a [`Position`] together with the events of each delivery. It contains the cursor of the lane, and it names
//! the events of the last delivery by offset and id. The state records each delivery before the next one begins. So after a
//! crash only events that the position names, or that follow it, can be in the stream without being recorded.
//!
//! Only the position counts. An event that the position covers is not looked up in the stream, because retention,
//! compaction or a consumer may have deleted it there on purpose. If an operator has chosen the cursor, the stream itself
//! counts instead: events above the cursor are looked up, and delivered again if they are not there.
//!
//! A cursor that was moved back is detected because the position counts a higher offset as delivered. The lane then searches
//! the whole stream for its events and skips them.
//!
//! Late deliveries do not move the position. If a stream was restored to a state before a late delivery and nothing else is
//! missing, a restart does not detect it.
//!
//! # One lane, several servers
//!
//! [`Lane`] is the protocol: claim, position, skipped events, and a delivery whose outcome is unknown. A [`Log`] is a server
//! that it runs on. Clocks are not compared.
//!
//! # Invariants
//!
//! * **In order.** An append begins only after the previous one was answered.
//! * **Never its neighbors.** If an event is too large, or the stream does not accept it, only this event is refused.
//! * **Away is not refused.** An event without an answer never becomes a dead letter.
//!
//! # Cancellation
//!
//! Safe at any point. A dropped delivery leaves the lane without its claim, and the lane resumes before the next delivery.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Serialize;

use super::{LaneRef, Recorded};
use proof::event::{ChannelId, EventKey, Offset};
use record::Message;

mod lane;
mod position;

pub(super) use lane::{Appended, ClaimedPosition, Lane, Lanes, Limits, Log, UnrecordedEvents};
pub(super) use position::Position;

const CHANNEL_ID: &str = "Channeld-Channel-Id";
const EVENT_ID: &str = "Channeld-Event-Id";
const OFFSET: &str = "Channeld-Offset";
const SINK: &str = "Channeld-Sink";

/// The headers of an event. A lane finds the event again by them.
pub(super) fn headers(lane: &LaneRef, message: &Message) -> Vec<(&'static str, String)> {
    let record = message.record();
    let mut headers = vec![
        ("Content-Type", message.content_type().to_owned()),
        (CHANNEL_ID, record.channel.id.to_string()),
        (OFFSET, record.offset.to_string()),
        (SINK, lane.sink.to_string()),
    ];
    headers.extend(record.event_id.map(|id| (EVENT_ID, id.to_string())));
    headers.push(("Channeld-Verification", if record.is_verified() { "verified" } else { "unsigned" }.to_owned()));
    headers.extend(record.digest.as_ref().map(|digest| ("Channeld-Digest", digest.to_string())));
    headers
}

/// The body of a position or a claim.
pub(super) fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("it has text keys and no value that can fail").into()
}

/// Identifies the event in a message by the message's headers. `None` if another lane has published the message.
pub(super) fn key_of<'h>(channel: ChannelId, sink: &str, value: impl Fn(&str) -> Option<&'h str>) -> Option<EventKey> {
    let is_ours = value(SINK)? == sink && value(CHANNEL_ID)?.parse::<ChannelId>().is_ok_and(|id| id == channel);
    let offset = value(OFFSET).filter(|_| is_ours)?.parse().ok()?;
    Some(EventKey { offset, id: value(EVENT_ID).and_then(|id| id.parse().ok()) })
}

/// The events of a lane that the state does not record as delivered. By default, every event.
#[derive(Clone, Debug, Default)]
pub(super) struct Unrecorded {
    /// Everything above this offset.
    above: Option<Offset>,
    owed: BTreeSet<EventKey>,
}

impl Unrecorded {
    /// If the stream's position is lower than the recorded cursor, the lane continues at the stream's position.
    pub(super) fn new(recorded: &Recorded, position: Option<Offset>) -> Self {
        Self { above: recorded.through.min(position), owed: recorded.owed.clone() }
    }

    pub(super) fn contains(&self, key: &EventKey) -> bool {
        Some(key.offset) > self.above || self.owed.contains(key)
    }

    /// Whether the lane has delivered events above the offset at which it continues, because its cursor was moved back: the
    /// recorded one, or the position itself, by another instance.
    pub(super) fn is_moved_back(&self, position: &Position) -> bool {
        position.prior > self.above
    }

    /// Whether any event at this offset could be unrecorded.
    fn reaches(&self, offset: Offset) -> bool {
        let at_offset = EventKey::first_at(offset)..=EventKey::last_at(offset);
        Some(offset) > self.above || self.owed.range(at_offset).next().is_some()
    }

    /// The offsets of events that the position names, but that must be looked up in the stream: their ids are not known, or
    /// an operator has chosen the cursor, and events that are no longer in the stream must be delivered again.
    pub(super) fn doubted(&self, position: &Position, recorded: &Recorded) -> BTreeSet<Offset> {
        let is_in_doubt = recorded.confirmed.is_none() || !position.has_ids();
        position.offsets().into_iter().filter(|offset| is_in_doubt && self.reaches(*offset)).collect()
    }

    /// Compares a position with the record. The stream contains the events that the position names, except for the doubted
    /// ones, and the events in `found`. The events in `last` belong to the last delivery. Returns the position with which
    /// the lane continues, and the unrecorded events in the stream.
    pub(super) fn compare(
        &self,
        position: &Position,
        doubted: &BTreeSet<Offset>,
        last: &BTreeSet<EventKey>,
        found: &BTreeSet<EventKey>,
    ) -> (Position, BTreeSet<EventKey>) {
        let mut named = position.events();
        named.retain(|key| !doubted.contains(&key.offset));
        named.extend(last);
        named.retain(|key| self.contains(key));
        let mut position = position.keeping(&named);
        // These events are too many to be named. The higher offset makes the lane search for them again after the next crash.
        position.prior = found.difference(&named).last().map(|key| key.offset).max(position.prior);
        named.extend(found.iter().filter(|key| self.contains(key)));
        (position, named)
    }

    /// The events among these that will be offered to the sink again. A pending event that is in the stream is settled
    /// instead, and an operator may ask for it again later.
    pub(super) fn offered(&self, there: &BTreeSet<EventKey>) -> BTreeSet<EventKey> {
        there.iter().filter(|key| !self.owed.contains(key)).copied().collect()
    }
}
