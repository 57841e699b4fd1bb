//! Compares the service's history with the sinks of a channel, to find events that should be in a sink and are not.
//!
//! The caller reads the history and the ledger; see [`daily`] for the daemon and `channeld check --history` for an operator.
//! For each piece of the history:
//!
//! 1. [`add`](Comparison::add): each event is verified, and filtered for each sink, in the same way as in the channel.
//! 2. `look`: each sink is asked which of the events it has. The ledger accounts for others.
//! 3. `look_again`: the remaining events are looked up again, with the current ledger. An event that is still not found is
//!    missing.
//!
//! # Invariants
//!
//! * **Nothing changes.** Sinks and ledger are only read.
//! * **The ledger is read before the sink.** An event that is on its way from one to the other is found in one of them.
//! * **Bounded.** One page of events, the keys of one piece, and [`MOST_LISTED`] missing events of each sink are in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::settings::{Outlet, Settings};
use crate::verify::Checked;
use ledger::{Cursor, Ledger};
use net::tasks::joined;
use proof::event::{ChannelId, EventKey, EventType, Offset, RawEvent};
use record::Record;
use sink::{Oldest, SinkError};

pub(super) mod daily;
pub(super) mod results;
#[cfg(test)]
mod tests;

/// The missing events of a sink that are listed. The others are only counted.
pub const MOST_LISTED: usize = 10_000;

/// The events of a channel that are not necessarily in its sinks, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    /// The events in the quarantine.
    quarantined: BTreeSet<EventKey>,
    /// The accounts of each sink.
    sinks: BTreeMap<String, SinkAccounts>,
    /// The channel searches again above the first and below the second offset of each pair. Events that become visible
    /// there are delivered late.
    gaps: Vec<(Option<Offset>, Offset)>,
}

/// The events of one lane that are not necessarily in its sink, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SinkAccounts {
    /// Events above this cursor are not delivered yet.
    cursor: Cursor,
    /// Events that the lane has passed and has yet to deliver late.
    pending: BTreeSet<EventKey>,
    /// Events that the sink gave up on.
    dead_letters: BTreeSet<EventKey>,
}

/// Counts of the service's events for one sink, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All events that were compared.
    pub events: u64,
    /// Events in the sink.
    pub held: u64,
    /// Events that are pending, or about to be delivered late.
    pub pending: u64,
    /// Events in the quarantine.
    pub quarantined: u64,
    /// Dead letters of the sink.
    pub dead_letters: u64,
    /// Events that the sink's filter or `unsigned = "drop"` excludes.
    pub excluded: u64,
    /// Events that do not verify and are not in the quarantine.
    pub rejected: u64,
    /// Events above the sink's cursor.
    pub above_cursor: u64,
    /// All other events.
    pub missing: u64,
}

/// An event that should be in a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedEvent {
    /// The event.
    pub key: EventKey,
    /// Its type.
    pub kind: EventType,
    /// Its time, in Unix seconds.
    pub time: Option<i64>,
    /// Whether it has a valid proof. Otherwise it is a notice, which never has a proof.
    pub is_verified: bool,
    /// Its index in the history. Consecutive events have consecutive indexes.
    place: u64,
}

/// The start of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// Begins at this offset, regardless of the sink's content.
    pub from: Option<Offset>,
    /// Begins at this offset, or at the sink's first event if that is above it.
    pub since: Option<Offset>,
    /// Whether several instances share the channels. A sink on this machine then lacks the events of the other instances.
    pub is_shared: bool,
}

/// Why a sink is not compared.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    /// The sink stores no events that can be read.
    #[error("a sink of this type cannot say which events it holds")]
    CannotSay,
    /// Each instance has its own files.
    #[error("it is on this machine, and other instances that share the channels have their own: no copy is complete")]
    Local,
    /// The sink has no event of this channel, and may never have had one.
    #[error("it holds no event of this channel, so nothing says where to begin: --from OFFSET does")]
    HoldsNothing,
    /// The sink could not be read.
    #[error("it could not be read")]
    Failed(#[source] SinkError),
}

/// The comparison of one sink.
#[derive(Debug)]
pub struct SinkComparison {
    outlet: Outlet,
    /// The first offset that is compared, or the reason why nothing is compared.
    pub from: Result<Offset, NotCompared>,
    /// The sink's cursor when the comparison began: the last offset that is compared.
    pub cursor: Cursor,
    /// Counts of the compared events.
    pub tally: Tally,
    /// The first missing events, ascending.
    pub missing: Vec<ExpectedEvent>,
    /// The events of the current piece that should be in the sink, by their index in the piece.
    expected: Vec<usize>,
    /// The expected events that the first look did not find.
    doubtful: Vec<ExpectedEvent>,
}

/// A comparison of a channel.
#[derive(Debug)]
pub struct Comparison {
    settings: Arc<Settings>,
    /// The comparison of each sink.
    pub sinks: Vec<SinkComparison>,
    /// The expected events since the last lookup.
    piece: Vec<ExpectedEvent>,
    /// The number of these events that triggers a lookup.
    piece_limit: usize,
    accounts: Accounts,
    /// The number of events that were added.
    events: u64,
}

