//! The status of a channel and its lanes. The board stores it, `/status` serves it, and `channeld status` reads it.
//!
//! # Invariants
//!
//! * **Reported at the source.** Each part of the loop reports the work that it begins and the error that stops it. Nothing
//!   is inferred from outside.
//! * **Not durable.** Cursors, late events, the quarantine and the dead letters are read from the ledger.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use strum::{IntoStaticStr, VariantNames};

pub use condition::{Condition, Level};
pub use replays::ReplayStatus;

use crate::status::pace::Progress;
use crate::status::watchers::WatcherStatus;
use crate::verify::reason::RejectionReason;
use api::AccountName;
use ledger::{Contradiction, Pause, Paused, Room};
use proof::event::{ChannelId, Offset, UnknownPart};
use proof::verify::Address;

pub(crate) mod board;
pub(crate) mod catch_up;
pub(crate) mod comparisons;
mod condition;
pub(crate) mod deliveries;
pub(crate) mod hour;
pub(crate) mod newest;
pub(crate) mod pace;
pub(crate) mod replays;
pub(crate) mod reporter;
pub(crate) mod unknown;
pub(crate) mod watchers;

/// If this many events that needed a proof were rejected, and no event was verified, the configuration may be wrong.
pub const NONE_VERIFIED: u32 = 15;

/// A channel or lane does not count as behind if it needs fewer seconds than this to catch up.
pub const NOTEWORTHY: u64 = 3;

/// After this many consecutive answers that report more events but contain no new event, the channel is stuck.
pub const POLLS_IN_VAIN: u32 = 15;

/// The current status of a channel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// The channel's name in the configuration.
    pub channel: Arc<str>,
    /// The channel's id.
    pub channel_id: ChannelId,
    /// Whether `[discover]` has added the channel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discovered: bool,
    /// The account whose key reads the channel. Set when a report is made, and not shown for the default account.
    #[serde(default, skip_serializing_if = "AccountName::is_default")]
    pub account: AccountName,
    /// The worst condition of the channel and its lanes. Set when a report is made.
    #[serde(default)]
    pub condition: Condition,
    /// The activity of the channel's reading.
    #[serde(flatten)]
    pub activity: Activity,
    /// The pause of the channel as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The highest offset that every lane has processed. `None` before the first.
    pub cursor: Option<Offset>,
    /// The highest offset of the service that is known since the daemon started. An offset counts from the page that shows
    /// it. It no longer counts if the service does not confirm its event.
    pub newest: Option<Offset>,
    /// The newest offset minus the cursor: the most events that can be undelivered. `None` if unknown.
    pub lag_events: Option<u64>,
    /// The age of the oldest event that some lane has not processed, see [`LaneStatus`].
    pub oldest_undelivered_seconds: Option<u64>,
    /// The rate of the slowest lane over the last seconds, in offsets per second. `None` if this lane has no lag, or if the
    /// rate is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_second: Option<f64>,
    /// The estimated seconds until the slowest lane has no lag, at the rate `events_per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// When the service last answered with a page.
    pub last_poll: Option<Timestamp>,
    /// How long the service has not answered a poll. `None` while this is not longer than three idle waits and a retry wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered_seconds: Option<u64>,
    /// The number of pending events.
    #[serde(default)]
    pub pending: usize,
    /// The error that prevents requests for late proofs.
    pub pending_error: Option<Problem>,
    /// The error that prevents the search for events that become visible late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_error: Option<Problem>,
    /// The replays that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replays: Vec<ReplayStatus>,
    /// The error that prevents the reading of past events for a replay, or the problem that the sink of a replay is not
    /// configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_error: Option<Problem>,
    /// The error that prevents the comparison of the service's history with the sinks. `None` after a complete comparison. With an
    /// error, the results in `lanes` come from an earlier comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare_error: Option<Problem>,
    /// The last error of the channel's reading since the daemon started, even if the error is resolved.
    pub last_error: Option<Problem>,
    /// If the service's newest event is below the events that were already read, the highest offset that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_below: Option<Offset>,
    /// The difference between the service's history and the events that were read before. `None` after an operator has
    /// accepted the service's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
    /// The number of consecutive answers that reported more events but contained no new event.
    #[serde(default)]
    pub polls_in_vain: u32,
    /// A description of the last of the answers that `polls_in_vain` counts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shown_in_vain: String,
    /// The number of distinct events that needed a proof and were rejected, since the last verified event and under the
    /// current configuration. At most 1,000.
    #[serde(default)]
    pub rejected_in_a_row: u32,
    /// The reason for the last of the rejections that `rejected_in_a_row` counts.
    #[serde(default, with = "crate::verify::reason")]
    pub last_rejection: Option<RejectionReason>,
    /// The number of events in the quarantine.
    pub quarantined: usize,
    /// The size of the quarantine.
    pub quarantine: StoredEvents,
    /// The size of the dead letters.
    pub dead_letters: StoredEvents,
    /// Whether the limit of pending events is reached.
    #[serde(default)]
    pub pending_full: bool,
    /// The configured signers.
    pub signers: Vec<SignerStatus>,
    /// The number of signatures that an event needs. 0 before the channel has run.
    pub required_signatures: usize,
    /// The names of the channel's `expect` lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<String>,
    /// Proofs of this channel that another channel showed too. Until an operator decides, at most one of the two channels
    /// delivers each of these proofs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_proofs: Vec<SharedProofs>,
    /// Workflows that another channel showed first and that are on no list of this channel. This may be legitimate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_workflows: Vec<SharedWorkflow>,
    /// The values of the service that this version does not know, in the order in which they first occurred since the daemon
    /// started. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_values: Vec<UnknownValueStatus>,
    /// The watchers whose events were delivered since the daemon started. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watchers: Vec<WatcherStatus>,
    /// The lanes, in configuration order.
    pub lanes: Vec<LaneStatus>,
    /// Some of the members above under their former names.
    #[serde(flatten)]
    pub former: FormerNames,
}

