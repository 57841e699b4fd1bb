//! Searches for events that become visible late: at skipped offsets, below events that were already read.
//!
//! A service that takes offsets from a database sequence and commits in parallel can show offset 12 before offset 11. This
//! module therefore searches for offset 11 until the time [`settle`](crate::Settings::settle) has passed since offset 12
//! was read. If the search finds an event, the event is delivered late. If an event appears after this time, only
//! `channeld check --history` finds it.
//!
//! # Invariants
//!
//! * **Few requests.** Without gaps, no request is sent. With gaps, one search runs per [`INTERVAL`], regardless of the
//!   number of gaps.
//! * **Found once.** The commit that makes an event late also adds the event to the ledger's history. A restart derives the
//!   gaps from this history. A gap is closed only when this commit starts. If the commit is cancelled before, the event is
//!   found again.
//! * **Bounded.** Only the newest gaps are searched, see [`Gaps`](super::gaps::Gaps).

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::error::ChannelError;
use crate::read::gaps::Gap;
use crate::run::context::{ReadPlan, RunContext};
use api::{ApiError, MAX_PAGE, Page, SMALLEST_PAGE};
use ledger::{Change, KnownEvent, LATE, Ledger, SinkName};
use net::Chain;
use net::tasks::lock;
use proof::event::{Offset, RawEvent};

pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// The largest expected difference, in seconds, between an event's `timestamp` and `created`, the time at which the service
/// created the event. The service does not promise that the two are equal.
const CREATED_DIFFERS: i64 = 60;

/// A range in which every visible event is known. The range begins above the first offset, and includes the second.
type Whole = (Option<Offset>, Offset);

pub(crate) async fn watch(shared: &RunContext) -> Result<Infallible, ChannelError> {
    loop {
        shared.gaps.lowest().await;
        sleep(INTERVAL).await;
        // Boxed, because most channels have no gap.
        Box::pin(look(shared)).await?;
    }
}

/// Searches once. If the plan changes before the answer arrives, the request is repeated. Recording the events that were
/// found is not interrupted.
async fn look(shared: &RunContext) -> Result<(), ChannelError> {
    let (gap, at) = (shared.gaps.lowest().await, Instant::now());
    let waits = |ledger: &Ledger| ledger.contradiction().is_some() || ledger.late_room().is_full(LATE);
    if shared.look(waits) {
        return Ok(());
    }
    let (events, whole) = match shared.by_plan(|read_plan| async move { shown(&read_plan, gap).await }).await {
        Ok(shown) => shown,
        Err(error) => {
            debug!(channel = %shared.channel.identity.name, above = gap.above.map(Offset::get), below = gap.below.get(), error = %Chain(&error), "events that may have become visible could not be requested: retrying");
            return Ok(());
        }
    };
    let is_new = |event: &RawEvent| {
        // An unconfirmed event does not close its gap, so each search returns it again.
        let key = event.event_key();
        let is_kept = |ledger: &Ledger| ledger.quarantined().contains_key(&key) || ledger.late().contains_key(&key);
        shared.gaps.holds(event.offset) && !shared.gaps.is_unconfirmed(&key) && !shared.look(is_kept)
    };
    let found: Vec<RawEvent> = events.into_iter().filter(is_new).collect();
    if !found.is_empty() {
        appear(shared, found).await?;
    }
    match whole {
        Some((from, to)) => shared.gaps.looked_at(at, from, to),
        None => shared.gaps.put_off(at),
    }
    Ok(())
}

/// Returns the events that the service shows around a gap. If the answer proves that no other event is visible in some range,
/// also returns this range.
async fn shown(read_plan: &ReadPlan, gap: Gap) -> Result<(Vec<RawEvent>, Option<Whole>), ApiError> {
    let limit = read_plan.settings.page_limit.max(SMALLEST_PAGE);
    let from = gap.begin().map_or(Offset::ZERO, |begin| begin.before().unwrap_or(begin));
    let Page { events, has_more } = read_plan.source.poll(Some(from), limit).await?;
    let is_whole = events.len() < usize::from(limit) && !has_more;
    if let (Some(highest), Some(lowest)) = (events.first(), events.last()) {
        let (from, to) = (Some(lowest.offset), highest.offset);
        if is_whole || from <= gap.begin() {
            return Ok((events, Some((from.min(gap.begin()), to))));
        }
    }
    // The service's pages contain only the newest events, and the page does not reach down to the gap.
    let Some(time) = gap.time else { return Ok((events, None)) };
    let (after, through) = (time - CREATED_DIFFERS, time + CREATED_DIFFERS);
    let Page { events, .. } = read_plan.source.created(Some(after), through, MAX_PAGE).await?;
    let reaches =
        events.last().is_some_and(|lowest| Some(lowest.offset) <= gap.above) || events.len() < MAX_PAGE.into();
    Ok((events, reaches.then_some((gap.above, gap.below))))
}

/// Makes events late for every lane. A lane whose cursor is still below such an event reads it in order, and then no longer
/// has to deliver it late.
async fn appear(shared: &RunContext, found: Vec<RawEvent>) -> Result<(), ChannelError> {
    let _closing = shared.gaps.closing.lock().await;
    shared.commit_with(|| found_by(shared, None, found.into_iter())).await
}

/// Closes the gaps at those events that are in gaps, and returns the changes for these events. The events were read by the
/// search, by a lane that reads for itself, or for a replay. The changes make them late for every lane except `sink`, which
/// delivers them anyway. Must be called when the commit of the changes starts, see [`RunContext::commit_with`]. Otherwise the
/// events would be lost if the commit is cancelled before.
pub(crate) fn found_by(shared: &RunContext, sink: Option<&str>, events: impl Iterator<Item = RawEvent>) -> Vec<Change> {
    let in_gap = events.filter(|event| shared.gaps.take(event.offset));
    in_gap.flat_map(|event| appeared(shared, &event, sink)).collect()
}

/// Returns the changes that make an event late for every lane except the lane that already has it.
fn appeared(shared: &RunContext, event: &RawEvent, has_it: Option<&str>) -> Vec<Change> {
    let mut changes = vec![Change::Asked(shared.asked())];
    // A lane that a reload has ended is included, because its cursor stays. The lane may return and continue at this cursor,
    // perhaps with a batch that was read before the event was visible.
    let sinks: Vec<SinkName> = shared.look(|ledger| ledger.cursors().keys().cloned().collect());
    let pending = shared.channel.pending(event, shared.channel.parts.machine.time(), true);
    let others = sinks.into_iter().filter(|sink| Some(&**sink) != has_it);
    changes.extend(others.map(|sink| Change::Owe { sink, event: pending.clone() }));
    let known = KnownEvent { key: event.event_key(), previous: event.offset.before(), digest: None };
    lock(&shared.read).add([known]);
    changes.push(Change::Appeared(known));
    info!(channel = %shared.channel.identity.name, offset = event.offset.get(), "an event became visible below events that were already read: it is delivered late");
    changes
}
