//! The status of a channel while it runs, for operators.
//!
//! # Invariants
//!
//! * **Reported at the source.** Each part of the loop reports what it begins to do and what keeps it from going on; nothing
//!   is guessed from outside.
//! * **Nothing durable.** Cursors, late events and the quarantine are in the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::channel::newest::Newest;
use crate::channel::signers::SignerActivity;
use crate::event::Offset;

/// A channel as it is now.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What its reading does.
    pub activity: Activity,
    /// The newest offset, by what the service shows.
    pub newest: Newest,
    /// When the service last answered with a page.
    pub last_poll: Option<Timestamp>,
    /// Why late proofs cannot be asked for.
    pub late_proofs: Option<Problem>,
    /// The last error of its reading, over or not.
    pub last_error: Option<Problem>,
    /// When its signers last signed.
    pub signers: Arc<SignerActivity>,
    /// Its lanes, by sink. Empty where it does not run.
    pub lanes: BTreeMap<String, LaneNow>,
}

/// A lane, and its work.
#[derive(Clone, Debug)]
pub struct LaneNow {
    /// The lane's status.
    pub status: LaneStatus,
    /// Batches in its queue.
    pub queued: usize,
    /// The time that the event in offer carries.
    pub offers: Option<Timestamp>,
}

/// What reading does, or what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Activity {
    /// Nothing: it does not run.
    #[default]
    Stopped,
    /// Nothing: an operator has paused it.
    Paused,
    /// It waits for the service, or verifies events.
    Reading,
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

impl Activity {
    /// Every [`name`](Self::name).
    pub const NAMES: [&str; 11] = [
        "stopped",
        "paused",
        "reading",
        "delivering",
        "idle",
        "waiting",
        "in_doubt",
        "awaiting_proof",
        "too_many_late",
        "quarantine_full",
        "gone",
    ];

    /// Its constant name, as in the JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Reading => "reading",
            Self::Delivering => "delivering",
            Self::Idle => "idle",
            Self::Waiting { .. } => "waiting",
            Self::InDoubt { .. } => "in_doubt",
            Self::AwaitingProof { .. } => "awaiting_proof",
            Self::TooManyLate => "too_many_late",
            Self::QuarantineFull => "quarantine_full",
            Self::Gone => "gone",
        }
    }

    /// The error that keeps it from going on.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Waiting { error } | Self::InDoubt { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// A lane as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Its condition in one word.
    pub state: LaneCondition,
    /// Why the sink refused the last offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// What its own reading does, while the lane is behind the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Activity>,
}

/// A lane's condition in one word; where several apply, the last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneCondition {
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

impl LaneCondition {
    /// Every condition.
    pub const ALL: [Self; 6] = [Self::Stopped, Self::Ok, Self::Behind, Self::Retrying, Self::Blocked, Self::Paused];

    /// Its constant name, as in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Ok => "ok",
            Self::Behind => "behind",
            Self::Retrying => "retrying",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
        }
    }
}

impl LaneStatus {
    /// A lane whose channel does not run.
    #[must_use]
    pub fn stopped(paused: bool) -> Self {
        let state = if paused { LaneCondition::Paused } else { LaneCondition::Stopped };
        Self { state, error: None, reading: None }
    }

    /// The status that follows from what is known.
    pub(super) fn of(error: Option<Problem>, reading: Option<Activity>, paused: bool) -> Self {
        let state = match (&error, &reading) {
            _ if paused => LaneCondition::Paused,
            (Some(error), _) if error.needs_attention => LaneCondition::Blocked,
            (Some(_), _) => LaneCondition::Retrying,
            (None, Some(_)) => LaneCondition::Behind,
            (None, None) => LaneCondition::Ok,
        };
        Self { state, error, reading }
    }
}
