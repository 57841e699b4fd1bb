//! Searches for events that become visible at skipped offsets, below events that were already read.
//!
//! A service that takes offsets from a database sequence and commits in parallel can show offset 12 before offset 11. For
//! [`settle`](crate::Settings::settle) after offset 12 was read, this module therefore searches for offset 11 again. If it
//! finds the event, it is delivered late. Events that appear even later are found by `channeld check --history`.
//!
//! # Invariants
//!
//! * **Dense offsets cost nothing.** Without a gap, no request is sent.
//! * **One more request** per [`INTERVAL`] at most, regardless of the number of gaps.
//! * **Found once.** The commit that makes an event late adds it to the ledger's history, from which a restart derives the gaps.
//! * **Bounded.** Only the newest [`MAX_GAPS`] gaps are searched.
//!
//! # Cancellation
//!
//! Safe at any point: an event that was not committed is found again.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::ChannelError;
use crate::context::{ReadPlan, RunContext};
use api::{ApiError, Page, SMALLEST_PAGE};
use ledger::{Change, History, KnownEvent, LATE, Ledger, Pending, SinkName};
use net::Chain;
use net::tasks::lock;
use proof::event::{EventKey, Offset, RawEvent};
use record::Record;

/// The time between two searches of the gaps.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of gaps. The newest are kept, because a service shows events out of order only among its newest.
const MAX_GAPS: usize = 1_000;

/// The expected difference between `created` and an event's own time, in seconds. The service does not promise equality.
const CREATED_DIFFERS: i64 = 60;

/// The maximum number of events in one search answer.
const SEARCH_LIMIT: u16 = 200;

/// The gaps of one run of a channel.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    open: Mutex<VecDeque<Gap>>,
    /// The last offset at which a confirmed event was read. Unconfirmed events above it may have been passed.
    confirmed: Mutex<Option<Offset>>,
    /// Events that the service does not confirm. They are quarantined, and close no gap.
    unconfirmed: Mutex<BTreeSet<EventKey>>,
    /// Notified when a gap was added.
    added: Notify,
    /// Locked from closing a gap until the commit that makes its event late. Otherwise a lane that reads the event in the
    /// meantime does not know that it has to deliver the event late.
    pub(crate) closing: tokio::sync::Mutex<()>,
}

/// A range between two offsets in which no event was visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    /// `None` if the gap is below the channel's first event.
    above: Option<Offset>,
    below: Offset,
    /// The last offset of an incomplete search.
    looked_through: Option<Offset>,
    /// The end of the search time.
    until: Instant,
    /// The time of the event at `below`, in Unix seconds, if it has one.
    time: Option<i64>,
}

impl Gap {
    fn between(above: Option<Offset>, below: Offset, until: Instant, time: Option<i64>) -> Option<Self> {
        (below.before() > above).then_some(Self { above, below, looked_through: None, until, time })
    }

    fn holds(&self, offset: Offset) -> bool {
        self.above < Some(offset) && offset < self.below
    }

    /// Returns the offset above which the next search begins.
    fn begin(&self) -> Option<Offset> {
        self.looked_through.or(self.above)
    }
}

impl Gaps {
    /// Adds the gaps below events that were read. The events are ascending, each with its time. The first follows
    /// `previous`.
    pub(crate) fn note(
        &self,
        mut previous: Option<Offset>,
        events: impl Iterator<Item = (Offset, Option<i64>)>,
        settle: Duration,
    ) {
        let mut found = None;
        for (offset, time) in events {
            let gap = Gap::between(previous, offset, Instant::now() + settle, time);
            if let Some(gap) = gap.filter(|_| !settle.is_zero()) {
                let gaps = found.get_or_insert_with(|| lock(&self.open));
                if gaps.len() >= MAX_GAPS {
                    gaps.pop_front();
                }
                gaps.push_back(gap);
            }
            previous = Some(offset);
        }
        *lock(&self.confirmed) = previous;
        if found.is_some() {
            self.added.notify_one();
        }
    }

