//! The daemon's own comparison of a channel's history with its sinks: `[channels.NAME] compare`.
//!
//! # Invariants
//!
//! * **In the background.** One page is read each second, and one page is in memory. Delivery does not wait for it.
//! * **At most once per interval.** Each comparison covers the time since the previous one and one interval before that. It begins
//!   lower if events were missing below.
//! * **Reported until it is over.** Missing events keep the channel from being ready until they are replayed, or the next
//!   comparison finds them.
//!
//! The time and the result of a comparison are not durable: a restart waits for one interval.
//!
//! # Cancellation
//!
//! Safe at any point: a comparison that did not end is started again.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::results::{Comparisons, Found, NAMED};
use super::{Accounts, Comparison, NotCompared, Scope, SinkComparison};
use crate::context::{ReadPlan, RunContext};
use crate::controls::Handle;
use crate::error::ChannelError;
use crate::read::error::ReadError;
use crate::read::history::{History, first_since};
use crate::read::service::Service;
use crate::read::source::Source;
use ledger::Ledger;
use net::Chain;
use net::tasks::lock;

/// The time between two pages.
const BETWEEN_PAGES: Duration = Duration::from_secs(1);

/// The wait before a failed comparison is started again.
const RETRY: Duration = Duration::from_secs(60);

/// The number of events in one request to the sinks.
const PIECE: usize = 20_000;

/// Why a comparison was not successful.
enum Failed {
    Channel(ChannelError),
    Service(ReadError),
    /// A sink could not be read. It was logged.
    Sink,
}

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Self {
        Self::Service(error)
    }
}

impl From<ChannelError> for Failed {
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}

impl Handle {
    /// Returns the events that the ledger accounts for, and the gaps that this process still searches.
    pub async fn accounts(&self, ledger: &Mutex<Ledger>) -> Accounts {
        let gaps = self.board().gaps.upgrade();
        let closing = match &gaps {
            // Wait for the commit that makes an event found in a gap late. Before it, the ledger does not contain the event.
            Some(gaps) => Some(gaps.closing.lock().await),
            None => None,
        };
        let open = gaps.as_ref().map(|gaps| gaps.open()).unwrap_or_default();
        let accounts = Accounts::of(&lock(ledger), open);
        drop(closing);
        accounts
    }
}

/// Compares the channel whenever a comparison is due.
pub(crate) async fn watch(shared: &RunContext) -> Result<Infallible, ChannelError> {
    shared.by_plan(|read_plan| async move { regularly(shared, &read_plan).await }).await
}

async fn regularly(shared: &RunContext, read_plan: &ReadPlan) -> Result<Infallible, ChannelError> {
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
        let wait = match compare(shared, read_plan, every).await {
            Ok(()) => {
                handle.board().comparisons.last = Some(began);
                every
            }
            Err(Failed::Channel(error)) => return Err(error),
            Err(Failed::Service(error)) => {
                let channel = &shared.channel.identity.name;
                warn!(%channel, error = %Chain(&error), "the history could not be compared with the sinks: retrying");
                RETRY.min(every)
            }
            Err(Failed::Sink) => RETRY.min(every),
        };
        handle.board().comparisons.due = Some(began + wait);
    }
}

async fn compare(shared: &RunContext, read_plan: &ReadPlan, every: Duration) -> Result<(), Failed> {
    let (channel, settings) = (&shared.channel, &read_plan.settings);
    let source = quiet(shared, read_plan);
    let covered = channel.handle.board().comparisons.last.map_or(every, |last| last.elapsed()) + every;
    let since = channel.parts.machine.now().saturating_sub_unsigned(covered.as_secs());
    let since = first_since(&*source, since).await.map_err(ReadError::from)?;
    let outlets = channel.plan.borrow().outlets.clone();
    let mut sinks = Vec::with_capacity(outlets.len());
    for outlet in outlets {
        let missing = channel.handle.board().comparisons.lowest_missing(&outlet.name);
        let since = Some(missing.map_or(since, |missing| missing.min(since)));
        let scope = Scope { from: None, since, is_shared: channel.parts.ledgers.store.is_shared() };
        sinks.push(SinkComparison::begin(outlet, settings.channel.id, scope).await);
    }
    let accounts = || async { Ok::<_, Failed>(channel.handle.accounts(&shared.owned.claim.ledger).await) };
    let mut comparison = Comparison::new(settings.clone(), sinks, accounts().await?, PIECE);
    if let Some((from, to)) = comparison.range() {
        let mut history = History::of(source, from, to, settings.page_limit);
        loop {
            let page = history.next().await?;
            let is_end = page.is_empty();
            comparison.add_checked(read_plan.check(channel.parts.machine.time(), page).await?);
            comparison.look_if_due(is_end, accounts).await?;
            if is_end {
                break;
            }
            sleep(BETWEEN_PAGES).await;
        }
    }
    report(shared, comparison)
}

/// Returns the channel's source, without reporting its answers as answers to polls: they concern past events.
fn quiet(shared: &RunContext, read_plan: &ReadPlan) -> Arc<dyn Source> {
    let Some(client) = read_plan.source.client() else { return read_plan.source.clone() };
    let handle = Arc::new(Handle::of(shared.channel.handle.memory.clone()));
    let (channel, metrics) = (read_plan.settings.channel.id, shared.channel.metrics.clone());
    Arc::new(Service { api: client.clone(), channel, handle, metrics })
}

/// Reports the result in the status and the log.
fn report(shared: &RunContext, comparison: Comparison) -> Result<(), Failed> {
    let (channel, at) = (&shared.channel.identity.name, shared.channel.parts.machine.time());
    let mut all_were_read = true;
    for SinkComparison { outlet, from, tally, missing, .. } in comparison.sinks {
        let sink = &outlet.name;
        match from {
            Ok(_) => {}
            Err(NotCompared::Failed(error)) => {
                warn!(%channel, %sink, error = %Chain(&error), "the sink could not be read to compare it with the history: retrying");
                all_were_read = false;
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
        let found = Found { at, events, missing: count, listed };
        shared.channel.handle.board().comparisons.sinks.insert(sink.clone(), found);
    }
    if all_were_read { Ok(()) } else { Err(Failed::Sink) }
}
