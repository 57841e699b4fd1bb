//! A reason why the daemon is not ready.
//!
//! # Invariants
//!
//! * **Typed first.** Code branches on the kind of a reason and on the names in it. The sentence is for people: it is made
//!   last and never parsed.
//! * **Stable names.** The names of the kinds are part of the API. The runbook has a row for each.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A reason why the daemon is not ready. Its [`Display`](fmt::Display) is the sentence that people read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    /// Its kind.
    pub kind: NotReadyKind,
    /// The instance that reports it, if that is not the instance that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The channel that it is about. `None` if it is about the whole process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Arc<str>>,
    /// The sink of the channel that it is about. `None` if it is about the channel itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Arc<str>>,
    /// The problem in words, without these names.
    pub detail: String,
}

/// The kind of a [`NotReady`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NotReadyKind {
    /// No daemon runs.
    NoDaemon,
    /// The state cannot be written.
    StateNotWritable,
    /// The state does not answer, or cannot be read.
    StateNotReadable,
    /// Data was lost to a damaged state, and no operator has acknowledged that.
    StateDamaged,
    /// The shared state does not accept heartbeats.
    HeartbeatFailing,
    /// The status of another instance is unknown.
    InstanceUnknown,
    /// The channel has had no owner for too long.
    NoOwner,
    /// The channel does not run.
    NotRunning,
    /// The channel does not exist or is archived.
    ChannelGone,
    /// The channel has not been read since the start.
    NotReadYet,
    /// The channel cannot be read until an operator acts, or has failed too often.
    ReadingBlocked,
    /// The service has not answered a poll for too long.
    Unanswered,
    /// The service does not show whether a range is complete.
    InDoubt,
    /// None of the channel's events was ever verified, and many were rejected.
    NoneVerified,
    /// The service's newest event is far above all others.
    FarAbove,
    /// Not enough memory for the service's answer.
    AnswerTooLong,
    /// The service's newest event is below the cursor.
    NewestBelowCursor,
    /// The service has a different event than before.
    HistoryDiffers,
    /// A proof was shown in two channels.
    ProofInTwoChannels,
    /// The service's answers promise more events and contain none.
    PollsInVain,
    /// The last events that needed a proof were all rejected.
    RejectedInARow,
    /// The quarantine is full.
    QuarantineFull,
    /// The dead letters are full.
    DeadLettersFull,
    /// The pending events are full.
    LateEventsFull,
    /// The service refuses requests for late proofs.
    LateProofsBlocked,
    /// The sink refuses until an operator acts, or has refused too often.
    SinkBlocked,
    /// The sink has no position although events were delivered to it.
    SinkPositionMissing,
    /// The sink lost data that is being delivered again.
    SinkLostData,
    /// The sink has events above the recorded cursor.
    SinkAhead,
    /// Events of the service's history are missing in the sink.
    EventsMissing,
    /// A reason of an instance of another version.
    #[serde(other)]
    Unknown,
}

impl NotReady {
    /// Creates a reason that concerns the whole process.
    pub(crate) fn new(kind: NotReadyKind, detail: impl Into<String>) -> Self {
        Self { kind, instance: None, channel: None, sink: None, detail: detail.into() }
    }

    /// Makes it a reason about this channel.
    pub(crate) fn of_channel(self, channel: &Arc<str>) -> Self {
        Self { channel: Some(channel.clone()), ..self }
    }

    /// Makes it a reason about this sink.
    pub(crate) fn of_sink(self, sink: &Arc<str>) -> Self {
        Self { sink: Some(sink.clone()), ..self }
    }

    /// Makes it a reason that this instance reports.
    pub(crate) fn of_instance(self, instance: &str) -> Self {
        Self { instance: Some(instance.to_owned()), ..self }
    }

    /// Formats the sentence without the names of the instance and the channel.
    pub fn in_channel(&self) -> String {
        self.sink.as_ref().map_or_else(|| self.detail.clone(), |sink| format!("sink {sink}: {}", self.detail))
    }
}

/// Groups reasons by the channel that they are about.
pub(super) fn by_channel(reasons: &[NotReady]) -> HashMap<&str, Vec<&NotReady>> {
    let mut by_channel = HashMap::<_, Vec<_>>::new();
    for reason in reasons {
        if let Some(channel) = &reason.channel {
            by_channel.entry(&**channel).or_default().push(reason);
        }
    }
    by_channel
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(instance) = &self.instance {
            write!(f, "instance {instance}: ")?;
        }
        match (&self.channel, &self.sink) {
            (Some(channel), Some(sink)) => write!(f, "channel {channel}, sink {sink}: ")?,
            (Some(channel), None) => write!(f, "channel {channel}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.detail)
    }
}
