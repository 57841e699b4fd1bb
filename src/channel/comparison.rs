//! Compares the service's history with the sinks of a channel, to find events that should be in a sink and are not.
//!
//! The caller reads the history and the ledger. The callers are [`daily`] in the daemon, and the command `channeld check
//! --history`. The history is compared in pieces. For each piece:
//!
//! 1. [`add`](Comparison::add): each event is verified and then filtered for each sink, in the same way as in the running
//!    channel.
//! 2. `look`: each sink is asked which of these events it has. For some of the other events, the ledger explains why the sink
//!    does not have them.
//! 3. `look_again`: the remaining events are looked up again, this time with the current ledger. An event that is still not
//!    found is missing.
//!
//! # Invariants
//!
//! * **Read-only.** Neither the sinks nor the ledger are changed.
//! * **The ledger is read before the sink.** If an event moves from the ledger to the sink in between, it is found in at
//!   least one of the two.
//! * **Bounded.** The memory contains at most one page of events and, for each sink, one piece and [`MOST_LISTED`] missing
//!   events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::channel::settings::{LaneSettings, Settings};
use crate::error::ReadError;
use crate::read::reader::History;
use crate::verify::checked::{CheckParameters, Checked};
use ledger::{Cursor, Ledger};
use net::retry::Retry;
use net::tasks::joined;
use proof::event::{ChannelId, EventKey, EventType, Offset, RawEvent};
use sink::{Oldest, SinkError};

pub(super) mod daily;
#[cfg(test)]
mod tests;

/// The maximum number of missing events that are listed for one sink. Further missing events are only counted.
const MOST_LISTED: usize = 10_000;

/// How many times a page of the history is requested before the comparison fails.
const ATTEMPTS: u32 = 10;

/// The events of a channel that are not necessarily in its sinks, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    /// The newest event that was read. The history is compared up to this offset, because an operator can set a cursor above
    /// every event of the service.
    newest: Option<Offset>,
    quarantined: BTreeSet<EventKey>,
    sinks: BTreeMap<String, SinkAccounts>,
    /// The open gaps, each as two offsets. Events between the two offsets are still searched, and are delivered late when
    /// they are found.
    gaps: Vec<(Option<Offset>, Offset)>,
}

/// The events of one lane that are not necessarily in its sink, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SinkAccounts {
    /// Events above this cursor are not delivered yet.
    cursor: Cursor,
    /// Events below the cursor that the lane has yet to deliver late.
    pending: BTreeSet<EventKey>,
    dead_letters: BTreeSet<EventKey>,
}

/// Counts of the service's events for one sink, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All compared events.
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
    /// Events that fail verification and are not in the quarantine.
    pub rejected: u64,
    /// Events above the sink's cursor.
    pub above_cursor: u64,
    /// Events that should be in the sink, but that neither the sink nor the ledger has.
    pub missing: u64,
}

/// An event that should be in a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedEvent {
    /// The event.
    pub key: EventKey,
    /// The event's type.
    pub kind: EventType,
    /// The event's time, in Unix seconds.
    pub time: Option<i64>,
    /// Whether the event has a valid proof. If not, the event is a notice: a notice never has a proof.
    pub is_verified: bool,
    /// The index of the event in the compared history, counted from zero.
    index: u64,
}

/// The start of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// If set, the comparison begins at this offset, whatever the sink contains.
    pub from: Option<Offset>,
    /// If set, the comparison begins at this offset or at the sink's first event, whichever is higher.
    pub since: Option<Offset>,
    /// Whether several instances share the channels. In that case, a sink on this machine lacks the events that other
    /// instances delivered.
    pub is_shared: bool,
}

/// Why a sink is not compared.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    /// The stored events of the sink cannot be read, or the sink stores none.
    #[error("a sink of this type cannot list its events")]
    CannotSay,
    /// The sink is on this machine, and each instance has its own.
    #[error(
        "the sink is on this machine, and each other instance has a sink of its own: none of these sinks has all events"
    )]
    Local,
    /// The sink has no event of this channel, and may never have had one.
    #[error(
        "the sink has no event of this channel, so the start of the comparison is unknown: set it with --from OFFSET"
    )]
    HoldsNothing,
    /// The sink could not be read.
    #[error("the sink could not be read")]
    Failed(#[source] SinkError),
}

