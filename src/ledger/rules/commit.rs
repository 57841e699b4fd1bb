//! The changes that one step of a channel makes to its ledger, and their effects on the store.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::{
    Blocker, Confirmed, Cursor, DeadLetterFacts, Pause, Paused, Quarantined, QuarantinedDuplicates, ReplayId,
    ShownWorkflow, SinkName, WorkflowId, encode,
};
use super::history::{Contradiction, KnownEvent, Proof};
use super::key::{Changes, Key};
use super::late::LateDelivery;
use super::replay::{Replay, ReplayState};
use proof::event::{EventId, EventKey, Offset};

/// Changes that are applied together: all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit(pub Vec<Change>);

/// One change. The changes of a commit are applied in order. `sink` names a lane, and `key` an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of a change describes its fields")]
pub enum Change {
    /// Advances the cursor of a lane. Refused if the cursor is already higher.
    Advance { sink: SinkName, to: Cursor },
    /// Sets a cursor, possibly to a lower value, because an operator asked for it or because the sink lost data. Clears
    /// the position that the sink had confirmed, and the late deliveries that followed higher positions.
    SetCursor { sink: SinkName, to: Cursor },
    /// A sink has confirmed its position.
    Confirm { sink: SinkName, confirmed: Confirmed },
    /// The total time, in seconds, during which the service has been polled: see [`Ledger::asked`](crate::Ledger::asked).
    /// Waits that begin later in the same commit are measured from this value.
    Asked(u64),
    /// Events that were read, in ascending order. Events at or below the highest cursor of all lanes are ignored,
    /// because the ledger already has them.
    Read(Vec<KnownEvent>),
    /// An event has become visible below offsets that were read earlier.
    Appeared(KnownEvent),
    /// The service's history differs from the events that were read.
    Contradict(Contradiction),
    /// An operator accepts the service's history above an offset. `None` accepts the complete history.
    AcceptHistory { above: Option<Offset> },
    /// A lane has passed an event without delivering it. The event becomes pending for the lane.
    Owe { sink: SinkName, event: Pending },
    /// An operator has an event delivered to a lane again. An earlier delivery does not count.
    ReplayEvent { sink: SinkName, event: Pending },
    /// A pending event was delivered to a lane.
    Settle { sink: SinkName, key: EventKey },
    /// A sink has accepted an event below its position. Recorded so that the event is delivered again if the sink loses it.
    NoteLateDelivery { sink: SinkName, delivery: LateDelivery },
    /// An event is rejected. It is then no longer pending.
    Quarantine(QuarantinedEvent),
    /// An event leaves the quarantine to be delivered. The event becomes pending for each of the `sinks` whose cursor
    /// has passed it. The wait for its proof starts again at `since`, in Unix seconds.
    Release { key: EventKey, since: i64, sinks: Vec<SinkName> },
    /// An operator discards a quarantined event.
    DropQuarantined(EventKey),
    /// In strict ordering, this event now blocks all later events.
    Block(Blocker),
    /// Pauses a sink, or the channel if `sink` is `None`. If `pause` is `None`, the pause ends, because an operator has
    /// ended it or its time is over: see [`Paused::set`].
    Pause { sink: Option<SinkName>, pause: Option<Pause> },
    /// A sink gave up on an event.
    GiveUp { sink: SinkName, letter: DeadLetter },
    /// An event is no longer a dead letter.
    DropDeadLetter { sink: SinkName, key: EventKey },
    /// The proofs of the events that a lane has passed, in ascending order. Proofs at or below the highest cursor of
    /// all lanes are ignored, because the ledger already has them.
    Delivered(Vec<Proof>),
    /// A workflow appears in a verified event for the first time.
    ShowWorkflow(WorkflowId, ShownWorkflow),
    /// The proof of a late delivery to a lane. The proof of a replayed event is not recorded, because it is old: it would
    /// replace newer proofs.
    DeliveredLate(Proof),
    /// An operator requests a replay. It gets the next number.
    StartReplay(Replay),
    /// The next part of a replay: its events become pending for the sinks of the replay, and the replay continues at `next`.
    /// `None` means that the whole range was read. Ignored if the replay does not run.
    ReleaseReplayed { id: ReplayId, next: Option<Offset>, events: Vec<Pending> },
    /// Pauses, resumes, cancels or finishes a replay. Ignored if the replay has ended.
    SetReplay { id: ReplayId, state: ReplayState },
}

/// A pending event of a lane: its proof has not arrived, or an operator wants the event delivered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The offset of the event.
    pub offset: Offset,
    /// The id by which the event is read again if that is necessary.
    pub event_id: Option<EventId>,
    /// When the wait for the proof or for the next delivery started, in Unix seconds.
    pub first_seen: i64,
    /// When the event was first read, if that is known.
    pub received: Option<Timestamp>,
    /// Whether the event became visible below offsets that were read earlier.
    pub appeared: bool,
    /// The JSON of the event as it was received. Empty if it must be read again.
    pub json: Bytes,
}

impl Pending {
    /// The key of the event.
    pub fn event_key(&self) -> EventKey {
        EventKey { offset: self.offset, id: self.event_id }
    }
}

/// A rejected event with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedEvent {
    /// The facts about the event.
    pub facts: Quarantined,
    /// The JSON of the event as it was received.
    pub json: Bytes,
}

/// An event that a sink gave up on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The facts about the event.
    pub facts: DeadLetterFacts,
    /// The JSON of the event as it was received, on one line.
    pub json: Bytes,
}

/// A commit was refused because a cursor would move back. This is a defect. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor of sink {sink} would move back from {from} to {to}: this is a defect, nothing was written")]
#[expect(missing_docs, reason = "the message names each field")]
pub struct Refusal {
    pub sink: SinkName,
    pub from: Cursor,
    pub to: Cursor,
}

/// The changes that a commit makes in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Entries to write, in order. An entry without a value is removed. If a key occurs twice, the last entry counts.
    pub changes: Vec<(Key, Option<Bytes>)>,
    /// The summary of the ledger after the commit.
    pub summary: Summary,
}

/// A small summary of a ledger. A later start uses it to notice that a store has lost entries, and to continue without
/// the lost entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Every lane's cursor.
    pub cursors: BTreeMap<SinkName, Cursor>,
    /// The positions that the sinks have confirmed. A sink may lose data together with the store, and only these positions
    /// show it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub confirmed: BTreeMap<SinkName, Confirmed>,
    /// Grows by one with each commit.
    #[serde(default)]
    pub version: u64,
    /// The pauses that an operator set. A damaged store must not end a pause.
    #[serde(default, skip_serializing_if = "Paused::is_empty")]
    pub paused: Paused,
    /// The replays that have not ended. A damaged store must not end a replay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replays: BTreeMap<ReplayId, Replay>,
    /// The lowest pending offset. If all cursors are set below this offset, every pending event is read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_from: Option<Offset>,
    /// The number of pending events.
    #[serde(default, rename = "late_events")]
    pub late: u64,
    /// The number of quarantined events.
    #[serde(default)]
    pub quarantined: u64,
    /// The number of dead letters.
    #[serde(default)]
    pub dead_letters: u64,
    /// The quarantined events whose proofs other channels showed first. Other instances read this list.
    #[serde(skip)]
    pub held_back: Vec<QuarantinedDuplicates>,
}

impl Summary {
    /// The effects of changes that lead to this summary.
    pub(crate) fn effects(self, mut changes: Changes) -> Effects {
        changes.push((Key::Version, Some(encode(&self.version))));
        changes.push((Key::Summary, Some(encode(&self))));
        Effects { changes, summary: self }
    }
}
