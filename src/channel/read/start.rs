//! Where lanes begin: at their cursors or, without one, where the `start` setting says.
//!
//! # Cancellation
//!
//! At any point: a cursor that was recorded is found by the next run.

use std::sync::Arc;

use crate::api::ApiError;
use crate::channel::ChannelError;
use crate::channel::context::{ReadPlan, RunContext};
use crate::channel::reporter::{Part, StatusReporter};
use crate::channel::settings::{Outlet, Start};
use crate::channel::trouble::Trouble;
use crate::event::Offset;
use crate::ledger::{Change, Cursor};

/// The cursors of all lanes; the hub begins at the highest of them.
pub(in crate::channel) async fn positions(
    shared: &RunContext,
    outlets: &[Outlet],
) -> Result<Vec<Cursor>, ChannelError> {
    let mut positions = Vec::with_capacity(outlets.len());
    for outlet in outlets {
        positions.push(position(shared, &outlet.name).await?);
    }
    shared.hub.begin_at(positions.iter().filter_map(|position| position.through).max());
    Ok(positions)
}

/// A lane's cursor. Without one, `start` is applied and recorded.
pub(in crate::channel) async fn position(shared: &RunContext, sink: &Arc<str>) -> Result<Cursor, ChannelError> {
    if let Some(cursor) = shared.look(|ledger| ledger.cursor(sink)) {
        return Ok(cursor);
    }
    let through = loop {
        let read_plan = shared.read_plan();
        tokio::select! {
            biased;
            through = start(shared, &read_plan) => break through?,
            () = read_plan.over() => {}
        }
    };
    let to = Cursor { through };
    shared.commit(vec![Change::Advance { sink: sink.clone(), to }]).await?;
    Ok(to)
}

/// The last offset before where a plan starts. While the service does not answer, it waits.
async fn start(shared: &RunContext, read_plan: &ReadPlan) -> Result<Option<Offset>, ChannelError> {
    match read_plan.settings.start {
        Start::Earliest => return Ok(None),
        Start::Offset(first) => return Ok(first.before()),
        Start::Latest => {}
    }
    let retry = shared.machine.retry(read_plan.settings.retry);
    let reporter = StatusReporter::new(&shared.handle, Part::Channel);
    let mut trouble = Trouble::new(&shared.channel, &reporter, None, retry);
    loop {
        match read_plan.stage.source.poll(None, 1).await {
            Ok(page) => return Ok(page.events.first().map(|event| event.offset)),
            Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
            Err(error) => trouble.wait_out("asking for the latest event", error).await,
        }
    }
}
