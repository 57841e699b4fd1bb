//! A channel's events in order: offsets, times, ids, and the intended nature of each event, but not the content.
//!
//! # Invariants
//!
//! * **Offsets and times ascend.** An event's index is its position. A later event has a larger offset, and its time is not
//!   earlier.
//! * **Nothing is stored that follows from the seed.** Memory is used only for the times of live events, for the events
//!   that a test requested, and for each time that the service went back or the watchers were redeployed.

use std::collections::HashMap;
use std::sync::Arc;

use rand::Rng;
use uuid::Uuid;

use crate::event::facts::CREATED_SKEW;
use crate::event::id;
use crate::event::kind::{EventSpec, Mix, Original, ReplayedId};
use crate::event::log_entry::{LogEntry, RecordCell};
use crate::misbehaviour::{MisbehavingChannels, Misbehaviour};
use crate::options::Options;
use crate::random::{Purpose, draw};
use crate::version::ApiVersion;

/// The time between two events of the backlog.
const BACKLOG_SPACING_MS: i64 = 250;

/// If offsets have gaps, one of this many consecutive offsets is used.
const SPARSE_STRIDE: i64 = 5;

/// After the service has gone back in time, other events take the places of the removed events. Their ids and content are
/// drawn for the index plus a multiple of this distance, with one multiple for each history.
const HISTORY: u64 = 1 << 40;

/// The number of histories that can be distinguished. The bits of an event's id allow no more.
const HISTORIES: u64 = 254;

/// Content that no other event of the channel has is drawn from this index on: `contradict` needs content that no client
/// has seen.
const UNPUBLISHED: u64 = (HISTORIES + 1) * HISTORY;

/// A channel's events.
pub(crate) struct ChannelLog {
    seed: u64,
    channel: u64,
    version: ApiVersion,
    mix: Mix,
    pub(crate) misbehaviour: Option<Misbehaviour>,
    /// How long a late proof is withheld.
    delay_ms: i64,
    stride: i64,
    started_ms: i64,
    backlog: u64,
    backlog_begin_ms: i64,
    /// How often the service has gone back in time.
    gone_back: u64,
    /// For each time that the service went back, in ascending order: the first index with a different event, and the
    /// number of the history.
    histories: Vec<(u64, u64)>,
    /// For each redeployment of the watchers, in ascending order: the index of the first event after the redeployment.
    redeployed: Vec<u64>,
    /// The channel whose events also appear in this channel.
    stolen_from: Option<u64>,
    live_ms: Vec<i64>,
    asked_for: HashMap<u64, (EventSpec, RecordCell)>,
}

impl ChannelLog {
    pub(crate) fn new(options: &Options, channel: u64, now_ms: i64) -> Self {
        let end_ms = options.ends_at.map_or(now_ms, |seconds| seconds.saturating_mul(1000));
        let delay = options.late_proofs.map_or(0, |late| late.delay.as_millis());
        Self {
            seed: options.seed,
            channel,
            version: options.api_version,
            mix: Mix::new(options),
            misbehaviour: usize::try_from(channel).ok().and_then(|at| MisbehavingChannels::of(&options.misbehave, at)),
            delay_ms: i64::try_from(delay).unwrap_or(i64::MAX),
            stride: if options.sparse { SPARSE_STRIDE } else { 1 },
            started_ms: now_ms,
            backlog: options.events,
            backlog_begin_ms: end_ms.saturating_sub(backlog_ms(options.events.saturating_sub(1))),
            gone_back: 0,
            histories: Vec::new(),
            redeployed: (1..options.workflows).map(|number| options.events * number / options.workflows).collect(),
            stolen_from: options.steal.filter(|steal| steal.into == channel).map(|steal| steal.from),
            live_ms: Vec::new(),
            asked_for: HashMap::new(),
        }
    }

    /// Sets how the channel misbehaves from now on. `None` means that it behaves correctly.
    pub(crate) fn misbehave(&mut self, how: Option<Misbehaviour>) {
        self.misbehaviour = how;
        // The existing records have the content that belongs to the previous behavior.
        self.asked_for.values_mut().for_each(|(_, cell)| *cell = RecordCell::default());
    }

