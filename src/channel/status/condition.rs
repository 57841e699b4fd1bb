//! The condition of a channel or a lane: a short name for people, and whether an operator must act.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// The condition of a channel or a lane. The variants are in order from the best to the worst.
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
    /// The channel or lane needs more than a moment to catch up.
    Behind,
    /// The channel or lane waits for memory.
    AwaitingMemory,
    /// The channel or lane waits until it may send its next request to the service.
    AwaitingTurn,
    /// In strict ordering, later events wait for the proof of one event.
    AwaitingProof,
    /// The service gave no usable answer, and the request is repeated.
    Waiting,
    /// The sink refuses events, and they are offered again.
    SinkRetrying,
    /// The channel or lane is not ready, for a reason that has no condition of its own.
    NotReady,
    /// The lane does not run.
    SinkStopped,
    /// The sink refuses events, and an operator must act.
    SinkBlocked,
    /// The sink refuses one event after another, and each becomes a dead letter.
    SinkGivingUp,
    /// The channel cannot be read, and an operator must act.
    Blocked,
    /// The limit of pending events is reached.
    TooManyPending,
    /// The quarantine is full.
    QuarantineFull,
    /// The channel cannot determine whether a range is complete.
    InDoubt,
    /// The channel does not exist, or is archived.
    Gone,
    /// The channel does not run.
    #[default]
    Stopped,
}

/// The level of a condition, for colors, filters and counts. The variants are in order from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything works.
    Good,
    /// An operator has paused the channel or sink, or another instance runs the channel.
    Aside,
    /// The channel or lane makes progress, but needs more than a moment to catch up.
    Behind,
    /// A problem that is expected to end without an operator's help.
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

    /// Returns the level of this condition.
    pub fn level(self) -> Level {
        match self {
            Self::Ok => Level::Good,
            Self::Elsewhere | Self::SinkPaused | Self::Paused => Level::Aside,
            Self::Behind => Level::Behind,
            passing if passing < Self::NotReady => Level::Passing,
            _ => Level::NeedsAction,
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
