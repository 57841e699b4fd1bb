//! What is asked and answered, as it goes over the wire: JSON.

use serde::{Deserialize, Serialize};

use super::{Changes, Report};
use crate::event::{ChannelId, Offset};
use crate::state::{GivenUp, Quarantined};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// How everything is.
    Status,
    /// To read the configuration again.
    Reload,
    /// What is in the quarantine, of one channel or of all.
    QuarantineList {
        /// A name or an id.
        channel: Option<String>,
    },
    /// One quarantined event with its bytes.
    QuarantineShow {
        /// A name or an id.
        channel: String,
        /// Its place.
        offset: Offset,
    },
    /// To verify quarantined events again, and to deliver what holds.
    QuarantineRetry {
        /// A name or an id.
        channel: String,
        /// Which of them.
        which: Selection,
    },
    /// To throw evidence away.
    QuarantineDrop {
        /// A name or an id.
        channel: String,
        /// Which.
        offsets: Vec<Offset>,
    },
    /// What sinks gave up on, of one channel or of all, of one sink or of all.
    DeadLetterList {
        /// A name or an id.
        channel: Option<String>,
        /// A sink.
        sink: Option<String>,
    },
    /// One dead letter with its event.
    DeadLetterShow {
        /// A name or an id.
        channel: String,
        /// The sink that gave it up.
        sink: String,
        /// Its place.
        offset: Offset,
    },
    /// To deliver dead letters once more.
    DeadLetterReplay {
        /// A name or an id.
        channel: String,
        /// The sink that gave them up.
        sink: String,
        /// Which.
        which: DeadSelection,
    },
    /// To throw dead letters away.
    DeadLetterDrop {
        /// A name or an id.
        channel: String,
        /// The sink that gave them up.
        sink: String,
        /// Which.
        which: DeadSelection,
    },
    /// To deliver events of the past to one sink once more.
    Replay {
        /// A name or an id.
        channel: String,
        /// The sink.
        sink: String,
        /// The events, as the service gave them.
        events: Vec<Again>,
    },
    /// To pause or resume a channel, or one of its sinks.
    Pause {
        /// A name or an id.
        channel: String,
        /// The one sink that is meant.
        sink: Option<String>,
        /// Whether it is to stand still.
        paused: bool,
    },
    /// Where the lanes are, of one channel or of all.
    CursorShow {
        /// A name or an id.
        channel: Option<String>,
    },
    /// To put the cursors of a channel, or of one of its sinks, elsewhere.
    CursorSet {
        /// A name or an id.
        channel: String,
        /// The one sink that is meant.
        sink: Option<String>,
        /// The last offset that counts as dealt with; `None` is before the first event.
        to: Option<Offset>,
        /// Whether it is done, and not only said what it would do.
        apply: bool,
    },
}

/// Which quarantined events of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// These, or all where none is named.
    pub offsets: Vec<Offset>,
    /// Of those only what was rejected for this reason.
    pub reason: Option<String>,
}

/// Which dead letters of a sink: those to which all of this applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadSelection {
    /// These, or all where none is named.
    pub offsets: Vec<Offset>,
    /// Those at this offset or above.
    pub from: Option<Offset>,
    /// Those at this offset or below.
    pub to: Option<Offset>,
    /// Those given up at this second or later, Unix seconds.
    pub since: Option<i64>,
    /// Those given up at this second or earlier.
    pub until: Option<i64>,
}

/// An event that is to be delivered once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Its bytes, in base64.
    pub json: String,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How everything is.
    Status(Box<Report>),
    /// What another configuration has changed.
    Reloaded(Changes),
    /// What is in the quarantine.
    Quarantine(Vec<Kept>),
    /// One quarantined event.
    Evidence {
        /// What is known about it.
        kept: Kept,
        /// Its bytes, in base64: they need not be a text.
        bytes: String,
    },
    /// What became of each event that was verified again.
    Retried(Vec<Retried>),
    /// What was thrown away.
    Dropped(Vec<Offset>),
    /// What sinks gave up on.
    DeadLetters(Vec<Letter>),
    /// One dead letter.
    DeadLetter {
        /// What is known about it.
        letter: Letter,
        /// The event.
        event: String,
    },
    /// What is on its way to a sink once more.
    Replaying(Vec<Offset>),
    /// What is paused of a channel now.
    Paused(Paused),
    /// Where the lanes are.
    Cursors(Vec<Position>),
    /// Which cursors were, or would be, put elsewhere.
    Moves(Vec<Move>),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// What was asked cannot be. Says what to ask instead.
    #[error("{0}")]
    Usage(String),
    /// The configuration cannot be used. Says everything that is wrong with it.
    #[error("{0}")]
    Config(String),
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
}

/// A quarantined event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its channel's name, or else its id.
    pub channel: String,
    /// Its channel's id.
    pub channel_id: ChannelId,
    /// What is known about it.
    #[serde(flatten)]
    pub facts: Quarantined,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Its channel's name, or else its id.
    pub channel: String,
    /// Its channel's id.
    pub channel_id: ChannelId,
    /// The sink that gave it up.
    pub sink: String,
    /// What is known about it.
    #[serde(flatten)]
    pub facts: GivenUp,
}

/// What is paused of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Whether that is news.
    pub changed: bool,
    /// The channel as a whole.
    pub channel: bool,
    /// These sinks of it.
    pub sinks: Vec<String>,
}

/// An event that was verified again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retried {
    /// Its place.
    pub offset: Offset,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// What became of an event that was verified again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// It holds: it is on its way to the sinks that passed it.
    Delivering,
    /// It has no proof yet: the proof is waited for once more.
    Waiting,
    /// It holds, but no sink has passed it: it is read from the service in its turn.
    InItsTurn,
    /// It still does not hold, and is kept.
    Kept {
        /// The reason's constant name.
        reason: String,
        /// The reason in words.
        detail: String,
    },
    /// It is not in the quarantine.
    NotThere,
}

/// Where a lane is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Its channel's name, or else its id.
    pub channel: String,
    /// Its channel's id.
    pub channel_id: ChannelId,
    /// Its sink.
    pub sink: String,
    /// Whether the configuration has it.
    pub configured: bool,
    /// The last offset that counts as dealt with; `None` is before the first event.
    pub cursor: Option<Offset>,
    /// Late events that it is owed.
    pub owed: usize,
}

/// A cursor that is put elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Its sink.
    pub sink: String,
    /// Where it was.
    pub from: Option<Offset>,
    /// Where it goes.
    pub to: Option<Offset>,
    /// Offsets that are read again: the most events that can be repeated.
    pub repeated: u64,
    /// Offsets that are passed over: the most events that this sink never gets.
    pub passed_over: u64,
}