    /// Returns the number of events. The indices of the events begin with 0.
    pub(crate) fn len(&self) -> u64 {
        self.backlog + self.live_ms.len() as u64
    }

    /// Adds events that happen now.
    pub(crate) fn publish(&mut self, events: u64, now_ms: i64) {
        let now_ms = self.live_ms.last().map_or(now_ms, |&last| last.max(now_ms));
        self.live_ms.extend((0..events).map(|_| now_ms));
    }

    /// Gives the watchers new workflows from now on.
    pub(crate) fn redeploy(&mut self) {
        self.redeployed.push(self.len());
    }

    /// Returns how often the watchers were redeployed before this index.
    pub(crate) fn deployment(&self, index: u64) -> u64 {
        self.redeployed.iter().filter(|from| **from <= index).count() as u64
    }

    /// Removes the newest events. Different events take their places.
    pub(crate) fn go_back(&mut self, events: u64) {
        let len = self.len().saturating_sub(events);
        self.backlog = self.backlog.min(len);
        self.live_ms.truncate(usize::try_from(len - self.backlog).unwrap_or(usize::MAX));
        self.asked_for.retain(|index, _| *index < len);
        self.histories.retain(|(from, _)| *from < len);
        self.histories.push((len, self.gone_back % HISTORIES + 1));
        self.gone_back += 1;
    }

    /// Adds the event that `spec` describes, and returns the offset of the event.
    pub(crate) fn publish_one(&mut self, spec: EventSpec, now_ms: i64) -> i64 {
        let index = self.len();
        self.publish(1, now_ms);
        let spec = spec.published_by(self.version);
        self.asked_for.insert(index, (spec, RecordCell::default()));
        self.offset(index)
    }

    /// Makes an event honest and complete from now on. Returns whether an event has this offset.
    pub(crate) fn prove(&mut self, offset: i64) -> bool {
        let found = self.index_at(offset);
        if let Some(index) = found {
            let kind = self.spec(index).kind();
            self.asked_for.insert(index, (EventSpec::Honest(kind), RecordCell::default()));
        }
        found.is_some()
    }

    /// Returns the event at an offset, so that its payload and proof can be published again in another event.
    pub(crate) fn original(&self, offset: i64, id: ReplayedId) -> Option<Original> {
        let index = self.index_at(offset)?;
        Some(match self.spec(index) {
            EventSpec::Displaced(original) => Original { id, ..original },
            spec => Original {
                channel: self.channel,
                index: self.drawn(index),
                timestamp: self.timestamp(index),
                deployment: self.deployment(index),
                kind: spec.kind(),
                id,
            },
        })
    }

    /// Replaces an event with other content of the same kind and a proof for it. Returns whether an event has this offset.
    pub(crate) fn contradict(&mut self, offset: i64) -> bool {
        let found = self.index_at(offset);
        if let Some(index) = found {
            // The time differs by one second, because notices have little else that distinguishes them.
            let timestamp = self.timestamp(index) + 1;
            let (kind, id) = (self.spec(index).kind(), ReplayedId::New);
            let (channel, deployment) = (self.channel, self.deployment(index));
            let other = Original { channel, index: index + UNPUBLISHED, timestamp, deployment, kind, id };
            self.asked_for.insert(index, (EventSpec::Displaced(other), RecordCell::default()));
        }
        found.is_some()
    }

    /// Returns the event at an index below [`len`](Self::len).
    pub(crate) fn entry(&self, index: u64, now_ms: i64) -> LogEntry {
        LogEntry {
            index,
            drawn: self.drawn(index),
            offset: self.offset(index),
            timestamp: self.timestamp(index),
            deployment: self.deployment(index),
            spec: self.spec(index),
            withheld: self.withheld(index, now_ms),
            misbehaviour: self.misbehaviour,
            own_cell: self.asked_for.get(&index).map(|(_, cell)| Arc::clone(cell)),
        }
    }