    /// Records events that the service does not confirm.
    pub(crate) fn note_unconfirmed(&self, keys: impl Iterator<Item = EventKey>) {
        let mut unconfirmed = lock(&self.unconfirmed);
        unconfirmed.extend(keys);
        while unconfirmed.len() > MAX_GAPS {
            unconfirmed.pop_first();
        }
    }

    /// Returns the last offset that was [recorded](Self::note).
    pub(crate) fn confirmed(&self) -> Option<Offset> {
        *lock(&self.confirmed)
    }

    /// Adds the gaps that an earlier run may have left, up to an offset.
    pub(crate) fn begin(&self, history: &History, through: Option<Offset>, settle: Duration) {
        if settle.is_zero() {
            return;
        }
        let until = Instant::now() + settle;
        let events = || history.events().filter(|event| Some(event.key.offset) <= through);
        let gap = |event: &KnownEvent| Gap::between(event.previous, event.key.offset, until, None);
        let mut gaps: VecDeque<Gap> = events().filter_map(gap).collect();
        for event in events() {
            gaps = gaps.into_iter().flat_map(|gap| gap.without(event.key.offset)).collect();
        }
        if !gaps.is_empty() {
            *lock(&self.open) = gaps;
            self.added.notify_one();
        }
    }

    /// Waits for a gap, and returns the first one.
    async fn lowest(&self) -> Gap {
        loop {
            let added = self.added.notified();
            if let Some(gap) = lock(&self.open).front() {
                return *gap;
            }
            added.await;
        }
    }

    /// Returns the gaps that are being searched. Each is between two offsets.
    pub(crate) fn open(&self) -> Vec<(Option<Offset>, Offset)> {
        lock(&self.open).iter().map(|gap| (gap.above, gap.below)).collect()
    }

    fn holds(&self, offset: Offset) -> bool {
        lock(&self.open).iter().any(|gap| gap.holds(offset))
    }

    /// Closes a gap at an offset where an event was found. Returns `false` if it was already closed: the event is then
    /// already handled.
    fn take(&self, offset: Offset) -> bool {
        let mut gaps = lock(&self.open);
        let is_open = gaps.iter().any(|gap| gap.holds(offset));
        if is_open {
            *gaps = gaps.drain(..).flat_map(|gap| gap.without(offset)).collect();
        }
        is_open
    }

    /// Records that everything between two offsets was searched. A gap is searched a last time after its time is over. The
    /// gaps that were not searched now come first.
    fn looked_at(&self, at: Instant, from: Option<Offset>, to: Offset) {
        let mut gaps = lock(&self.open);
        let (mut later, mut looked_at) = (VecDeque::new(), Vec::new());
        for mut gap in gaps.drain(..) {
            if from > gap.begin() || Some(to) <= gap.begin() {
                later.push_back(gap);
            } else if to < gap.below {
                gap.looked_through = Some(to);
                looked_at.push(gap);
            } else if gap.until > at {
                gap.looked_through = None;
                looked_at.push(gap);
            }
        }
        later.extend(looked_at);
        *gaps = later;
    }

    /// Moves a gap that could not be searched behind the others.
    fn put_off(&self, at: Instant) {
        let mut gaps = lock(&self.open);
        if let Some(gap) = gaps.pop_front().filter(|gap| gap.until > at) {
            gaps.push_back(gap);
        }
    }
}

impl Gap {
    fn without(self, offset: Offset) -> impl Iterator<Item = Self> {
        let parts = if self.holds(offset) {
            let part = |above, below| Self::between(above, below, self.until, self.time);
            [part(self.above, offset), part(Some(offset), self.below)]
        } else {
            [Some(self), None]
        };
        parts.into_iter().flatten()
    }
}

/// Searches the gaps for events.
pub(crate) async fn watch(shared: &RunContext) -> Result<Infallible, ChannelError> {
    loop {
        shared.gaps.lowest().await;
        sleep(INTERVAL).await;
        look(shared).await?;
    }
}