/// The comparison of one sink.
#[derive(Debug)]
pub struct SinkComparison {
    lane_settings: LaneSettings,
    /// The first offset that is compared, or the reason why nothing is compared.
    pub from: Result<Offset, NotCompared>,
    /// The sink's cursor when the comparison began: the last offset that is compared.
    pub cursor: Cursor,
    /// Counts of the compared events.
    pub tally: Tally,
    /// The missing events with the lowest offsets, in ascending order.
    pub missing: Vec<ExpectedEvent>,
    /// The events of the current piece that should be in the sink but have not been found yet.
    expected: Vec<ExpectedEvent>,
}

/// A comparison of a channel.
#[derive(Debug)]
pub struct Comparison {
    settings: Arc<Settings>,
    /// The comparison of each sink.
    pub sinks: Vec<SinkComparison>,
    /// A piece ends when this many events of one sink are expected.
    piece_limit: usize,
    accounts: Accounts,
    events: u64,
}

impl Accounts {
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
            newest: ledger.history().last(),
            quarantined: ledger.quarantined().keys().copied().collect(),
            sinks: ledger.cursors().iter().map(sink).collect(),
            gaps,
        }
    }

    /// Counts an event if the ledger explains why the sink does not have it. Returns `false` if the ledger does not.
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
    pub async fn begin(lane_settings: LaneSettings, channel: ChannelId, scope: Scope) -> Self {
        let from = beginning(&lane_settings, channel, scope).await;
        let (cursor, tally) = (Cursor::default(), Tally::default());
        Self { lane_settings, from, cursor, tally, missing: Vec::new(), expected: Vec::new() }
    }

    /// Returns the sink's name.
    pub fn name(&self) -> &Arc<str> {
        &self.lane_settings.name
    }

    /// Returns the ranges of offsets that contain only missing events.
    pub fn ranges(&self) -> Vec<(Offset, Offset)> {
        let consecutive = self.missing.chunk_by(|event, next| event.index + 1 == next.index);
        consecutive.map(|events| (events[0].key.offset, events[events.len() - 1].key.offset)).collect()
    }

    /// Stores the next event for the lookup if it should be in the sink. Otherwise only counts the event.
    fn add(&mut self, checked: &Checked, accounts: &Accounts, index: u64) {
        let Self { lane_settings, from, cursor, tally, expected, .. } = self;
        let key = checked.event_key();
        if !matches!(from, Ok(from) if *from <= key.offset) {
            return;
        }
        tally.events += 1;
        match checked {
            _ if Some(key.offset) > cursor.through => tally.above_cursor += 1,
            Checked::Verified(_, _, record) | Checked::Unsigned(_, Some(record)) if lane_settings.takes(record) => {
                let (kind, time, is_verified) = (record.kind.clone(), record.time, record.is_verified());
                expected.push(ExpectedEvent { key, kind, time, is_verified, index });
            }
            Checked::Verified(..) | Checked::Unsigned(..) => tally.excluded += 1,
            _ if accounts.count(&lane_settings.name, &key, tally) => {}
            Checked::Pending(_) => tally.pending += 1,
            Checked::Rejected(..) | Checked::Unconfirmed(..) => tally.rejected += 1,
        }
    }

    /// Asks the sink which of the expected events it has. An event that neither the sink nor the ledger has stays expected.
    async fn look(&mut self, channel: ChannelId, accounts: &Accounts) {
        let Self { lane_settings, from, tally, expected, .. } = self;
        if expected.is_empty() {
            return;
        }
        let keys: BTreeSet<_> = expected.iter().map(|event| event.key).collect();
        match lane_settings.sink.holds(channel, &keys).await {
            Ok(held) => expected.retain(|event| {
                let is_held = held.contains(&event.key);
                tally.held += u64::from(is_held);
                !is_held && !accounts.count(&lane_settings.name, &event.key, tally)
            }),
            Err(error) => {
                *from = Err(NotCompared::Failed(error));
                expected.clear();
            }
        }
    }
}

async fn beginning(lane_settings: &LaneSettings, channel: ChannelId, scope: Scope) -> Result<Offset, NotCompared> {
    if scope.is_shared && lane_settings.sink.is_local() {
        return Err(NotCompared::Local);
    }
    match (lane_settings.sink.oldest(channel).await.map_err(NotCompared::Failed)?, scope.from) {
        (Oldest::Unknown, _) => Err(NotCompared::CannotSay),
        (_, Some(from)) => Ok(from),
        (Oldest::Nothing, None) => Err(NotCompared::HoldsNothing),
        (Oldest::Event(key), None) => Ok(scope.since.map_or(key.offset, |since| since.max(key.offset))),
    }
}