/// Members of a status under their former names. Only one version writes them, so that operators can change their scripts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FormerNames {
    /// The former name of `cursor`.
    pub processed: Option<Offset>,
    /// The former name of `pending`.
    pub late: usize,
    /// The former name of `pending_error`.
    pub late_error: Option<Problem>,
    /// The former name of `pending_full`.
    pub late_full: bool,
}

impl ChannelStatus {
    /// Returns the progress of the channel, if the channel has a lag.
    pub fn progress(&self) -> Option<Progress> {
        let whole = |offset: Offset| u64::try_from(offset.get()).unwrap_or_default();
        let Self { cursor, newest, lag_events, events_per_second, seconds_left, .. } = self;
        let newest = newest.filter(|_| *lag_events > Some(0))?;
        let (done, of) = (cursor.map_or(0, whole), whole(newest));
        Some(Progress { done, of, per_second: *events_per_second, seconds_left: *seconds_left })
    }
}

/// Proofs that were shown in two channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedProofs {
    /// The other channel.
    pub other: Arc<str>,
    /// The number of these proofs.
    pub events: u64,
    /// The offset in this channel of the first of these proofs.
    pub offset: Offset,
    /// The offset of the same proof in the other channel.
    pub other_offset: Offset,
    /// The digest of the first of these proofs.
    pub digest: String,
    /// Whether this channel's quarantine contains the events with these proofs, because this channel showed the proofs later,
    /// or because their content belongs to another channel.
    #[serde(default)]
    pub quarantined: bool,
    /// `quarantined` under its former name, for one version.
    #[serde(default)]
    pub held_back: bool,
    /// Why the events are quarantined.
    pub reason: String,
}

/// A workflow that was shown in two channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedWorkflow {
    /// The workflow's id.
    pub workflow_id: String,
    /// The channel that first showed the workflow in a verified event.
    pub first_in: Arc<str>,
    /// When this channel first showed the workflow, in Unix seconds.
    pub since: i64,
}

/// A value of the service that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownValueStatus {
    /// The part of the service's data in which the value occurs.
    pub what: UnknownPart,
    /// The value. It is at most 100 characters long, and its control characters are escaped.
    pub value: Box<str>,
    /// The offset of the first event with the value. `None` if the value is not part of an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// When this process first read the value.
    pub since: Timestamp,
}

