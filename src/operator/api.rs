//! What an operator asks and what is answered.
//!
//! Answers, and the bodies of POST requests, are JSON. The members of a GET request stand in its path or its query.
//!
//! A request's `channel` is a configured name or an id. An answer's is the configured name, or the id of a channel that is
//! not configured. A `sink` is a configured name, and an optional channel or sink restricts a request to it. A `reason` is
//! its constant name, a `detail` says it in words. An `Option<Offset>` is a cursor: the last offset that counts as
//! processed, `None` before the first event.

use serde::{Deserialize, Serialize};

pub use crate::channel::{DeadLetterSelection, Fate, Retried};
use crate::event::{ChannelId, Offset};
use crate::ledger::{GivenUp, Quarantined};

/// Asks for the [`Report`](super::Report).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetStatus {}

/// Reads the configuration and the secrets again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reload {}

/// Says that an operator has seen what was lost to a damaged state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AcknowledgeLost {}

/// Lists the quarantine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListQuarantine {
    pub channel: Option<String>,
}

/// Shows one quarantined event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowQuarantined {
    pub channel: String,
    pub offset: Offset,
}

/// Verifies quarantined events again and delivers what holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetryQuarantined {
    pub channel: String,
    /// The events; all where none is named.
    pub offsets: Vec<Offset>,
    /// Of those only what was rejected for this reason.
    pub reason: Option<String>,
}

/// Removes events from the quarantine for good.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DropQuarantined {
    pub channel: String,
    pub offsets: Vec<Offset>,
}

/// Lists dead letters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListDeadLetters {
    pub channel: Option<String>,
    pub sink: Option<String>,
}

/// Shows one dead letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowDeadLetter {
    pub channel: String,
    /// The sink that gave the event up.
    pub sink: String,
    pub offset: Offset,
}

/// Delivers dead letters once more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RedeliverDeadLetters {
    pub channel: String,
    /// The sink that gave them up.
    pub sink: String,
    pub which: DeadLetterSelection,
}

/// Removes dead letters for good.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DropDeadLetters {
    pub channel: String,
    /// The sink that gave them up.
    pub sink: String,
    pub which: DeadLetterSelection,
}

/// Delivers events of the past to one sink once more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Redeliver {
    pub channel: String,
    pub sink: String,
    /// The events' bytes as the service gave them, each in base64.
    pub events: Vec<String>,
}

/// Pauses a channel, or one of its sinks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pause {
    pub channel: String,
    pub sink: Option<String>,
}

/// Resumes a channel, or one of its sinks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resume {
    pub channel: String,
    pub sink: Option<String>,
}

/// Lists the cursors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListCursors {
    pub channel: Option<String>,
}

/// Sets the cursors of a channel, or of one of its sinks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetCursors {
    pub channel: String,
    pub sink: Option<String>,
    pub to: Option<Offset>,
    /// Whether to do it. Otherwise the answer says what it would do.
    pub apply: bool,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The request cannot be carried out as it is. Says what to ask instead. Status 400.
    #[error("{0}")]
    Usage(String),
    /// The configuration cannot be used. Says everything that is wrong with it. Status 422.
    #[error("{0}")]
    Config(String),
    /// It failed. Status 500.
    #[error("{0}")]
    Failed(String),
}

/// What is known of a quarantined event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineEntry {
    pub channel: String,
    pub channel_id: ChannelId,
    #[serde(flatten)]
    pub facts: Quarantined,
}

/// A quarantined event with its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedEvent {
    #[serde(flatten)]
    pub entry: QuarantineEntry,
    /// Its bytes as text, where they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes, in base64.
    pub bytes_base64: String,
}

/// What is known of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterEntry {
    pub channel: String,
    pub channel_id: ChannelId,
    /// The sink that gave the event up.
    pub sink: String,
    #[serde(flatten)]
    pub facts: GivenUp,
}

/// A dead letter with its event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterEvent {
    pub entry: DeadLetterEntry,
    pub event: String,
}

/// What is paused of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Whether the request changed anything.
    pub changed: bool,
    /// Whether the channel as a whole is paused.
    pub channel: bool,
    /// The sinks of it that are paused.
    pub sinks: Vec<String>,
}

/// The cursor of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorPosition {
    pub channel: String,
    pub channel_id: ChannelId,
    pub sink: String,
    /// Whether the configuration has this lane.
    pub configured: bool,
    pub cursor: Option<Offset>,
    /// Late events that are owed to the sink.
    pub owed: usize,
}

/// A cursor that is, or would be, set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorMove {
    pub sink: String,
    pub from: Option<Offset>,
    pub to: Option<Offset>,
    /// Offsets that are read again: the most events that can be repeated.
    pub repeated: u64,
    /// Offsets that are passed over: the most events that this sink never gets.
    pub passed_over: u64,
}
