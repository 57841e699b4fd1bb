//! A reason why the daemon is not ready.
//!
//! # Invariants
//!
//! * **Typed.** Code branches on the kind of a reason and on the names in its fields. The sentence is for people and is
//!   never parsed.
//! * **Stable names.** The names of the kinds are part of the API. The runbook explains each kind.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::runbook::{self, split_remedy};

/// A reason why the daemon is not ready. Its [`Display`](fmt::Display) is the sentence that people read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    /// The kind of the reason.
    pub kind: NotReadyKind,
    /// The instance that reports the reason. `None` if it is the instance that answers the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The channel that the reason is about. `None` if the reason is about the whole process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Arc<str>>,
    /// The sink that the reason is about, which is a sink of `channel`. `None` if the reason is about the channel
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Arc<str>>,
    /// The problem in words, without these names.
    pub detail: String,
}

/// The kind of a [`NotReady`].
#[expect(missing_docs, reason = "the runbook has a row for each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NotReadyKind {
    NoDaemon,
    ConfigRejected,
    StateNotWritable,
    StateNotReadable,
    StateDamaged,
    StateWaiting,
    HeartbeatFailing,
    InstanceUnknown,
    NoOwner,
    InstancesDiffer,
    NotRunning,
    ChannelGone,
    NotReadYet,
    ReadingBlocked,
    Unanswered,
    InDoubt,
    NoneVerified,
    FarAbove,
    AnswerTooLong,
    NewestBelowCursor,
    HistoryDiffers,
    ProofInTwoChannels,
    PollsInVain,
    RejectedInARow,
    QuarantineFull,
    DeadLettersFull,
    LateEventsFull,
    LateProofsBlocked,
    SinkBlocked,
    SinkGivingUp,
    SinkPositionMissing,
    SinkLostData,
    SinkAhead,
    EventsMissing,
    /// A kind that this version does not know, reported by an instance of another version.
    #[serde(other)]
    Unknown,
}

impl NotReady {
    /// Creates a reason that concerns the whole process.
    pub(crate) fn new(kind: NotReadyKind, detail: impl Into<String>) -> Self {
        Self { kind, instance: None, channel: None, sink: None, detail: detail.into() }
    }

    /// The problem and its remedy. The problem begins with the names of the instance, the channel and the sink. Without a remedy in
    /// the sentence, the remedy is the one of the runbook.
    pub fn with_remedy(&self) -> (String, Option<String>) {
        let (problem, remedy) = split_remedy(&self.detail);
        let of_runbook = || {
            let topics = runbook::topics();
            let (topic, _) = runbook::by_name(&topics, self.kind.into())?;
            Some(topic.remedy(&self.detail))
        };
        (format!("{}{problem}", self.place()), remedy.map(str::to_owned).or_else(of_runbook))
    }

    /// The names of the instance, the channel and the sink, as the beginning of the sentence.
    fn place(&self) -> String {
        let instance = self.instance.as_ref().map_or_else(String::new, |instance| format!("instance {instance}: "));
        let channel = match (&self.channel, &self.sink) {
            (Some(channel), Some(sink)) => format!("channel {channel}, sink {sink}: "),
            (Some(channel), None) => format!("channel {channel}: "),
            (None, _) => String::new(),
        };
        instance + &channel
    }

    /// Formats the sentence without the names of the instance and the channel.
    pub fn in_channel(&self) -> String {
        self.sink.as_ref().map_or_else(|| self.detail.clone(), |sink| format!("sink {sink}: {}", self.detail))
    }
}

/// Groups the reasons that are about a channel or one of its sinks by the channel's name.
pub(super) fn reasons_by_channel(reasons: &[NotReady]) -> HashMap<&str, Vec<&NotReady>> {
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
        write!(f, "{}{}", self.place(), self.detail)
    }
}
