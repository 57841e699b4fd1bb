//! The status of a channel and of its lanes: the board holds it, `/status` serves it, `channeld status` reads it.
//!
//! # Invariants
//!
//! * **Reported at the source.** Each part of the loop reports what it begins to do and what keeps it from going on; nothing
//!   is guessed from outside.
//! * **Nothing durable.** Cursors, late events, the quarantine and the dead letters are looked up in the ledger.

use std::iter::Sum;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::pace::Progress;
use ledger::{Contradiction, Pause, Room};
use proof::event::{ChannelId, Offset};
use proof::verify::Address;

/// Where so many events that needed a proof were rejected, and none was verified, the configuration may be wrong.
pub const NONE_VERIFIED: u32 = 15;

/// After so many answers in a row that claim more events, and show none that is new, the channel does not move.
pub const POLLS_IN_VAIN: u32 = 15;

/// A channel as it is now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Its name in the configuration.
    pub channel: Arc<str>,
    /// Its id.
    pub channel_id: ChannelId,
    /// What its reading does.
    #[serde(flatten)]
    pub activity: Activity,
    /// The pause of the channel as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The last offset that every lane has dealt with; none before the first.
    pub processed: Option<Offset>,
    /// The highest offset that the service has shown since the daemon started and that counts: one that the service does not
    /// confirm counts no more once it was verified.
    pub newest: Option<Offset>,
    /// The newest offset less the processed: at most so many events are undelivered. None where the newest is not known.
    pub lag_events: Option<u64>,
    /// The age of the oldest event that some lane has not dealt with, see [`LaneStatus`].
    pub oldest_undelivered_seconds: Option<u64>,
    /// Offsets a second that its slowest lane deals with, over the last seconds; where it is behind, and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_second: Option<f64>,
    /// How long that lane needs for what is left, at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// When the service last answered with a page.
    pub last_poll: Option<Timestamp>,
    /// For how long it has not answered a poll, where that is longer than three idle waits and a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered_seconds: Option<u64>,
    /// Events that wait for their proof.
    pub late: usize,
    /// Why late proofs cannot be asked for.
    pub late_error: Option<Problem>,
    /// The last error of its reading since the daemon started, over or not.
    pub last_error: Option<Problem>,
    /// The cursor that the service's newest event is below, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_below: Option<Offset>,
    /// How the service's history differs from what was read, until an operator accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
    /// Answers in a row that said that there are more events, and showed none that is new.
    #[serde(default)]
    pub polls_in_vain: u32,
    /// What the last of them showed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shown_in_vain: String,
    /// Events that needed a proof and were rejected since the last verified one, by the configuration in force.
    #[serde(default)]
    pub rejected_in_a_row: u32,
    /// The reason of the last of them.
    #[serde(default)]
    pub last_rejection: String,
    /// Events in the quarantine.
    pub quarantined: usize,
    /// What the quarantine takes.
    pub quarantine: Kept,
    /// What the dead letters take.
    pub dead_letters: Kept,
    /// Whether no more events may wait for their proof.
    pub late_full: bool,
    /// The configured signers.
    pub signers: Vec<SignerStatus>,
    /// How many of them an event needs; 0 before the channel has run.
    pub required_signatures: usize,
    /// The lists of what is expected of its events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<String>,
    /// Proofs that were shown here and in another channel: right in at most one, until an operator has decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_proofs: Vec<SharedProofs>,
    /// Workflows that another channel showed first, and that are on no list of this one: they may be right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_workflows: Vec<SharedWorkflow>,
    /// In the order of the configuration.
    pub lanes: Vec<LaneStatus>,
}

impl ChannelStatus {
    /// How far it has got, where it is behind.
    pub fn progress(&self) -> Option<Progress> {
        let whole = |offset: Offset| u64::try_from(offset.get()).unwrap_or_default();
        let Self { processed, newest, lag_events, events_per_second, seconds_left, .. } = self;
        let newest = newest.filter(|_| *lag_events > Some(0))?;
        let (done, of) = (processed.map_or(0, whole), whole(newest));
        Some(Progress { done, of, per_second: *events_per_second, seconds_left: *seconds_left })
    }
}

/// Proofs that were shown in two channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedProofs {
    /// The other channel.
    pub other: Arc<str>,
    /// How many.
    pub events: u64,
    /// The offset of the first of them here.
    pub offset: Offset,
    /// And there.
    pub other_offset: Offset,
    /// Its proof.
    pub digest: String,
    /// Whether this channel has them in its quarantine: it showed them later, or they name what is not its own.
    pub held_back: bool,
    /// Why they are quarantined.
    pub reason: String,
}

/// A workflow that was shown in two channels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedWorkflow {
    /// Its id.
    pub workflow_id: String,
    /// The channel that showed it verified first.
    pub first_in: Arc<str>,
    /// Since when this channel shows it too, Unix seconds.
    pub since: i64,
}

