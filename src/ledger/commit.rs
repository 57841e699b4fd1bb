//! What one step of a channel changes in its ledger.

use bytes::Bytes;

use super::entry::{Blocker, GivenUp, Quarantined};
use super::proof::Proof;
use super::{Cursor, SinkName};
use crate::event::{EventId, Offset};

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
    /// An operator moves a cursor, backwards too.
    SetCursor {
        /// The lane's sink.
        sink: SinkName,
        /// Its new position.
        to: Cursor,
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
        /// The event's place.
        offset: Offset,
    },
    /// An event is rejected. One that waited for its proof waits no longer.
    Quarantine(QuarantinedEvent),
    /// An event leaves the quarantine to be delivered after all.
    Release(Released),
    /// An operator throws a quarantined event away.
    DropQuarantined(Offset),
    /// In strict ordering, everything waits for this event now.
    Block(Blocker),
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
        /// The event's place.
        offset: Offset,
    },
    /// The proofs of the events that a lane has passed, ascending. Those that another lane passed before are known.
    Delivered(Vec<Proof>),
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
    /// When it was first seen, Unix seconds.
    pub first_seen: i64,
    /// The record as it came.
    pub json: Bytes,
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

/// A quarantined event that is owed to the lanes that have passed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Its place.
    pub offset: Offset,
    /// What it is read again by, where that should be needed.
    pub event_id: Option<EventId>,
    /// When the wait for its proof began anew, Unix seconds.
    pub since: i64,
    /// The lanes that may have passed it: one whose cursor has is owed it.
    pub sinks: Vec<SinkName>,
}
