//! What a channel says about itself while it runs: for `channeld status`, and for whoever else asks.
//!
//! # Invariants
//!
//! * **Said where it is known.** Each part of the loop says what it begins to do and what keeps it from going on; nothing
//!   is guessed from outside.
//! * **What is durable is not here.** Cursors, late proofs and the quarantine are the state's to tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::newest::Newest;
use super::sightings::Sightings;
use crate::event::Offset;

/// A channel as it is now.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What its reading does.
    pub activity: Activity,
    /// How far the service says that it goes.
    pub newest: Newest,
    /// When the service last answered with a page.
    pub last_poll: Option<Timestamp>,
    /// What keeps late proofs from being asked for.
    pub late_proofs: Option<Problem>,
    /// What went wrong last with its reading, be it over or not.
    pub last_error: Option<Problem>,
    /// When its signers were last seen.
    pub signers: Arc<Sightings>,
    /// Its lanes, by sink. None where it does not run.
    pub lanes: BTreeMap<String, LaneNow>,
}

/// A lane, and what it has to do.
#[derive(Clone, Debug)]
pub struct LaneNow {
    /// What it does.
    pub status: LaneStatus,
    /// Batches that were read and wait for it.
    pub queued: usize,
    /// When the event happened that it offers its sink now, by the event's own word.
    pub offers: Option<Timestamp>,
}

/// What reading does, or what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Activity {
    /// Nothing: it does not run.
    #[default]
    Stopped,
    /// Nothing, because an operator says so.
    Paused,
    /// It asks the service, or verifies what came.
    Reading,
    /// It hands on what was read, or waits for a sink that takes it.
    Delivering,
    /// There is no more for now.
    Idle,
    /// The service, or what it answered, was of no use: it is asked again after a wait.
    Waiting {
        /// What went wrong.
        error: Problem,
    },
    /// Whether there are events in a range cannot be told: it is asked again after a wait, and not passed over.
    InDoubt {
        /// Everything up to this offset has been read.
        above: Option<Offset>,
        /// The lowest offset that the service shows above it.
        below: Offset,
        /// The same in words.
        error: Problem,
    },
    /// In strict ordering: everything waits for the proof of one event.
    AwaitingProof {
        /// That event's.
        offset: Offset,
    },
    /// As many events as may wait for their proof do.
    TooManyLate,
    /// The quarantine takes no more.
    QuarantineFull,
    /// The channel does not exist, or is archived.
    Gone,
}

/// What goes wrong, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A constant name.
    pub kind: String,
    /// What happened, for an operator. Holds no body and no secret.
    pub message: String,
    /// When it first did.
    pub since: Timestamp,
    /// How many times in a row.
    pub times: u32,
    /// Whether somebody must act: it is not expected to pass by itself.
    pub needs_attention: bool,
}

impl Activity {
    /// Every [`name`](Self::name) there is.
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

    /// What goes wrong.
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
    /// In one word.
    pub state: LaneCondition,
    /// Why the sink did not take what it was offered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// What its own reading does, while it has fallen behind the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Activity>,
}

/// A lane in one word. Of several that fit, the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneCondition {
    /// It does not run.
    #[default]
    Stopped,
    /// It delivers what is read.
    Ok,
    /// It has fallen behind the others, and reads for itself.
    Behind,
    /// Its sink refuses: the same is offered again after a wait.
    Retrying,
    /// So it does, and that is not expected to pass by itself.
    Blocked,
    /// An operator has paused it.
    Paused,
}

impl LaneCondition {
    /// All of them.
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
    pub fn standing(paused: bool) -> Self {
        let state = if paused { LaneCondition::Paused } else { LaneCondition::Stopped };
        Self { state, error: None, reading: None }
    }

    /// In one word, from what is known.
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
