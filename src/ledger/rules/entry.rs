//! The values of a ledger's entries in the store. They are JSON, so a dump of the store is readable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use proof::event::{ChannelId, EventId, EventKey, Offset};

/// A sink's name in the configuration. The channel and the sink name together identify a lane.
pub type SinkName = Arc<str>;

/// The cursor of a lane: every event up to here was delivered, set aside until its late proof arrives, quarantined, or
/// stored as a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor {
    /// `None` is the position before the first event.
    pub through: Option<Offset>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.through {
            Some(offset) => offset.fmt(f),
            None => f.write_str("the start"),
        }
    }
}

/// A pending event: its proof has not arrived, or the event must be delivered again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingEvent {
    /// The id by which the event is read again. Only an event that left the quarantine may have no id.
    pub event_id: Option<EventId>,
    /// When the wait for the proof or for the next delivery started, in Unix seconds. Only shown to operators: timeouts
    /// use `asked_at`.
    pub first_seen: i64,
    /// The time of `first_seen` on the channel's [`asked`](crate::Ledger::asked) clock. `None` in a state of version 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
    /// When the event was first read, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The sinks for which the event is pending: their lanes have passed the event.
    pub owed: BTreeSet<SinkName>,
    /// Whether the event became visible below offsets that were read earlier. Otherwise its proof was late, or an
    /// operator asked for the event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub appeared: bool,
    /// Whether a replay read the event again. The event must then pass the checks of an event that is read for the first
    /// time, because no operator has seen its body.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// The sinks of `owed` to which an operator replays the event. An earlier delivery to such a sink does not count. An
    /// earlier delivery to another sink does: it may not have been recorded because of a crash.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub replayed_to: BTreeSet<SinkName>,
    /// The size of the body.
    #[serde(skip)]
    pub bytes: u64,
}

/// Why an event becomes pending for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OweReason {
    /// The lane has not delivered the event, or its sink has lost it.
    NotDelivered,
    /// An operator, who has seen the event, has it delivered again.
    Operator,
    /// The event belongs to the range of a replay.
    Replay,
}

/// The position that a sink has confirmed for a lane. A lane has none if `start` or an operator set its cursor and the
/// sink has confirmed nothing since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The sink's own position. The cursor can be higher, because events that are not sent to the sink move only the
    /// cursor.
    pub position: Option<Offset>,
    /// The event that was written last. `None` if no event was written since the cursor was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EventKey>,
}

/// The number of a replay in its channel. A later replay has a larger number.
pub type ReplayId = u64;

/// The location of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventLocation {
    /// Its channel.
    pub channel_id: ChannelId,
    /// Its offset there.
    pub offset: Offset,
}

impl fmt::Display for EventLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} of channel {}", self.offset, self.channel_id)
    }
}

/// The facts about a quarantined event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The offset of the event.
    pub offset: Offset,
    /// The id of the event, if it has a readable id.
    pub event_id: Option<EventId>,
    /// The constant name of the reason.
    pub reason: String,
    /// A description of the reason.
    pub detail: String,
    /// When the event was rejected, in Unix seconds.
    pub at: i64,
    /// When the event was first read, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The location at which the same proof was shown before. If the event contradicts an earlier one, the location at
    /// which the other event, or the other content of this event, was shown before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<EventLocation>,
    /// The digest of the event's proof. Set only if another channel has shown the proof before, or if the signed content
    /// does not belong to this channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The size of the body.
    #[serde(skip)]
    pub bytes: u64,
}

/// The quarantined events of a channel whose proofs one other channel showed first. The details are the details of the
/// first of these events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedDuplicates {
    /// The number of these events.
    pub events: u64,
    /// The offset of the first event.
    pub offset: Offset,
    /// The location in the other channel at which the proof of the first event was shown.
    pub original: EventLocation,
    /// The reason why the first event is quarantined.
    pub reason: String,
    /// The digest of the first event's proof.
    pub digest: String,
}

/// A workflow's id.
pub type WorkflowId = [u8; 32];

/// The number of workflows that are remembered for a channel.
pub const WORKFLOWS: usize = 1_000;

