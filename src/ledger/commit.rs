//! What one step of a channel changes in its ledger, and what comes of that.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::{
    Blocker, Confirmed, GivenUp, HeldBack, Pause, Paused, Quarantined, ShownWorkflow, WorkflowId, encode,
};
use super::history::{Contradiction, KnownEvent};
use super::proofs::Proof;
use super::{Changes, Cursor, Key, SinkName};
use proof::event::{EventId, EventKey, Offset};

/// Changes that belong together: all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit(pub Vec<Change>);

/// One of them. They are applied in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A lane has got this far. Refused where it is further already.
    Advance {
        /// The lane's sink.
        sink: SinkName,
        /// Its new position.
        to: Cursor,
    },
    /// Chooses a cursor, backwards too: by an operator, or because the sink has lost data. What the sink had confirmed does
    /// not count any more.
    SetCursor {
        /// The lane's sink.
        sink: SinkName,
        /// Its new position.
        to: Cursor,
    },
    /// A sink has confirmed its position.
    Confirm {
        /// The lane's sink.
        sink: SinkName,
        /// What it has confirmed.
        confirmed: Confirmed,
    },
    /// For how long the service has been asked, in seconds: see [`Ledger::asked`](super::Ledger::asked). Waits that begin later
    /// in the commit count from here.
    Asked(u64),
    /// Events were read, ascending. Those that another lane has passed are known.
    Read(Vec<KnownEvent>),
    /// An event has become visible below offsets that were read before.
    Appeared(KnownEvent),
    /// The service's history differs from what was read.
    Contradict(Contradiction),
    /// An operator accepts the service's history above an offset.
    AcceptHistory {
        /// `None`: all of it.
        above: Option<Offset>,
    },
    /// A lane has passed an event without delivering it: it is owed the event.
    Owe {
        /// The lane's sink.
        sink: SinkName,
        /// The event.
        event: Pending,
    },
    /// A lane has got a late event.
    Settle {
        /// The lane's sink.
        sink: SinkName,
        /// The event.
        key: EventKey,
    },
    /// An event is rejected. One that waited for its proof waits no longer.
    Quarantine(QuarantinedEvent),
    /// An event leaves the quarantine to be delivered after all: it is owed to the lanes that have passed it.
    Release {
        /// The event.
        key: EventKey,
        /// When the wait for its proof began anew, Unix seconds.
        since: i64,
        /// The lanes that may have passed it: one whose cursor has is owed it.
        sinks: Vec<SinkName>,
    },
    /// An operator throws a quarantined event away.
    DropQuarantined(EventKey),
    /// In strict ordering, everything waits for this event now.
    Block(Blocker),
    /// An operator pauses or resumes, or a pause is over: see [`Paused::set`].
    Pause {
        /// The lane's sink; `None`: the channel.
        sink: Option<SinkName>,
        /// `None`: it goes on.
        pause: Option<Pause>,
    },
    /// A sink gave up on an event.
    GiveUp {
        /// The lane's sink.
        sink: SinkName,
        /// The event.
        letter: DeadLetter,
    },
    /// An event is a dead letter no more.
    DropDeadLetter {
        /// The lane's sink.
        sink: SinkName,
        /// The event.
        key: EventKey,
    },
    /// The proofs of the events that a lane has passed, ascending. Those that another lane passed before are known.
    Delivered(Vec<Proof>),
    /// A workflow is shown verified for the first time.
    ShowWorkflow(WorkflowId, ShownWorkflow),
    /// The proof of a late event that a lane has got.
    DeliveredLate(Proof),
}

/// An event that a lane is owed: its proof has not come, or an operator wants it delivered once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its place.
    pub offset: Offset,
    /// What it is read again by, where that should be needed.
    pub event_id: Option<EventId>,
    /// When the wait for it began, Unix seconds.
    pub first_seen: i64,
    /// When it was first read, where that is known.
    pub received: Option<Timestamp>,
    /// It became visible below offsets that were read before.
    pub appeared: bool,
    /// The record as it came.
    pub json: Bytes,
}

impl Pending {
    /// Which event it is.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

/// A rejected event with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedEvent {
    /// What is known about it.
    pub facts: Quarantined,
    /// The record as it came.
    pub json: Bytes,
}

/// An event that a sink gave up on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What is known about it.
    pub facts: GivenUp,
    /// The event as it came, on one line.
    pub json: Bytes,
}

/// Why a ledger does not apply a commit: a cursor would go back. A defect: nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor of sink {sink} would go back from {from} to {to}: this is a defect, nothing was written")]
pub struct Refusal {
    /// The lane's sink.
    pub sink: SinkName,
    /// The recorded cursor.
    pub from: Cursor,
    /// The refused one.
    pub to: Cursor,
}

/// What a commit changes in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Entries to write, or to remove where there is no value. In order: of two for one key the last counts.
    pub changes: Vec<(Key, Option<Bytes>)>,
    /// The ledger after the commit, in a few numbers.
    pub summary: Summary,
}

/// A ledger in a few numbers: enough to notice later that a store has lost something, and to go on without it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Every lane's cursor.
    pub cursors: BTreeMap<SinkName, Cursor>,
    /// Grows by one with each commit.
    #[serde(default)]
    pub version: u64,
    /// What an operator has paused: it must not go on by itself because the store is damaged.
    #[serde(default, skip_serializing_if = "Paused::is_empty")]
    pub paused: Paused,
    /// The lowest offset that a lane is owed: with cursors below it, no late event is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_from: Option<Offset>,
    /// Late events.
    #[serde(default, rename = "late_events")]
    pub late: u64,
    /// Quarantined events.
    #[serde(default)]
    pub quarantined: u64,
    /// Dead letters.
    #[serde(default)]
    pub dead_letters: u64,
    /// What other instances must know of the quarantine.
    #[serde(skip)]
    pub held_back: Vec<HeldBack>,
}

impl Summary {
    /// These changes, after which this is the summary.
    pub(super) fn effects(self, mut changes: Changes) -> Effects {
        changes.push((Key::Version, Some(encode(&self.version))));
        changes.push((Key::Summary, Some(encode(&self))));
        Effects { changes, summary: self }
    }
}