impl Comparison {
    /// Creates a comparison of these sinks. `accounts` comes from the current ledger. Each sink is compared up to its cursor
    /// in `accounts`. A lookup is due when a sink has `piece_limit` expected events.
    pub fn new(
        settings: Arc<Settings>,
        mut sinks: Vec<SinkComparison>,
        accounts: Accounts,
        piece_limit: usize,
    ) -> Self {
        for sink in &mut sinks {
            sink.cursor = accounts.sinks.get(&**sink.name()).map(|known| known.cursor).unwrap_or_default();
        }
        Self { settings, sinks, piece_limit, accounts, events: 0 }
    }

    /// Returns the first and the last offset to read. Returns `None` if no sink can be compared.
    pub fn range(&self) -> Option<(Offset, Offset)> {
        let compared = self.sinks.iter().filter_map(|sink| {
            let range = (*sink.from.as_ref().ok()?, sink.cursor.through?);
            (range.0 <= range.1).then_some(range)
        });
        let range = compared.reduce(|(from, to), (other_from, other_to)| (from.min(other_from), to.max(other_to)));
        let range = range.map(|(from, to)| (from, self.accounts.newest.map_or(to, |newest| newest.min(to))));
        range.filter(|(from, to)| from <= to)
    }

    /// Reads the next page of the history. Returns an empty page at the end of the range. After a temporary error, waits and
    /// repeats the request: otherwise, the comparison of a long history would begin again at every error.
    ///
    /// # Errors
    /// [`ReadError`] if the request failed ten times in a row, or if an operator must act. If the service shows no
    /// event at the end of the range or above it, it may have lost events temporarily, so the range is in doubt.
    pub async fn page(history: &mut History, retry: &mut Retry) -> Result<Vec<RawEvent>, ReadError> {
        retry.reset();
        loop {
            let error = match history.next_or_doubt().await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let may_end = error.heals() || matches!(error, ReadError::InDoubt { .. });
            if !may_end || retry.attempt() + 1 >= ATTEMPTS {
                return Err(error);
            }
            sleep(retry.next_wait(error.retry_after())).await;
        }
    }

    /// Verifies the next events of the history, which must be in ascending order, and adds them.
    pub async fn add(&mut self, events: Vec<RawEvent>) {
        let (settings, received, memory) = (self.settings.clone(), Timestamp::now(), Arc::default());
        let check = move || Checked::all(&CheckParameters { settings, received, memory, unknown: None }, events);
        let checked = joined(tokio::task::spawn_blocking(check).await).await;
        self.add_checked(checked);
    }

    fn add_checked(&mut self, checked: Vec<Checked>) {
        for checked in checked {
            for sink in &mut self.sinks {
                sink.add(&checked, &self.accounts, self.events);
            }
            self.events += 1;
        }
    }

    /// Looks up the events of the current piece, if the piece is full or is the last one. Calls `accounts`, which reads the
    /// ledger again, only if an event was not found.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub async fn look_if_due<E, F: Future<Output = Result<Accounts, E>>>(
        &mut self,
        is_last: bool,
        accounts: impl FnOnce() -> F,
    ) -> Result<(), E> {
        let is_full = self.sinks.iter().any(|sink| sink.expected.len() >= self.piece_limit);
        if (is_last || is_full) && self.look().await {
            self.look_again(accounts().await?).await;
        }
        Ok(())
    }

    /// Asks each sink which events of the current piece it has. Returns whether [`look_again`](Self::look_again) is needed.
    async fn look(&mut self) -> bool {
        for sink in &mut self.sinks {
            sink.look(self.settings.channel.id, &self.accounts).await;
        }
        self.sinks.iter().any(|sink| !sink.expected.is_empty())
    }

    /// Looks up again the events that were not found, this time with the current ledger. An event that is still not found is
    /// missing.
    async fn look_again(&mut self, accounts: Accounts) {
        self.accounts = accounts;
        for sink in &mut self.sinks {
            sink.look(self.settings.channel.id, &self.accounts).await;
            sink.tally.missing += sink.expected.len() as u64;
            let room = MOST_LISTED.saturating_sub(sink.missing.len());
            sink.missing.extend(sink.expected.drain(..).take(room));
        }
    }
}