/// Searches once, and makes the events that are found late for every lane. A plan change only repeats the request: events
/// that were found are recorded and passed on.
async fn look(shared: &RunContext) -> Result<(), ChannelError> {
    let (gap, at) = (shared.gaps.lowest().await, Instant::now());
    let waits = |ledger: &Ledger| ledger.contradiction().is_some() || ledger.late_room().is_full(LATE);
    if shared.look(waits) {
        return Ok(());
    }
    let shown = match shared.by_plan(|read_plan| async move { shown(&read_plan, gap).await }).await {
        Ok(shown) => shown,
        Err(error) => {
            debug!(channel = %shared.channel.identity.name, above = gap.above.map(Offset::get), below = gap.below.get(), error = %Chain(&error), "the service was not asked for events that may have become visible: asking again");
            return Ok(());
        }
    };
    let is_new = |event: &RawEvent| {
        // An unconfirmed event leaves its gap open, and is shown again.
        let key = event.event_key();
        let is_kept = |ledger: &Ledger| ledger.quarantined().contains_key(&key) || ledger.late().contains_key(&key);
        let is_unconfirmed = || lock(&shared.gaps.unconfirmed).contains(&key);
        shared.gaps.holds(event.offset) && !is_unconfirmed() && !shared.look(is_kept)
    };
    let found: Vec<RawEvent> = shown.events.into_iter().filter(is_new).collect();
    if !found.is_empty() {
        appear(shared, &found).await?;
    }
    match shown.whole {
        Some((from, to)) => shared.gaps.looked_at(at, from, to),
        None => shared.gaps.put_off(at),
    }
    Ok(())
}

/// The events that the service shows around a gap.
struct Shown {
    events: Vec<RawEvent>,
    /// The range in which no other event is visible, or `None` if this is unknown for the gap.
    whole: Option<(Option<Offset>, Offset)>,
}

/// Requests the events of a gap.
async fn shown(read_plan: &ReadPlan, gap: Gap) -> Result<Shown, ApiError> {
    let limit = read_plan.settings.page_limit.max(SMALLEST_PAGE);
    let from = gap.begin().map_or(Offset::ZERO, |begin| begin.before().unwrap_or(begin));
    let Page { events, has_more } = read_plan.source.poll(Some(from), limit).await?;
    let is_whole = events.len() < usize::from(limit) && !has_more;
    if let (Some(highest), Some(lowest)) = (events.first(), events.last()) {
        let (from, to) = (Some(lowest.offset), highest.offset);
        if is_whole || from <= gap.begin() {
            return Ok(Shown { events, whole: Some((from.min(gap.begin()), to)) });
        }
    }
    // The service's pages contain the newest events and do not reach the gap.
    let Some(time) = gap.time else { return Ok(Shown { events, whole: None }) };
    let (after, through) = (time - CREATED_DIFFERS, time + CREATED_DIFFERS);
    let Page { events, .. } = read_plan.source.created(Some(after), through, SEARCH_LIMIT).await?;
    let reaches =
        events.last().is_some_and(|lowest| Some(lowest.offset) <= gap.above) || events.len() < SEARCH_LIMIT.into();
    Ok(Shown { events, whole: reaches.then_some((gap.above, gap.below)) })
}

/// Makes events late for every lane. A lane that has not passed an event yet settles it when it reads the event.
async fn appear(shared: &RunContext, found: &[RawEvent]) -> Result<(), ChannelError> {
    let _closing = shared.gaps.closing.lock().await;
    let found: Vec<&RawEvent> = found.iter().filter(|event| shared.gaps.take(event.offset)).collect();
    let changes: Vec<_> = found.iter().flat_map(|event| appeared(shared, event, None)).collect();
    shared.commit(changes).await
}

/// Returns changes for events that a lane, reading for itself, has found in gaps. They make the events late for the other
/// lanes.
pub(crate) fn found_by(shared: &RunContext, sink: &str, records: &[&Arc<Record>]) -> Vec<Change> {
    let in_gap = records.iter().filter(|record| shared.gaps.take(record.offset));
    let raw = |record: &Record| RawEvent { offset: record.offset, id: record.event_id, json: record.event() };
    in_gap.flat_map(|record| appeared(shared, &raw(record), Some(sink))).collect()
}

