//! Replays: jobs that deliver a past range of a channel again, in parts.
//!
//! One commit makes the events of a part pending and moves the position of the replay. A crash therefore repeats no part and
//! skips none. Only [`Change::ReleaseReplayed`](super::Change::ReleaseReplayed) moves the position.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::{LATE, PendingEvent, ReplayId, Room, SinkName, encode};
use super::key::{Changes, Key};
use proof::event::{EventKey, Offset};

/// The number of replays of a channel that are recorded. If a new replay needs room, the oldest replay that has ended is
/// forgotten.
pub const REPLAYS: usize = 16;

/// The next part of a replay is due when at most this many events of the earlier parts are undelivered, so that a
/// few events whose proofs have not arrived do not delay the replay.
const REST: usize = 20;

/// A replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// The sinks that receive the events.
    pub sinks: Vec<SinkName>,
    /// The lowest offset of the range.
    pub from: Offset,
    /// The highest offset of the range.
    pub to: Offset,
    /// The offset at which the next part begins. `None` if the whole range was read.
    pub next: Option<Offset>,
    /// The number of events that were made pending.
    pub events: u64,
    /// When an operator requested the replay, in Unix seconds.
    pub since: i64,
    /// The current state.
    pub state: ReplayState,
}

/// The state of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReplayState {
    /// Its next part is read as soon as few events of the earlier parts are undelivered.
    Running,
    /// An operator has paused it.
    Paused,
    /// Every event of its range was delivered, or became a dead letter.
    Done,
    /// An operator has cancelled it.
    Cancelled,
}

impl ReplayState {
    /// Whether the replay never continues.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

impl Replay {
    /// A new replay of the events from the offset `from` to the offset `to`. Both are included.
    pub fn new(sinks: Vec<SinkName>, from: Offset, to: Offset, since: i64) -> Self {
        Self { sinks, from, to, next: Some(from), events: 0, since, state: ReplayState::Running }
    }

    /// The events that this replay has made pending and that are still pending for one of its sinks. The result also
    /// contains events of the same range that are pending for another reason.
    fn undelivered<'a>(&'a self, late: &'a BTreeMap<EventKey, PendingEvent>) -> impl Iterator<Item = &'a EventKey> {
        let was_read = |key: &EventKey| key.offset <= self.to && self.next.is_none_or(|next| key.offset < next);
        let of_range = late.range(EventKey::first_at(self.from)..).take_while(move |(key, _)| was_read(key));
        of_range.filter(|(_, event)| self.sinks.iter().any(|sink| event.owed.contains(sink))).map(|(key, _)| key)
    }

    /// The number of events that are [`undelivered`](Self::undelivered).
    pub(super) fn count_undelivered(&self, late: &BTreeMap<EventKey, PendingEvent>) -> usize {
        self.undelivered(late).count()
    }

    /// Whether the next step is due: the next part or, after the last part, the end.
    fn is_due(&self, late: &BTreeMap<EventKey, PendingEvent>) -> bool {
        let rest = if self.next.is_some() { REST } else { 0 };
        self.state == ReplayState::Running && self.undelivered(late).nth(rest).is_none()
    }
}

/// The replays of a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Replays(pub(super) BTreeMap<ReplayId, Replay>);

impl Replays {
    /// The first replay whose next step is due. No part is due while pending events use half of their limit: the other half
    /// is for events whose proofs have not arrived.
    pub(super) fn due(
        &self,
        late: &BTreeMap<EventKey, PendingEvent>,
        late_room: impl FnOnce() -> Room,
    ) -> Option<(ReplayId, &Replay)> {
        let (id, replay) = self.0.iter().find(|(_, replay)| replay.is_due(late))?;
        let half = Room { events: LATE.events / 2, bytes: LATE.bytes / 2 };
        (replay.next.is_none() || !late_room().is_full(half)).then_some((*id, replay))
    }

    pub(super) fn start(&mut self, replay: Replay, changes: &mut Changes) {
        while self.0.len() >= REPLAYS
            && let Some(oldest) = self.0.iter().find(|(_, known)| known.state.has_ended()).map(|(id, _)| *id)
        {
            self.0.remove(&oldest);
            changes.push((Key::Replay(oldest), None));
        }
        let id = self.0.keys().next_back().map_or(1, |last| last + 1);
        changes.push((Key::Replay(id), Some(encode(&replay))));
        self.0.insert(id, replay);
    }

    /// Moves the position of a replay past `events` events. Returns its sinks, or `None` if the replay does not run.
    pub(super) fn advance(
        &mut self,
        id: ReplayId,
        next: Option<Offset>,
        events: u64,
        changes: &mut Changes,
    ) -> Option<Vec<SinkName>> {
        let replay = self.0.get_mut(&id).filter(|replay| replay.state == ReplayState::Running)?;
        replay.next = next;
        replay.events += events;
        changes.push((Key::Replay(id), Some(encode(replay))));
        Some(replay.sinks.clone())
    }

    pub(super) fn set(&mut self, id: ReplayId, state: ReplayState, changes: &mut Changes) {
        if let Some(replay) = self.0.get_mut(&id).filter(|replay| !replay.state.has_ended()) {
            replay.state = state;
            changes.push((Key::Replay(id), Some(encode(replay))));
        }
    }

    /// The replays that have not ended.
    pub(super) fn unfinished(&self) -> BTreeMap<ReplayId, Replay> {
        let unfinished = self.0.iter().filter(|(_, replay)| !replay.state.has_ended());
        unfinished.map(|(id, replay)| (*id, replay.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
