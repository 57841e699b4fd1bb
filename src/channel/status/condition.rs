//! The condition of a channel or a lane: one word for people, and whether they have to act.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// The condition of a channel or a lane. The best is first: of several conditions the greatest is the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Condition {
    /// Everything works.
    Ok,
    /// Another instance runs the channel, or no instance has claimed it yet.
    Elsewhere,
    /// An operator has paused the sink.
    SinkPaused,
    /// An operator has paused the channel.
    Paused,
    /// It needs more than a moment to catch up.
    Behind,
    /// It waits for memory.
    AwaitingMemory,
    /// In strict ordering, later events wait for the proof of one event.
    AwaitingProof,
    /// The service gave no usable answer, and the request is repeated.
    Waiting,
    /// The sink refuses, and the events are offered again.
    SinkRetrying,
    /// Not ready, for a reason without a condition of its own.
    NotReady,
    /// The lane does not run.
    SinkStopped,
    /// The sink refuses, and an operator must act.
    SinkBlocked,
    /// The channel cannot be read, and an operator must act.
    Blocked,
    /// The limit of pending events is reached.
    TooManyPending,
    /// The quarantine is full.
    QuarantineFull,
    /// It cannot be determined whether a range is complete.
    InDoubt,
    /// The channel does not exist, or is archived.
    Gone,
    /// The channel does not run.
    #[default]
    Stopped,
}

/// The level of a condition, for colors, filters and counts. The best is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything works.
    Good,
    /// An operator has paused it, or another instance runs it.
    Aside,
    /// It makes progress, but needs more than a moment to catch up.
    Behind,
    /// A problem that is expected to resolve without an operator.
    Passing,
    /// An operator must act.
    NeedsAction,
}

impl Condition {
    /// Returns the name for people.
    pub fn name(self) -> String {
        <&str>::from(self).replace('_', " ")
    }

    /// Returns the name for people in the row of a sink, without the word "sink".
    pub fn name_of_sink(self) -> String {
        self.name().trim_start_matches("sink ").to_owned()
    }

    /// Returns its level.
    pub fn level(self) -> Level {
        match self {
            Self::Ok => Level::Good,
            Self::Elsewhere | Self::SinkPaused | Self::Paused => Level::Aside,
            Self::Behind => Level::Behind,
            Self::AwaitingMemory | Self::AwaitingProof | Self::Waiting | Self::SinkRetrying => Level::Passing,
            Self::NotReady
            | Self::SinkStopped
            | Self::SinkBlocked
            | Self::Blocked
            | Self::TooManyPending
            | Self::QuarantineFull
            | Self::InDoubt
            | Self::Gone
            | Self::Stopped => Level::NeedsAction,
        }
    }

    /// Returns whether an operator must act.
    pub fn needs_action(self) -> bool {
        self.level() == Level::NeedsAction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worse_condition_never_has_a_better_level() {
        assert!(Condition::VARIANTS.is_sorted());
        assert!(Condition::VARIANTS.iter().map(|condition| condition.level()).is_sorted());
    }
}