/// The current status of a lane.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The name of the lane's sink.
    pub sink: Arc<str>,
    /// The pause of the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The highest offset that the lane has processed. `None` before the first.
    pub cursor: Option<Offset>,
    /// The number of late events that the lane has yet to deliver.
    #[serde(default)]
    pub late_deliveries: usize,
    /// `late_deliveries` under its former name, for one version.
    #[serde(rename = "owed", default)]
    pub former_owed: usize,
    /// The newest offset minus the cursor: the most events that can be undelivered.
    pub lag_events: Option<u64>,
    /// The age of the oldest event that the lane has not processed, or 0 if the lane has processed all events. If this event or
    /// a later one is being offered to a sink of the channel, the age is measured from the time of that event. Otherwise it is
    /// measured from the time when the daemon learned of the event.
    pub oldest_undelivered_seconds: Option<u64>,
    /// The number of batches that were read and wait for the sink.
    pub queued_batches: usize,
    /// The rate of the lane over the last seconds, in offsets per second. `None` if the lane has no lag, or if the rate is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_second: Option<f64>,
    /// The estimated seconds until the lane has no lag, at the rate `events_per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// The events that the sink lost and that are being delivered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<Refill>,
    /// The sink's own position, while it is above the cursor. The cause is that an older state was restored, or that a crash
    /// preceded a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Offset>,
    /// The result of the last comparison with the service's history, if one was made since the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// Why the sink acknowledges events before they are on a disk. `None` if it does not, or if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_ack: Option<String>,
    /// The number of watcher events, since the channel started, that the sink did not receive because they have no confidence
    /// and the sink's filter has a `min_confidence`.
    #[serde(default)]
    pub without_confidence: u64,
    /// The number of events that became dead letters one after another, because the sink refused each of them for a reason that
    /// is the event's. 0 after the sink has accepted an event, and while it refuses events for another reason.
    #[serde(default)]
    pub dead_letters_in_a_row: u64,
    /// The condition of the lane. Set when a report is made.
    #[serde(default)]
    pub condition: Condition,
    /// The activity of the lane's delivery.
    pub state: LaneState,
    /// The reason for the sink's last refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The activity of the lane's own reading, while the lane is behind the other lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Activity>,
}

/// The events that a sink lost and that are being delivered to it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refill {
    /// The sink's position when the loss was detected. The events above it are delivered again.
    pub above: Option<Offset>,
    /// The cursor when the loss was detected. This is the last offset to deliver again.
    pub to: Offset,
}

/// The result of a comparison between a sink and the service's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The time of the comparison.
    pub at: Timestamp,
    /// The number of events in the service's history that were compared.
    pub events: u64,
    /// The number of events that should be in the sink but are not. Events that were replayed after the comparison are not
    /// counted.
    pub missing: u64,
    /// The offsets of the first missing events.
    pub first_missing: Vec<Offset>,
}

/// The activity of a lane's delivery. If several variants apply, the last of them is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LaneState {
    /// The lane is not running.
    #[default]
    Stopped,
    /// The lane delivers the events that the channel reads.
    Ok,
    /// The lane is behind the other lanes, and reads for itself.
    Behind,
    /// The sink refuses events. The lane offers the same events again after a wait.
    Retrying,
    /// The sink refuses events, and an operator must act.
    Blocked,
    /// The sink refuses one event after another, and each becomes a dead letter.
    GivingUp,
    /// An operator has paused the sink or the channel.
    Paused,
}

/// The activity of a part of the channel that reads events: the channel's reading, the reading of a lane that is behind, or
/// the requests for late proofs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "state", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Activity {
    /// The channel or lane is not running.
    #[default]
    Stopped,
    /// An operator has paused the channel.
    Paused,
    /// The reader waits for the service, or verifies events.
    Reading,
    /// The reader waits for memory. The limit is `limits.memory`.
    AwaitingMemory,
    /// The reader waits until it may send its next request. Either the requests share `api.requests_per_second`, or the
    /// service has limited the request rate.
    AwaitingTurn,
    /// The reader passes on the events that it read, or waits for a lane to accept them.
    Delivering,
    /// The service has no more events for now.
    Idle,
    /// The service gave no usable answer. The request is repeated after a wait.
    Waiting {
        /// The error.
        error: Problem,
    },
    /// The reader cannot determine whether a range is complete. It reads the range again after a wait, and never skips it.
    InDoubt {
        /// The last offset that was read.
        above: Option<Offset>,
        /// The lowest offset above `above` that the service shows.
        below: Offset,
        /// The error.
        error: Problem,
    },
    /// In strict ordering, later events wait for the proof of one event.
    AwaitingProof {
        /// The offset of the pending event.
        offset: Offset,
    },
    /// The limit of pending events is reached.
    TooManyLate,
    /// The quarantine is full.
    QuarantineFull,
    /// The channel does not exist, or is archived.
    Gone,
    /// Another instance runs the channel, or no instance has claimed it yet.
    Elsewhere {
        /// The name of the instance that runs the channel.
        owner: Option<String>,
    },
}