/// A workflow that appeared in a verified event of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownWorkflow {
    /// The channel that showed the workflow first. `None` if this channel was the first.
    pub first_in: Option<ChannelId>,
    /// When this channel first showed the workflow, in Unix seconds.
    pub since: i64,
}

/// A pause of a channel or a sink by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When it started.
    pub since: Timestamp,
    /// When it ends automatically. `None` if only an operator can end it.
    pub until: Option<Timestamp>,
}

/// The pauses of one channel and its sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// The pause of the whole channel.
    pub channel: Option<Pause>,
    /// The pauses of single sinks.
    pub sinks: BTreeMap<SinkName, Pause>,
}

/// In strict ordering, an event that blocks all later events of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// The offset of the event.
    pub offset: Offset,
    /// When it was first seen, in Unix seconds. Only shown to operators: timeouts use `asked_at`.
    pub first_seen: i64,
    /// The time of `first_seen` on the channel's [`asked`](crate::Ledger::asked) clock. `None` in a state of version 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<u64>,
}

/// The facts about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterFacts {
    /// The offset of the event.
    pub offset: Offset,
    /// The id of the event, if it has one.
    pub event_id: Option<EventId>,
    /// The sink's last answer.
    pub reason: String,
    /// How often the event was offered to the sink.
    pub attempts: u32,
    /// When the sink first refused the event, in Unix seconds.
    pub since: i64,
    /// When the sink gave up on the event, in Unix seconds.
    pub at: i64,
    /// When the event was first read, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Timestamp>,
    /// The size of the body.
    #[serde(skip)]
    pub bytes: u64,
}

impl Quarantined {
    /// The key of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

impl DeadLetterFacts {
    /// The key of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

impl Paused {
    /// Whether neither the channel nor a sink is paused.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pauses a sink, or the channel if `sink` is `None`. If `pause` is `None`, the pause ends. A new pause of a paused
    /// sink or channel keeps the start time of the earlier pause.
    pub fn set(&mut self, sink: Option<SinkName>, pause: Option<Pause>) {
        let since =
            |before: &Option<Pause>, pause: Pause| Pause { since: before.map_or(pause.since, |it| it.since), ..pause };
        let Some(sink) = sink else {
            self.channel = pause.map(|pause| since(&self.channel, pause));
            return;
        };
        let before = self.sinks.remove(&sink);
        self.sinks.extend(pause.map(|pause| (sink, since(&before, pause))));
    }

    /// All pauses. The pause of the channel has the sink `None`.
    pub fn each(&self) -> impl Iterator<Item = (Option<&SinkName>, Pause)> {
        let channel = self.channel.iter().map(|pause| (None, *pause));
        channel.chain(self.sinks.iter().map(|(sink, pause)| (Some(sink), *pause)))
    }
}

const MIB: u64 = 1024 * 1024;

/// The limit of one channel's quarantine. When the quarantine is full, the channel stops reading, because no rejected
/// event is discarded.
pub const QUARANTINE: Room = Room { events: 1_000, bytes: 64 * MIB };

/// The limit for the pending events of one channel. When the limit is reached, the channel waits with reading until
/// fewer events are pending.
pub const LATE: Room = Room { events: 10_000, bytes: 64 * MIB };

/// The limit for the dead letters of one channel. When the limit is reached, the channel's sinks retry a refused event
/// instead of giving up on it.
pub const DEAD_LETTERS: Room = Room { events: 10_000, bytes: 64 * MIB };

/// A number of events and their size, used for limits and for usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The number of events.
    pub events: u64,
    /// The size of their JSON in bytes.
    pub bytes: u64,
}

impl Room {
    pub(super) fn of(sizes: impl Iterator<Item = u64>) -> Self {
        sizes.fold(Self::default(), |room, size| Self { events: room.events + 1, bytes: room.bytes + size })
    }

    /// Whether a limit is reached. Events that were already read are stored even above the limit.
    pub fn is_full(self, limit: Self) -> bool {
        self.events >= limit.events || self.bytes >= limit.bytes
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("entries have text keys and no value that can fail").into()
}

/// Decodes a value. The error does not quote the value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, UnreadableValue> {
    serde_json::from_slice(bytes).map_err(|_| UnreadableValue)
}

/// A stored value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its value is damaged, or has the format of another version")]
pub(crate) struct UnreadableValue;