/// The consequence of the verdict on an event.
enum Meant {
    Delivered(Box<Record>),
    /// The event is a notice, and the configuration drops notices.
    Excluded,
    WithoutProof,
    Rejected,
}

impl Meant {
    fn of(checked: Checked) -> (EventKey, Self) {
        match checked {
            Checked::Verified(raw, _, record) => (raw.event_key(), Self::Delivered(Box::new(record))),
            Checked::Unsigned(unsigned, record) => (
                unsigned.event().raw.event_key(),
                record.map_or(Self::Excluded, |record| Self::Delivered(Box::new(record))),
            ),
            Checked::Pending(raw) => (raw.event_key(), Self::WithoutProof),
            Checked::Rejected(raw, _) | Checked::Unconfirmed(raw, _) => (raw.event_key(), Self::Rejected),
        }
    }
}

impl Accounts {
    /// Creates the accounts from the ledger and the gaps that are still being searched.
    pub(super) fn of(ledger: &Ledger, gaps: Vec<(Option<Offset>, Offset)>) -> Self {
        let sink = |(name, cursor): (&Arc<str>, &Cursor)| {
            let letters = ledger.dead_letters().keys().filter(|(_, sink)| sink == name);
            let accounts = SinkAccounts {
                cursor: *cursor,
                pending: ledger.owed(name).map(|(key, _)| *key).collect(),
                dead_letters: letters.map(|(key, _)| *key).collect(),
            };
            (name.to_string(), accounts)
        };
        Self {
            quarantined: ledger.quarantined().keys().copied().collect(),
            sinks: ledger.cursors().iter().map(sink).collect(),
            gaps,
        }
    }

    fn cursor(&self, sink: &str) -> Cursor {
        self.sinks.get(sink).map(|sink| sink.cursor).unwrap_or_default()
    }

    /// Counts an event that the ledger accounts for. Returns `false` if it does not account for the event.
    fn count(&self, sink: &str, key: &EventKey, tally: &mut Tally) -> bool {
        let of_sink = self.sinks.get(sink);
        let is_in_gap = |(above, below): &(Option<Offset>, Offset)| *above < Some(key.offset) && key.offset < *below;
        let count = if of_sink.is_some_and(|sink| sink.pending.contains(key)) {
            &mut tally.pending
        } else if self.quarantined.contains(key) {
            &mut tally.quarantined
        } else if of_sink.is_some_and(|sink| sink.dead_letters.contains(key)) {
            &mut tally.dead_letters
        } else if self.gaps.iter().any(is_in_gap) {
            &mut tally.pending
        } else {
            return false;
        };
        *count += 1;
        true
    }
}

impl SinkComparison {
    /// Asks the sink where the comparison begins.
    pub async fn begin(outlet: Outlet, channel: ChannelId, scope: Scope) -> Self {
        let from = beginning(&outlet, channel, scope).await;
        let (cursor, tally) = (Cursor::default(), Tally::default());
        Self { outlet, from, cursor, tally, missing: Vec::new(), expected: Vec::new(), doubtful: Vec::new() }
    }

    /// Returns the sink's name.
    pub fn name(&self) -> &Arc<str> {
        &self.outlet.name
    }

    /// Returns the ranges of offsets that contain only missing events.
    pub fn ranges(&self) -> Vec<(Offset, Offset)> {
        let mut ranges: Vec<(Offset, Offset)> = Vec::new();
        let mut previous = None;
        for ExpectedEvent { key, place, .. } in &self.missing {
            match ranges.last_mut() {
                Some((_, to)) if previous == place.checked_sub(1) => *to = key.offset,
                _ => ranges.push((key.offset, key.offset)),
            }
            previous = Some(*place);
        }
        ranges
    }

    /// Returns whether the next event should be in the sink. If so, it is remembered by its index `at` in the piece.
    /// Otherwise it is counted.
    fn expects(&mut self, key: &EventKey, meant: &Meant, accounts: &Accounts, at: usize) -> bool {
        let Self { outlet, from, cursor, tally, expected, .. } = self;
        if !matches!(from, Ok(from) if *from <= key.offset) {
            return false;
        }
        tally.events += 1;
        match meant {
            _ if Some(key.offset) > cursor.through => tally.above_cursor += 1,
            Meant::Delivered(record) if outlet.takes(record) => {
                expected.push(at);
                return true;
            }
            Meant::Delivered(_) | Meant::Excluded => tally.excluded += 1,
            Meant::WithoutProof | Meant::Rejected if accounts.count(&outlet.name, key, tally) => {}
            Meant::WithoutProof => tally.pending += 1,
            Meant::Rejected => tally.rejected += 1,
        }
        false
    }