    /// Returns the first index whose offset is above `offset`, or at least `offset` if `inclusive` is set.
    pub(crate) fn first_above(&self, offset: i64, inclusive: bool) -> u64 {
        // At most two indices are checked, because every stride contains one offset.
        let near = u64::try_from((offset - 1) / self.stride).unwrap_or_default();
        let reached = |index: &u64| self.offset(*index) > offset || (inclusive && self.offset(*index) == offset);
        (near..self.len()).find(reached).unwrap_or(self.len())
    }

    /// Returns the index of the event with this id.
    pub(crate) fn index_of(&self, id: Uuid) -> Option<u64> {
        let drawn = id::index(self.seed, self.channel, id)?;
        let index = drawn % HISTORY;
        (index < self.len() && self.drawn(index) == drawn).then_some(index)
    }

    /// Returns a range of indices. The range contains all events that were recorded from the first to the last of these
    /// Unix seconds, and perhaps other events.
    pub(crate) fn noted_between(&self, from: i64, to: i64) -> std::ops::Range<u64> {
        let first = self.partition(|timestamp| timestamp.saturating_add(CREATED_SKEW) < from);
        let end = self.partition(|timestamp| timestamp <= to);
        first..end.max(first)
    }

    fn partition(&self, before: impl Fn(i64) -> bool) -> u64 {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.timestamp(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn index_at(&self, offset: i64) -> Option<u64> {
        let index = self.first_above(offset, true);
        (index < self.len() && self.offset(index) == offset).then_some(index)
    }

    fn offset(&self, index: u64) -> i64 {
        let gap = match self.stride {
            1 => 0,
            stride => draw(self.seed, Purpose::Gap, self.channel, index).random_range(0..stride),
        };
        i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(self.stride).saturating_add(gap).saturating_add(1)
    }

    fn drawn(&self, index: u64) -> u64 {
        let history = self.histories.iter().rfind(|(from, _)| *from <= index);
        index + history.map_or(0, |(_, history)| history * HISTORY)
    }

    fn spec(&self, index: u64) -> EventSpec {
        let asked_for = self.asked_for.get(&index).map(|(spec, _)| *spec);
        let drawn = || self.mix.misbehaving(self.misbehaviour).spec(self.channel, self.drawn(index));
        asked_for.or_else(|| self.stolen(index)).unwrap_or_else(drawn)
    }

    /// Returns the event at an index if it is a copy of a signed event of the channel `stolen_from`.
    fn stolen(&self, index: u64) -> Option<EventSpec> {
        let channel = self.stolen_from.filter(|_| index % 2 == 1 && index < self.backlog)?;
        let EventSpec::Honest(kind) = self.mix.spec(channel, index) else { return None };
        let (timestamp, deployment, id) = (self.timestamp(index), self.deployment(index), ReplayedId::New);
        let original = Original { channel, index, timestamp, deployment, kind, id };
        kind.is_signed().then_some(EventSpec::Displaced(original))
    }

    fn withheld(&self, index: u64, now_ms: i64) -> bool {
        let EventSpec::Late(kind) = self.spec(index) else { return false };
        let published = self.live_at(index).unwrap_or(self.started_ms);
        let never = self.misbehaviour == Some(Misbehaviour::WithheldProofs);
        let waiting = never || self.asked_for.contains_key(&index) || now_ms < published.saturating_add(self.delay_ms);
        kind.is_signed() && waiting
    }

    fn live_at(&self, index: u64) -> Option<i64> {
        let live = usize::try_from(index.checked_sub(self.backlog)?).ok()?;
        self.live_ms.get(live).copied()
    }

    fn timestamp(&self, index: u64) -> i64 {
        let in_backlog = || self.backlog_begin_ms.saturating_add(backlog_ms(index));
        self.live_at(index).unwrap_or_else(in_backlog).div_euclid(1000)
    }
}

/// Returns the duration of this many events of the backlog.
fn backlog_ms(events: u64) -> i64 {
    i64::try_from(events).unwrap_or(i64::MAX).saturating_mul(BACKLOG_SPACING_MS)
}
