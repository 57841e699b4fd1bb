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
//! * **A failed search delays no other gap.** The gap is searched again after the other gaps, also after `settle`. The status
//!   shows the error.
//! * **Bounded.** Only the newest gaps are searched, see [`Gaps`](super::gaps::Gaps).

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::error::ChannelError;
use crate::read::gaps::Gap;
use crate::run::context::{ReadPlan, RunContext};
use crate::status::reporter::{ErrorReporter, LoopPart, StatusReporter};
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
    let reporter = StatusReporter { handle: shared.channel.handle.clone(), part: LoopPart::Gaps };
    let mut trouble = ErrorReporter::new(&shared.read_plan(), &reporter, None);
    loop {
        if shared.gaps.open().is_empty() {
            trouble.over();
        }
        shared.gaps.lowest().await;
        sleep(INTERVAL).await;
        // The gap may have been closed meanwhile.
        if !shared.gaps.open().is_empty() {
            // Boxed, because most channels have no gap.
            Box::pin(look(shared, &mut trouble)).await?;
        }
    }
}

/// Searches once. If the plan changes before the answer arrives, the request is repeated. Recording the events that were
/// found is not interrupted.
async fn look(shared: &RunContext, trouble: &mut ErrorReporter) -> Result<(), ChannelError> {
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
        let _closing = shared.gaps.closing.lock().await;
        shared.commit_with(|| found_by(shared, None, found.into_iter())).await?;
    }
    let whole = match whole {
        Ok(whole) => whole,
        Err(error) => {
            trouble.report("searching for events that become visible late", &error.into(), INTERVAL);
            shared.gaps.turn();
            return Ok(());
        }
    };
    trouble.over();
    match whole {
        Some((from, to)) => shared.gaps.looked_at(at, from, to),
        None => shared.gaps.put_off(at),
    }
    Ok(())
}

/// Returns the events that the service shows around a gap. If the answer proves that no other event is visible in some range,
/// also returns this range. If polling does not reach the gap, and the search fails, returns the polled events and the error.
async fn shown(read_plan: &ReadPlan, gap: Gap) -> Result<(Vec<RawEvent>, Result<Option<Whole>, ApiError>), ApiError> {
    let limit = read_plan.settings.page_limit.max(SMALLEST_PAGE);
    let from = gap.begin().map_or(Offset::ZERO, |begin| begin.before().unwrap_or(begin));
    let Page { events, has_more } = read_plan.source.poll(Some(from), limit).await?;
    let is_whole = events.len() < usize::from(limit) && !has_more;
    if let (Some(highest), Some(lowest)) = (events.first(), events.last()) {
        let (from, to) = (Some(lowest.offset), highest.offset);
        if is_whole || from <= gap.begin() {
            return Ok((events, Ok(Some((from.min(gap.begin()), to)))));
        }
    }
    // The service's pages contain only the newest events, and the page does not reach down to the gap.
    let Some(time) = gap.time else { return Ok((events, Ok(None))) };
    let (after, through) = (time - CREATED_DIFFERS, time + CREATED_DIFFERS);
    let Page { events, .. } = match read_plan.source.created(Some(after), through, MAX_PAGE).await {
        Ok(page) => page,
        Err(error) => return Ok((events, Err(error))),
    };
    let reaches =
        events.last().is_some_and(|lowest| Some(lowest.offset) <= gap.above) || events.len() < MAX_PAGE.into();
    Ok((events, Ok(reaches.then_some((gap.above, gap.below)))))
}

/// Closes the gaps at those events that are in gaps, and returns the changes for these events. The events were read by the
/// search, by a lane that reads for itself, or for a replay. The changes make them late for every lane except `has_them`, which
/// delivers them anyway. A lane whose cursor is still below such an event reads it in order, and then no longer has to deliver
/// it late. Must be called when the commit of the changes starts, see [`RunContext::commit_with`]. Otherwise the events would be
/// lost if the commit is cancelled before.
pub(crate) fn found_by(
    shared: &RunContext,
    has_them: Option<&str>,
    events: impl Iterator<Item = RawEvent>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for event in events.filter(|event| shared.gaps.take(event.offset)) {
        changes.push(Change::Asked(shared.asked()));
        // A lane that a reload has ended is included, because its cursor stays. The lane may return and continue at this cursor,
        // perhaps with a batch that was read before the event was visible.
        let sinks: Vec<SinkName> = shared.look(|ledger| ledger.cursors().keys().cloned().collect());
        let pending = shared.channel.pending(&event, shared.channel.parts.machine.time(), true);
        let others = sinks.into_iter().filter(|sink| Some(&**sink) != has_them);
        changes.extend(others.map(|sink| Change::Owe { sink, event: pending.clone() }));
        let known = KnownEvent { key: event.event_key(), previous: event.offset.before(), digest: None };
        lock(&shared.read).add([known]);
        changes.push(Change::Appeared(known));
        info!(channel = %shared.channel.identity.name, offset = event.offset.get(), "an event became visible below events that were already read: it is delivered late");
    }
    changes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use tokio::time::timeout;

    use super::*;
    use crate::read::source::Source;
    use crate::run::tests::{Receives, begun, channel, notice};
    use ledger::Cursor;
    use proof::event::EventId;

    /// A service whose pages contain only the newest events, up to offset 1,000, and which answers no search.
    #[derive(Debug)]
    struct WithoutSearch;

    #[async_trait]
    impl Source for WithoutSearch {
        async fn poll(&self, _: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
            Ok(Page { events: (1..=1_000).rev().take(limit.into()).map(notice).collect(), has_more: true })
        }

        async fn created(&self, _: Option<i64>, _: i64, _: u16) -> Result<Page, ApiError> {
            Err(ApiError::RateLimited { retry_after: None })
        }

        async fn event(&self, _: EventId) -> Result<RawEvent, ApiError> {
            Err(ApiError::RateLimited { retry_after: None })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_that_cannot_be_searched_delays_no_other_gap_and_is_not_forgotten() {
        let (channel, handle) = channel(0, Arc::new(Receives::Everything));
        channel.plan.send_modify(|plan| plan.source = Arc::new(WithoutSearch));
        let (shared, plan, _) = begun(&channel).await;
        let at = |offset| Offset::new(offset).unwrap();
        let to = Cursor { through: Some(at(1_000)) };
        shared.commit(vec![Change::SetCursor { sink: plan.lanes[0].name.clone(), to }]).await.unwrap();
        let settle = Duration::from_secs(30);
        shared.gaps.note(Some(at(1)), [(at(5), Some(7))].into_iter(), settle);
        shared.gaps.note(Some(at(998)), [(at(1_000), None)].into_iter(), settle);
        timeout(Duration::from_secs(300), watch(&shared)).await.unwrap_err();
        let late: Vec<_> = shared.look(|ledger| ledger.late().keys().map(|key| key.offset.get()).collect());
        assert_eq!(late, [999]);
        assert!(shared.gaps.holds(at(3)), "the search did not succeed, so it is not over");
        let status = handle.board().status(&channel.identity, &[], &handle.pauses(), &Ledger::default());
        assert_eq!(status.gap_error.map(|error| error.kind).as_deref(), Some("rate-limited"));
    }
}