impl Activity {
    /// Returns whether this instance knows the channel's state.
    pub fn is_here(&self) -> bool {
        !matches!(self, Self::Elsewhere { .. })
    }

    /// Returns the error that prevents reading.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Waiting { error } | Self::InDoubt { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// An error, with the number of its repetitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The constant name of this kind of error.
    pub kind: String,
    /// The error message for an operator. Contains no request or response body and no secret.
    pub message: String,
    /// When the error first happened.
    pub since: Timestamp,
    /// The number of consecutive occurrences.
    pub times: u32,
    /// Whether an operator must act, because the error is not expected to end without help.
    pub needs_attention: bool,
}

impl Problem {
    /// The kind of the error that a sink has no position although events were delivered to it.
    pub const POSITION_MISSING: &str = "position_missing";
    /// The kind of the error that an event is far above all other events.
    pub const FAR_ABOVE: &str = "far-above";
    /// The kind of the error that a channel never had a verified event but has many rejected events.
    pub const NONE_VERIFIED: &str = "none-verified";
    /// The kind of the error that the recorded state of the channel cannot be read.
    pub const STATE_NOT_READABLE: &str = "state-not-readable";
    /// The kind of the error that an answer does not fit into the memory.
    pub const TOO_LONG: &str = "too-long";
    /// The kind of the problem that the sink of a replay is not configured.
    pub const SINK_NOT_CONFIGURED: &str = "sink-not-configured";
    /// The kind of the problem that a sink's target has asked all channels to wait.
    pub const ASKED_TO_WAIT: &str = "asked_to_wait";

    /// Creates a problem that occurs now for the first time.
    pub(crate) fn new(kind: &str, message: String, needs_attention: bool) -> Self {
        Self { kind: kind.to_owned(), message, since: Timestamp::now(), times: 1, needs_attention }
    }

    /// Counts this problem as a repetition of the last problem, if both are of the same kind.
    pub(crate) fn after(self, last: Option<&Self>) -> Self {
        let Some(Self { since, times, .. }) = last.filter(|last| last.kind == self.kind) else { return self };
        Self { since: *since, times: times.saturating_add(1), ..self }
    }
}

/// A configured signer. Its status reveals a signer that no longer signs, for example after a key rotation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignerStatus {
    /// The signer's address.
    #[serde(deserialize_with = "parsed")]
    pub signer: Address,
    /// When a signature of this signer was last counted. `None` if none was counted since the daemon started.
    pub last_seen: Option<Timestamp>,
}

fn parsed<'de, D: Deserializer<'de>>(text: D) -> Result<Address, D::Error> {
    String::deserialize(text)?.parse().map_err(D::Error::custom)
}

/// The size of the quarantine or of the dead letters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StoredEvents {
    /// The number of events.
    pub events: u64,
    /// The size of these events in bytes.
    pub bytes: u64,
    /// Whether the limit is reached.
    pub full: bool,
}

impl StoredEvents {
    pub(super) fn of(room: Room, limit: Room) -> Self {
        Self { events: room.events, bytes: room.bytes, full: room.is_full(limit) }
    }
}

impl Sum for StoredEvents {
    /// Returns the total. The total is full if one of its parts is full.
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            events: sum.events + one.events,
            bytes: sum.bytes + one.bytes,
            full: sum.full || one.full,
        })
    }
}

/// The pauses of a channel and its sinks, and the sinks that accept no more events.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    /// The pauses that the ledger records.
    pub paused: Paused,
    /// The sinks that accept no more events, each with the error. No event is offered to these sinks until an operator
    /// resumes them.
    pub(crate) gone: BTreeMap<String, Problem>,
    /// How often an operator has resumed each sink.
    pub(crate) resumed: BTreeMap<String, u64>,
}