/// Returns the changes that make an event late for every lane except the lane that already has it.
fn appeared(shared: &RunContext, event: &RawEvent, has_it: Option<&str>) -> Vec<Change> {
    let machine = &shared.channel.parts.machine;
    let mut changes = vec![Change::Asked(shared.asked())];
    // A lane that a reload has ended has a cursor too. It may continue from there later, perhaps with a batch that was read
    // before the event was visible.
    let sinks: Vec<SinkName> = shared.look(|ledger| ledger.cursors().keys().cloned().collect());
    let pending = Pending {
        offset: event.offset,
        event_id: event.id,
        first_seen: machine.now(),
        received: Some(machine.time()),
        appeared: true,
        // Copied, because a slice would keep its whole page in memory while the event waits.
        json: shared.channel.handle.memory.copy(&event.json),
    };
    let others = sinks.into_iter().filter(|sink| Some(&**sink) != has_it);
    changes.extend(others.map(|sink| Change::Owe { sink, event: pending.clone() }));
    let known = KnownEvent { key: event.event_key(), previous: event.offset.before(), digest: None };
    lock(&shared.read).add([known]);
    changes.push(Change::Appeared(known));
    info!(channel = %shared.channel.identity.name, offset = event.offset.get(), "an event became visible below events that were read: it is delivered late");
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    fn read(gaps: &Gaps, previous: Option<i64>, offsets: &[i64]) {
        let events = offsets.iter().map(|number| (offset(*number), None));
        gaps.note(previous.map(offset), events, Duration::from_secs(30));
    }

    fn open(gaps: &Gaps) -> Vec<(i64, i64)> {
        let number = |offset: Option<Offset>| offset.map_or(-1, Offset::get);
        lock(&gaps.open).iter().map(|gap| (number(gap.above), gap.below.get())).collect()
    }

    #[test]
    fn what_is_missing_between_events_that_were_read_is_a_gap_until_it_is_found() {
        let gaps = Gaps::default();
        read(&gaps, None, &[5, 6, 9]);
        read(&gaps, Some(9), &[10, 14]);
        assert_eq!(open(&gaps), [(-1, 5), (6, 9), (10, 14)]);
        assert!(gaps.take(offset(12)) && gaps.take(offset(7)) && !gaps.take(offset(7)));
        assert_eq!(open(&gaps), [(-1, 5), (7, 9), (10, 12), (12, 14)]);
        assert!(gaps.holds(offset(8)) && !gaps.holds(offset(7)) && !gaps.holds(offset(9)));
    }

    #[test]
    fn a_gap_is_looked_at_once_more_when_its_time_is_over() {
        let gaps = Gaps::default();
        read(&gaps, Some(1), &[3, 5, 7]);
        let now = Instant::now();
        gaps.looked_at(now, Some(offset(1)), offset(5));
        assert_eq!(open(&gaps), [(5, 7), (1, 3), (3, 5)], "what was not looked at comes first");
        gaps.looked_at(now + Duration::from_secs(60), Some(offset(1)), offset(4));
        assert_eq!(open(&gaps), [(5, 7), (3, 5)]);
    }

    #[test]
    fn an_earlier_run_leaves_the_gaps_of_the_events_that_are_remembered() {
        let mut ledger = Ledger::default();
        let known = |number, previous: i64| KnownEvent {
            key: RawEvent { offset: offset(number), id: None, json: bytes::Bytes::new() }.event_key(),
            previous: Some(offset(previous)),
            digest: None,
        };
        let read = Change::Read(vec![known(5, 2), known(6, 5), known(9, 6), known(20, 9)]);
        ledger.apply(ledger::Commit(vec![read])).unwrap();
        ledger.apply(ledger::Commit(vec![Change::Appeared(known(7, 6))])).unwrap();
        let gaps = Gaps::default();
        gaps.begin(ledger.history(), Some(offset(9)), Duration::from_secs(30));
        assert_eq!(open(&gaps), [(2, 5), (7, 9)]);
    }
}
