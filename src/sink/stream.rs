//! The protocol of the sinks that publish to a stream: the headers of an event, and the position of a lane.
//!
//! # Positions
//!
//! A lane writes a [`Position`] together with the events of each delivery. The position contains the cursor of the lane,
//! and names the events of the last delivery by offset and id. The daemon records each delivery before the next one begins.
//! Therefore, after a crash, an event in the stream that is not recorded is either named by the position or follows the
//! position in the stream.
//!
//! The position decides which events were delivered. An event that the position covers is not looked up in the stream,
//! because retention, compaction or a consumer may have deleted it there on purpose. After an operator has set the cursor,
//! the content of the stream decides: events above the cursor are looked up, and delivered again if they are missing.
//!
//! If a cursor was moved back, the position still counts a higher offset as delivered. The lane detects this, searches the
//! whole stream for the lane's events, and delivers only the events that it does not find.
//!
//! A late delivery writes the position again: the cursor in it is unchanged, and the late event is the last delivery. If a
//! restored stream has a lower cursor, it has lost the late deliveries after higher cursors. If its cursor is the one at which
//! events were delivered late, the position names the last of them that the stream certainly has. The lane searches the stream
//! for the others. All lost events are delivered late again.
//!
//! A position names the events of a recorded delivery until the next delivery. If an operator replays such an event, it is
//! therefore published, unless the lane's last append was a delivery of the event and its outcome was unknown.
//!
//! # Limits
//!
//! If the daemon crashes after it has appended a replayed event and before it has recorded this, it publishes the event once
//! more.
//!
//! If an operator has replayed an event of the delivery that moved the cursor, the position names this event before and after
//! the replay. If the stream is restored to the time before the replay, earlier late deliveries at this cursor count as present.
//!
//! # One protocol, two kinds of servers
//!
//! [`Lane`] implements the protocol: claims, positions, skipped events, and deliveries whose outcome is unknown. [`Log`] is
//! the access to a server, with one implementation for NATS and one for Kafka. The protocol compares no clocks.
//!
//! # Invariants
//!
//! * **In order.** An append begins only after the previous one was answered.
//! * **An append without an answer becomes smaller** when it is repeated.
//! * **A missing answer is not a refusal.** An event for which no answer arrives never becomes a dead letter.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use super::narrowing::OtherContent;
use super::{LaneRef, Recorded, SinkError};
use proof::event::{ChannelId, EventKey, Offset};
use record::Message;

mod lane;
mod position;

use position::has_offset;

pub(super) use lane::{Lane, Lanes};
pub(super) use position::Position;

/// The size of the body of a small event, in bytes. If a stream does not accept this size, it accepts no event.
pub(super) const SMALL_BODY: usize = 1_024;

/// The events and the positions of one lane, as a server keeps them.
#[async_trait]
pub(super) trait Log: Send + Sync {
    /// An event that is ready to be appended.
    type Event: Send;

    /// Logged if events are skipped because they are above a cursor that was moved back.
    const MOVED_BACK: &str;

    /// Logged if events are skipped because a crash or a failure happened after they were appended and before they were
    /// recorded.
    const HOLDS: &str;

    /// Takes the lane over. From then on the server refuses the requests of earlier owners, including requests that were
    /// sent before the claim. If no position is confirmed, the recorded cursor becomes the position.
    ///
    /// # Errors
    /// [`SinkError::Overtaken`] if this process had the lane under the same lease, and another instance has claimed it since.
    async fn claim(&mut self, recorded: &Recorded) -> Result<ClaimedPosition, SinkError>;

    /// Finds unrecorded events of the lane. If `everywhere` is true, the whole stream is searched. Otherwise only the part
    /// after the claimed position is searched. If this kind of server cannot have events there that the position does not
    /// cover, nothing is searched.
    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<UnrecordedEvents, SinkError>;

    /// Checks whether events can be appended to this position. Called once before each delivery.
    async fn ready(&mut self, position: &Position) -> Result<(), SinkError>;

    /// Reads the settings of the stream again, because an operator may have changed them.
    async fn refresh(&mut self) -> Result<(), SinkError>;

    fn limits(&self) -> Limits;

    /// Prepares an event. Returns it with its size in bytes.
    ///
    /// # Errors
    /// If the stream is known not to accept the event.
    fn event(&self, message: &Message) -> Result<(Self::Event, usize), SinkError>;

    /// Whether the limits that the stream has stated allow a small event with the channel and the headers of this one.
    fn takes_small(&self, message: &Message) -> bool;