    /// Asks the sink for these events. Returns the events that neither the sink nor the ledger has.
    async fn look_for(
        &mut self,
        channel: ChannelId,
        accounts: &Accounts,
        events: Vec<ExpectedEvent>,
    ) -> Vec<ExpectedEvent> {
        if events.is_empty() {
            return events;
        }
        let keys: BTreeSet<_> = events.iter().map(|event| event.key).collect();
        let held = match self.outlet.sink.holds(channel, &keys).await {
            Ok(held) => held,
            Err(error) => {
                self.from = Err(NotCompared::Failed(error));
                return Vec::new();
            }
        };
        let Self { outlet, tally, .. } = self;
        let mut missing = events;
        missing.retain(|event| {
            let is_held = held.contains(&event.key);
            tally.held += u64::from(is_held);
            !is_held && !accounts.count(&outlet.name, &event.key, tally)
        });
        missing
    }
}

async fn beginning(outlet: &Outlet, channel: ChannelId, scope: Scope) -> Result<Offset, NotCompared> {
    if scope.is_shared && outlet.sink.is_local() {
        return Err(NotCompared::Local);
    }
    match (outlet.sink.oldest(channel).await.map_err(NotCompared::Failed)?, scope.from) {
        (Oldest::Unknown, _) => Err(NotCompared::CannotSay),
        (_, Some(from)) => Ok(from),
        (Oldest::Nothing, None) => Err(NotCompared::HoldsNothing),
        (Oldest::Event(key), None) => Ok(scope.since.map_or(key.offset, |since| since.max(key.offset))),
    }
}

impl Comparison {
    /// Creates a comparison of these sinks up to their cursors, based on the current ledger. It looks up this many events
    /// at once.
    pub fn new(
        settings: Arc<Settings>,
        mut sinks: Vec<SinkComparison>,
        accounts: Accounts,
        piece_limit: usize,
    ) -> Self {
        for sink in &mut sinks {
            sink.cursor = accounts.cursor(sink.name());
        }
        Self { settings, sinks, piece: Vec::new(), piece_limit, accounts, events: 0 }
    }

    /// Returns the first and the last offset to read, or `None` if no sink can be compared.
    pub fn range(&self) -> Option<(Offset, Offset)> {
        let compared = self.sinks.iter().filter_map(|sink| {
            let range = (*sink.from.as_ref().ok()?, sink.cursor.through?);
            (range.0 <= range.1).then_some(range)
        });
        compared.reduce(|(from, to), (other_from, other_to)| (from.min(other_from), to.max(other_to)))
    }

    /// Adds the next events of the history, ascending, after verifying them.
    pub async fn add(&mut self, events: Vec<RawEvent>) {
        let settings = self.settings.clone();
        let check = move || Checked::all(&settings, Timestamp::now(), events, Arc::default());
        let checked = joined(tokio::task::spawn_blocking(check).await).await;
        self.add_checked(checked);
    }

    fn add_checked(&mut self, checked: Vec<Checked>) {
        for checked in checked {
            let (key, meant) = Meant::of(checked);
            let at = self.piece.len();
            let mut is_expected = false;
            for sink in &mut self.sinks {
                is_expected |= sink.expects(&key, &meant, &self.accounts, at);
            }
            if let (true, Meant::Delivered(record)) = (is_expected, meant) {
                let (kind, time, is_verified) = (record.kind.clone(), record.time, record.is_verified());
                self.piece.push(ExpectedEvent { key, kind, time, is_verified, place: self.events });
            }
            self.events += 1;
        }
    }

    /// Looks up the events of the current piece if the piece is full or the last one. The ledger is read again only if some
    /// of them were not found.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub async fn look_if_due<E, F: Future<Output = Result<Accounts, E>>>(
        &mut self,
        is_last: bool,
        accounts: impl FnOnce() -> F,
    ) -> Result<(), E> {
        if (is_last || self.piece.len() >= self.piece_limit) && self.look().await {
            self.look_again(accounts().await?).await;
        }
        Ok(())
    }

    /// Asks the sinks for the events of the current piece. Returns `true` if some were not found. The caller then calls
    /// [`look_again`](Self::look_again).
    async fn look(&mut self) -> bool {
        let piece = std::mem::take(&mut self.piece);
        let channel = self.settings.channel.id;
        for sink in &mut self.sinks {
            let events: Vec<_> = std::mem::take(&mut sink.expected).into_iter().map(|at| piece[at].clone()).collect();
            sink.doubtful = sink.look_for(channel, &self.accounts, events).await;
        }
        self.sinks.iter().any(|sink| !sink.doubtful.is_empty())
    }

    /// Looks up the events again that were not found, with the current ledger. An event that is still not found is missing.
    async fn look_again(&mut self, accounts: Accounts) {
        self.accounts = accounts;
        let channel = self.settings.channel.id;
        for sink in &mut self.sinks {
            let events = std::mem::take(&mut sink.doubtful);
            let missing = sink.look_for(channel, &self.accounts, events).await;
            sink.tally.missing += missing.len() as u64;
            let room = MOST_LISTED.saturating_sub(sink.missing.len());
            sink.missing.extend(missing.into_iter().take(room));
        }
    }
}
