//! Where lanes begin: at their cursors. A lane without a cursor begins where its sink is, and a lane whose sink has no position
//! either begins where the `start` setting says. A channel without any state is new only if no sink holds events of it.
//!
//! # Cancellation
//!
//! At any point: a cursor that was recorded is found by the next run.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::sleep;
use tracing::warn;

use crate::api::ApiError;
use crate::channel::ChannelError;
use crate::channel::context::{ReadPlan, RunContext};
use crate::channel::reporter::{Part, StatusReporter};
use crate::channel::settings::{Outlet, Start};
use crate::channel::status::{Activity, Problem};
use crate::channel::trouble::{MANY_TIMES, Trouble};
use crate::event::Offset;
use crate::ledger::{Change, Cursor};
use crate::sink::{LaneRef, Position};
use crate::telemetry::Chain;

/// The cursors of all lanes; the hub begins at the highest of them.
pub(crate) async fn positions(shared: &RunContext, outlets: &[Outlet]) -> Result<Vec<Cursor>, ChannelError> {
    let lowest = if shared.look(|ledger| ledger.cursors().is_empty()) { lowest(shared, outlets).await } else { None };
    let mut positions = Vec::with_capacity(outlets.len());
    for outlet in outlets {
        positions.push(cursor(shared, outlet, lowest).await?);
    }
    shared.hub.begin_at(positions.iter().filter_map(|position| position.through).max());
    Ok(positions)
}

/// A lane's cursor. Without one, the lane begins at its sink's own position or, if the sink has none, where `start` says.
pub(crate) async fn position(shared: &RunContext, outlet: &Outlet) -> Result<Cursor, ChannelError> {
    cursor(shared, outlet, None).await
}

async fn cursor(shared: &RunContext, outlet: &Outlet, lowest: Option<Cursor>) -> Result<Cursor, ChannelError> {
    let sink = &outlet.name;
    if let Some(cursor) = shared.look(|ledger| ledger.cursor(sink)) {
        return Ok(cursor);
    }
    let (channel, own) = (&shared.channel.identity.name, sink_position(shared, outlet).await);
    let to = if let Some(own) = own {
        warn!(%channel, %sink, position = own.through.map(Offset::get), "the state knows nothing of this sink, and the sink holds events of the channel: delivering what is above them");
        own
    } else if let Some(lowest) = lowest {
        warn!(%channel, %sink, position = lowest.through.map(Offset::get), "the state knows nothing of the channel, and another sink holds events of it: delivering what is above them");
        lowest
    } else {
        Cursor { through: shared.by_plan(start).await? }
    };
    // Chosen, and not reached by delivering: the sink takes it over.
    shared.commit(vec![Change::SetCursor { sink: sink.clone(), to }]).await?;
    Ok(to)
}

/// The lowest position of a channel's sinks, if any sink has one: a channel without state is not new then.
async fn lowest(shared: &RunContext, outlets: &[Outlet]) -> Option<Cursor> {
    let mut lowest = None;
    for outlet in outlets {
        let position = sink_position(shared, outlet).await;
        lowest = match (lowest, position) {
            (Some(lowest), Some(position)) => Some(position.min(lowest)),
            (lowest, position) => lowest.or(position),
        };
    }
    lowest
}

/// A sink's own position; `None` if it has or keeps none. While the sink does not answer, it waits.
async fn sink_position(shared: &RunContext, outlet: &Outlet) -> Option<Cursor> {
    let (channel, sink) = (&shared.channel.identity, &outlet.name);
    if shared.owned.claim.lease.is_shared() && outlet.sink.is_local() {
        return None;
    }
    let lane = LaneRef { channel: channel.clone(), sink: sink.clone() };
    let reporter = StatusReporter::new(&shared.channel.handle, Part::Channel);
    let mut retry = shared.channel.parts.machine.retry(outlet.retry);
    let mut since = None;
    loop {
        let error = match outlet.sink.position(&lane).await {
            Ok(Position::At(through)) => return Some(Cursor { through }),
            Ok(Position::Untracked | Position::Missing(_)) => return None,
            Err(error) => error,
        };
        let (wait, times) = (retry.next_wait(None), retry.attempt());
        let message =
            format!("where to begin is not known: sink {sink} cannot be asked for its position: {}", Chain(&error));
        if times == 1 {
            warn!(channel = %channel.name, %sink, error = %Chain(&error), "sink cannot be asked for its position: asking again");
        }
        let (kind, needs_attention) = (error.kind().to_owned(), error.needs_attention() || times >= MANY_TIMES);
        let since = *since.get_or_insert_with(Timestamp::now);
        reporter.says(Activity::Waiting { error: Problem { kind, message, since, times, needs_attention } });
        sleep(wait).await;
    }
}

/// The last offset before where a plan starts. While the service does not answer, it waits.
async fn start(read_plan: Arc<ReadPlan>) -> Result<Option<Offset>, ChannelError> {
    match read_plan.settings.start {
        Start::Earliest => return Ok(None),
        Start::Offset(first) => return Ok(first.before()),
        Start::Latest => {}
    }
    let reporter = StatusReporter::new(&read_plan.channel.handle, Part::Channel);
    let mut trouble = Trouble::new(&read_plan, &reporter, None);
    loop {
        match read_plan.source.poll(None, 1).await {
            Ok(page) => return Ok(page.events.first().map(|event| event.offset)),
            Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
            Err(error) => trouble.wait_out("asking for the latest event", error).await,
        }
    }
}
