//! Where lanes begin: at their cursors or, without one, where the `start` setting says.
//!
//! # Cancellation
//!
//! At any point: a cursor that was recorded is found by the next run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::api::{ApiError, Page};
use crate::channel::context::{ReadPlan, RunContext};
use crate::channel::read::reader::ReadError;
use crate::channel::reporter::{Part, StatusReporter};
use crate::channel::settings::{Outlet, Start};
use crate::channel::trouble::Trouble;
use crate::channel::{ChannelError, pause};
use crate::ledger::{Change, Commit, Cursor};

/// The cursors of all lanes; the hub begins at the highest of them. `None` where `stop` fired first.
pub(in crate::channel) async fn positions(
    shared: &RunContext,
    outlets: &[Outlet],
    stop: &CancellationToken,
) -> Result<Option<Vec<Cursor>>, ChannelError> {
    let mut positions = Vec::with_capacity(outlets.len());
    for outlet in outlets {
        let Some(position) = position(shared, &outlet.name, stop).await? else { return Ok(None) };
        positions.push(position);
    }
    shared.hub.begin_at(positions.iter().filter_map(|position| position.through).max());
    Ok(Some(positions))
}

/// A lane's cursor. Without one, `start` is applied and recorded. `None` where `stop` fired first.
pub(in crate::channel) async fn position(
    shared: &RunContext,
    sink: &Arc<str>,
    stop: &CancellationToken,
) -> Result<Option<Cursor>, ChannelError> {
    if let Some(cursor) = shared.look(|ledger| ledger.cursor(sink)) {
        return Ok(Some(cursor));
    }
    let Some(cursor) = start(shared, stop).await? else { return Ok(None) };
    shared.claim().commit(Commit(vec![Change::Advance { sink: sink.clone(), to: cursor }])).await?;
    Ok(Some(cursor))
}

/// The cursor that `start` means; `None` where `stop` fired before the service gave its latest event.
async fn start(shared: &RunContext, stop: &CancellationToken) -> Result<Option<Cursor>, ChannelError> {
    loop {
        let read_plan = shared.read_plan();
        let through = match read_plan.settings.start {
            Start::Earliest => None,
            Start::Offset(first) => first.before(),
            Start::Latest => tokio::select! {
                biased;
                latest = latest(shared, &read_plan, stop) => match latest? {
                    None => return Ok(None),
                    Some(page) => page.events.first().map(|event| event.offset),
                },
                () = read_plan.over() => continue,
            },
        };
        return Ok(Some(Cursor { through }));
    }
}

/// Asks the service for its latest event until it answers; `None` where `stop` fired first.
async fn latest(
    shared: &RunContext,
    read_plan: &ReadPlan,
    stop: &CancellationToken,
) -> Result<Option<Page>, ChannelError> {
    let reporter = StatusReporter::new(&shared.handle, Part::Channel);
    let mut trouble = Trouble::new(&shared.channel, &reporter, None);
    let (source, mut retry) = (read_plan.stage.source(), shared.machine.retry(read_plan.settings.retry));
    loop {
        let answer = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            answer = source.poll(None, 1) => answer,
        };
        let error = match answer {
            Ok(page) => return Ok(Some(page)),
            Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
            Err(error) => error,
        };
        let wait = retry.next_wait(error.retry_after());
        trouble.report("asking for the latest event", &ReadError::Api(error), wait);
        if !pause(wait, stop).await {
            return Ok(None);
        }
    }
}