/// A lane as it is now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Its sink.
    pub sink: Arc<str>,
    /// Its pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The last offset that it has dealt with; none before the first.
    pub cursor: Option<Offset>,
    /// Late events that it is owed.
    pub owed: usize,
    /// The newest offset less the cursor: at most so many events are undelivered.
    pub lag_events: Option<u64>,
    /// The age of the oldest event that it has not dealt with; 0 where there is none. By the event's own time while it is
    /// being offered, otherwise since the daemon has known that there is one.
    pub oldest_undelivered_seconds: Option<u64>,
    /// Batches that were read and wait for it.
    pub queued_batches: usize,
    /// Offsets a second that it deals with, over the last seconds; where it is behind, and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_second: Option<f64>,
    /// How long it needs for what is left, at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// The sink lost data, which is delivered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<Refill>,
    /// The sink's own position, while it is above the cursor: an older state was restored, or a crash came before the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Offset>,
    /// The result of the last comparison with the service's history, if one was made since the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// Its condition in one word.
    pub state: LaneState,
    /// Why the sink refused the last offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// What its own reading does, while the lane is behind the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Activity>,
}

/// Events that a sink lost and that are delivered to it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refill {
    /// The sink's position when the loss was found: the events above it are delivered again.
    pub above: Option<Offset>,
    /// Up to here: the cursor when the loss was found.
    pub to: Offset,
}

/// A sink compared with the service's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// When.
    pub at: Timestamp,
    /// The events of the service that were compared.
    pub events: u64,
    /// Events that should be in the sink and are not. Events that were replayed since are not counted.
    pub missing: u64,
    /// The offsets of the first of them.
    pub first_missing: Vec<Offset>,
}

/// A lane's condition. If several apply, the last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LaneState {
    /// It does not run.
    #[default]
    Stopped,
    /// It delivers what is read.
    Ok,
    /// It is behind the others, and reads for itself.
    Behind,
    /// Its sink refuses: the same events are offered again after a wait.
    Retrying,
    /// Its sink refuses, and an operator must act.
    Blocked,
    /// An operator has paused it.
    Paused,
}

/// What reading does, or what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "state", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Activity {
    /// Nothing: it does not run.
    #[default]
    Stopped,
    /// Nothing: an operator has paused it.
    Paused,
    /// It waits for the service, or verifies events.
    Reading,
    /// It waits for memory, of which there is as much as `limits.memory` says.
    AwaitingMemory,
    /// It hands on what was read, or waits for a lane that takes it.
    Delivering,
    /// There is no more for now.
    Idle,
    /// The service did not give a usable answer: it is asked again after a wait.
    Waiting {
        /// The error.
        error: Problem,
    },
    /// It cannot be told whether a range is complete: it is read again after a wait, and not passed over.
    InDoubt {
        /// Everything up to this offset has been read.
        above: Option<Offset>,
        /// The lowest offset that the service shows above it.
        below: Offset,
        /// The error, in words.
        error: Problem,
    },
    /// In strict ordering: later events wait for the proof of one event.
    AwaitingProof {
        /// That event's offset.
        offset: Offset,
    },
    /// As many events wait for their proofs as may.
    TooManyLate,
    /// The quarantine has no room.
    QuarantineFull,
    /// The channel does not exist, or is archived.
    Gone,
    /// It runs in another instance, or waits for one to claim it.
    Elsewhere {
        /// That instance's name.
        owner: Option<String>,
    },
}

impl Activity {
    /// Whether this instance knows how the channel is.
    pub fn is_here(&self) -> bool {
        !matches!(self, Self::Elsewhere { .. })
    }

    /// The error that keeps it from going on.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Waiting { error } | Self::InDoubt { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// An error that repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A constant name.
    pub kind: String,
    /// What happened, for an operator. Holds no body and no secret.
    pub message: String,
    /// When it first happened.
    pub since: Timestamp,
    /// How many times in a row.
    pub times: u32,
    /// Whether an operator must act: it is not expected to heal by itself.
    pub needs_attention: bool,
}

/// A configured signer. One that falls silent, or is rotated out, shows here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SignerStatus {
    /// Its address.
    #[serde(deserialize_with = "parsed")]
    pub signer: Address,
    /// When a signature of it was last counted; none before the first since the daemon started.
    pub last_seen: Option<Timestamp>,
}

fn parsed<'de, D: Deserializer<'de>>(text: D) -> Result<Address, D::Error> {
    String::deserialize(text)?.parse().map_err(D::Error::custom)
}

/// What the quarantine, or the dead letters, hold.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether there is no room for more.
    pub full: bool,
}

impl Kept {
    pub(super) fn of(room: Room, limit: Room) -> Self {
        Self { events: room.events, bytes: room.bytes, full: room.is_full(limit) }
    }
}

impl Sum for Kept {
    /// All of them together; full where one is.
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            events: sum.events + one.events,
            bytes: sum.bytes + one.bytes,
            full: sum.full || one.full,
        })
    }
}
