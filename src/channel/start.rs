//! Where lanes begin: at their cursors or, where there is none yet, where `start` says.
//!
//! # Cancellation
//!
//! At any point: a cursor that was recorded is found again.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::api::{ApiError, Page};
use crate::config::Start;
use crate::state::{Commit, Cursor, LaneKey, LaneState};

use super::plan::Outlet;
use super::reader::ReadError;
use super::shared::{Shared, Way};
use super::teller::Teller;
use super::trouble::Trouble;
use super::{ChannelError, pause};

/// Where every lane is, and the hub with the one that has come farthest; `None` where `stop` fired first.
pub(super) async fn positions(
    shared: &Shared,
    outlets: &[Outlet],
    stop: &CancellationToken,
) -> Result<Option<Vec<LaneState>>, ChannelError> {
    let mut positions = Vec::with_capacity(outlets.len());
    for outlet in outlets {
        let Some(position) = position(shared, &outlet.name, stop).await? else { return Ok(None) };
        positions.push(position);
    }
    shared.hub.begin_at(positions.iter().filter_map(|position| position.cursor?.through).max());
    Ok(Some(positions))
}

/// Where a lane is, after `start` has been applied, and recorded, where it had no cursor; `None` where `stop` fired
/// first.
pub(super) async fn position(
    shared: &Shared,
    sink: &Arc<str>,
    stop: &CancellationToken,
) -> Result<Option<LaneState>, ChannelError> {
    let lane = LaneKey { channel: shared.channel.id, sink: sink.clone() };
    let mut position = shared.state.lane(&lane)?;
    if position.cursor.is_none() {
        let Some(cursor) = start(shared, stop).await? else { return Ok(None) };
        shared.state.commit(Commit { cursor: Some((lane, cursor)), ..Commit::default() }).await?;
        position.cursor = Some(cursor);
    }
    Ok(Some(position))
}

/// The cursor that `start` means; `None` where `stop` fired before the service said what the latest event is.
async fn start(shared: &Shared, stop: &CancellationToken) -> Result<Option<Cursor>, ChannelError> {
    loop {
        let way = shared.way();
        let through = match way.settings.start {
            Start::Earliest => None,
            Start::Offset(first) => first.before(),
            Start::Latest => tokio::select! {
                biased;
                latest = latest(shared, &way, stop) => match latest? {
                    None => return Ok(None),
                    Some(page) => page.events.first().map(|event| event.offset),
                },
                () = way.over() => continue,
            },
        };
        return Ok(Some(Cursor { through }));
    }
}

/// Asks the service for its latest event until it answers; `None` where `stop` fired first.
async fn latest(shared: &Shared, way: &Way, stop: &CancellationToken) -> Result<Option<Page>, ChannelError> {
    let mut trouble = Trouble::new(&shared.channel, &Teller::channel(&shared.handle));
    let (source, mut retry) = (way.judge.source(), shared.machine.retry(way.settings.retry));
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