    /// Offers other events after an event that was refused alone for an unknown reason. None of them stays in the stream. By
    /// default, nothing is offered: the position that the lane has claimed is other content that the stream has accepted.
    async fn offer_others(&mut self, _others: Vec<Self::Event>, _position: &Position) -> OtherContent {
        OtherContent::Untried
    }

    /// Appends events, and the position that results from them, if the lane's claim is still valid.
    ///
    /// # Errors
    /// If the position was not appended, or if it is unknown whether it was appended.
    async fn append(&mut self, events: Vec<Self::Event>, position: &Position) -> Result<Appended, SinkError>;

    /// The error if the stream does not have the expected position.
    fn displaced(&self) -> SinkError;
}

pub(super) enum ClaimedPosition {
    /// The stream has no position, although one is confirmed. The lane is not claimed.
    Missing(String),
    /// The lane is claimed, and has this position.
    At(Position),
}

/// Unrecorded events in a stream.
#[derive(Default)]
pub(super) struct UnrecordedEvents {
    /// The events after the position that was claimed. They belong to the last delivery.
    pub(super) last: BTreeSet<EventKey>,
    /// The other events.
    pub(super) earlier: BTreeSet<EventKey>,
}

/// The limits of one append. An event that is larger than `bytes` is appended alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

pub(super) enum Appended {
    All,
    /// The position was not appended. The stream already has these events. The caller appends the others again.
    Held(BTreeSet<EventKey>),
    /// The position was not appended, because an event is refused.
    Refused {
        /// The index of the refused event, if the index is known. All events before this event were then appended. If the
        /// index is unknown, no event was appended.
        at: Option<usize>,
        error: SinkError,
    },
}

const CHANNEL_ID: &str = "Channeld-Channel-Id";
const EVENT_ID: &str = "Channeld-Event-Id";
const OFFSET: &str = "Channeld-Offset";
const SINK: &str = "Channeld-Sink";

/// The headers of an event. [`key_of`] identifies the event by these headers.
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
    serde_json::to_vec(value).expect("positions and lease numbers have text keys and no value that can fail").into()
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
    /// All events above this offset are unrecorded.
    above: Option<Offset>,
    pending: BTreeSet<EventKey>,
    /// The pending events that an operator replays.
    replayed: BTreeSet<EventKey>,
}

impl Unrecorded {
    /// If the stream's position is lower than the recorded cursor, the lane continues at the stream's position.
    pub(super) fn new(recorded: &Recorded, position: Option<Offset>) -> Self {
        let Recorded { through, pending, replayed, .. } = recorded;
        Self { above: position.min(*through), pending: pending.clone(), replayed: replayed.clone() }
    }

    /// A filter for a search that finds only these events.
    fn only(events: &BTreeSet<EventKey>) -> Self {
        Self { above: Offset::new(i64::MAX), pending: events.clone(), replayed: BTreeSet::new() }
    }

    pub(super) fn contains(&self, key: &EventKey) -> bool {
        Some(key.offset) > self.above || self.pending.contains(key)
    }

    /// Whether the event is in the stream from a recorded delivery, and must be delivered again because an operator replays it.
    fn is_replayed(&self, key: &EventKey) -> bool {
        Some(key.offset) <= self.above && self.replayed.contains(key)
    }

    /// Whether the lane has delivered events above the offset at which it continues. An operator has then moved the recorded
    /// cursor back, or another instance has moved the position back.
    pub(super) fn is_moved_back(&self, position: &Position) -> bool {
        position.prior > self.above
    }

    /// The offsets of events that the position names, but that must be looked up in the stream. One reason is that the
    /// position does not contain their ids. The other reason is that an operator has set the cursor: events that are no
    /// longer in the stream must then be delivered again.
    pub(super) fn doubted(&self, position: &Position, recorded: &Recorded) -> BTreeSet<Offset> {
        if recorded.confirmed.is_some() && position.has_ids() {
            return BTreeSet::new();
        }
        let is_unrecorded = |offset: &Offset| Some(*offset) > self.above || has_offset(&self.pending, *offset);
        position.offsets().into_iter().filter(is_unrecorded).collect()
    }

    /// Compares a position with the recorded state. The stream contains the events in `found`. It also contains the events
    /// that the position names, unless their offset is in `doubted`. The events in `last` belong to the last delivery.
    /// Returns the position with which the lane continues, and the unrecorded events in the stream.
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
        // The events in `found` that the position does not name may be too many to be named. The higher `prior` makes the
        // lane search for them again after the next crash.
        position.prior = found.difference(&named).last().map(|key| key.offset).max(position.prior);
        named.extend(found.iter().filter(|key| self.contains(key)));
        (position, named)
    }
}
