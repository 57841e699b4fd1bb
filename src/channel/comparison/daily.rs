//! The daemon's own comparison of a channel's history with its sinks: `[channels.NAME] compare`.
//!
//! # Invariants
//!
//! * **In the background.** One page is read per second, and at most one page is in memory. Deliveries do not wait for the
//!   comparison.
//! * **At most once per interval.** Each comparison covers the time since the previous comparison, and one interval before
//!   that. If the previous comparison found missing events below this range, the comparison begins at the lowest of them.
//! * **Reported until resolved.** A channel with missing events is not ready. It becomes ready when an operator has replayed
//!   the events, or when the next comparison finds them in the sink.
//! * **Visible until complete.** While a comparison cannot be completed, the status shows its error beside the results of the
//!   previous comparison.
//! * **Not durable.** After a restart, the first comparison begins after one interval. A comparison that failed or was
//!   cancelled is started again.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::{Accounts, Comparison, NotCompared, Scope, SinkComparison};
use crate::channel::controls::Handle;
use crate::error::ReadError;
use crate::read::reader::{History, first_since};
use crate::run::context::{ReadPlan, RunContext};
use crate::status::Problem;
use crate::status::comparisons::{Comparisons, LastComparison, NAMED};
use ledger::Ledger;
use net::Chain;
use net::tasks::lock;

const BETWEEN_PAGES: Duration = Duration::from_secs(1);

/// The wait before a failed comparison is started again.
const RETRY: Duration = Duration::from_secs(60);

/// The number of events in one request to the sinks.
const PIECE: usize = 20_000;

impl Handle {
    /// Returns the events that the ledger has set aside or has yet to deliver, and the gaps that this process still searches.
    pub async fn accounts(&self, ledger: &Mutex<Ledger>) -> Accounts {
        let Some(gaps) = self.board().gaps.upgrade() else { return Accounts::of(&lock(ledger), Vec::new()) };
        // If an event was just found in a gap, wait for the commit that makes it late. Before that commit, the ledger does
        // not contain the event.
        let _closing = gaps.closing.lock().await;
        let open = gaps.open();
        Accounts::of(&lock(ledger), open)
    }
}

/// Compares the channel whenever a comparison is due.
pub(crate) async fn watch(shared: &RunContext, read_plan: Arc<ReadPlan>) -> Infallible {
    let handle = &shared.channel.handle;
    let Some(every) = read_plan.settings.compare else {
        handle.board().comparisons = Comparisons::default();
        return pending().await;
    };
    loop {
        let due = *handle.board().comparisons.due.get_or_insert_with(|| Instant::now() + every);
        // The interval may have become shorter.
        sleep_until(due.min(Instant::now() + every)).await;
        let began = Instant::now();
        let failure = Box::pin(compare(shared, &read_plan, every)).await.unwrap_or_else(|error| {
            let (channel, kind, needs_attention) = (&shared.channel.identity.name, error.name(), !error.heals());
            let error = Chain(&error);
            warn!(%channel, %error, "the history could not be compared with the sinks: retrying");
            Some(Problem::new(kind, format!("comparing the history with the sinks: {error}"), needs_attention))
        });
        let comparisons = &mut handle.board().comparisons;
        let is_complete = failure.is_none();
        comparisons.last = if is_complete { Some(began) } else { comparisons.last };
        comparisons.due = Some(began + if is_complete { every } else { RETRY.min(every) });
        let earlier = comparisons.error.take();
        comparisons.error = failure.map(|problem| problem.after(earlier.as_ref()));
    }
}

/// Compares once. Returns the failure of a sink that could not be read. It was then logged.
///
/// # Errors
/// If the history could not be read to its end.
async fn compare(shared: &RunContext, read_plan: &ReadPlan, every: Duration) -> Result<Option<Problem>, ReadError> {
    let (channel, settings) = (&shared.channel, &read_plan.settings);
    let source = read_plan.quiet_source();
    let covered = channel.handle.board().comparisons.last.map_or(every, |last| last.elapsed()) + every;
    let since = channel.parts.machine.now().saturating_sub_unsigned(covered.as_secs());
    let since = first_since(&*source, since).await?;
    let lanes = channel.plan.borrow().lanes.clone();
    let mut sinks = Vec::with_capacity(lanes.len());
    for lane_settings in lanes {
        let missing = channel.handle.board().comparisons.lowest_missing(&lane_settings.name);
        let since = Some(missing.map_or(since, |missing| missing.min(since)));
        let scope = Scope { from: None, since, is_shared: channel.parts.ledgers.store.is_shared() };
        sinks.push(SinkComparison::begin(lane_settings, settings.channel.id, scope).await);
    }
    let accounts = || async { Ok::<_, ReadError>(channel.handle.accounts(&shared.owned.leased.ledger).await) };
    let mut comparison = Comparison::new(settings.clone(), sinks, accounts().await?, PIECE);
    if let Some((from, to)) = comparison.range() {
        let mut history = History::of(source, from, to, settings.page_limit);
        let mut retry = channel.parts.machine.retry(settings.retry);
        loop {
            let page = Comparison::page(&mut history, &mut retry).await?;
            let is_end = page.is_empty();
            comparison.add_checked(read_plan.check(channel.parts.machine.time(), page).await);
            comparison.look_if_due(is_end, accounts).await?;
            if is_end {
                break;
            }
            sleep(BETWEEN_PAGES).await;
        }
    }
    Ok(report(shared, comparison))
}

/// Reports the result in the status and the log. Returns the failure of the last sink that could not be read.
fn report(shared: &RunContext, comparison: Comparison) -> Option<Problem> {
    let (channel, at) = (&shared.channel.identity.name, shared.channel.parts.machine.time());
    let mut unread = None;
    for SinkComparison { lane_settings, from, tally, missing, .. } in comparison.sinks {
        let sink = &lane_settings.name;
        match from {
            Ok(_) => {}
            Err(NotCompared::Failed(error)) => {
                let (kind, needs_attention, error) = (error.kind(), error.needs_attention(), Chain(&error));
                warn!(%channel, %sink, %error, "the sink could not be read to compare it with the history: retrying");
                let message = format!("comparing the history with sink {sink}: {error}");
                unread = Some(Problem::new(kind, message, needs_attention));
                continue;
            }
            Err(why) => {
                debug!(%channel, %sink, %why, "the sink is not compared with the history");
                continue;
            }
        }
        let (events, count) = (tally.events, tally.missing);
        if count == 0 {
            info!(%channel, %sink, events, "the history was compared with the sink: no event is missing");
        } else {
            let offsets: Vec<_> = missing.iter().take(NAMED).map(|event| event.key.offset.to_string()).collect();
            let offsets = offsets.join(", ");
            error!(%channel, %sink, events, missing = count, offsets, "events of the service are missing in the sink: `channeld check --history` lists them and shows how to deliver them");
        }
        let listed = missing.into_iter().map(|event| event.key).collect();
        let found = LastComparison { at, events, missing: count, listed };
        shared.channel.handle.board().comparisons.sinks.insert(sink.clone(), found);
    }
    unread
}
