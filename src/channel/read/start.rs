//! Determines where each lane begins. A lane begins at its recorded cursor. A lane without a cursor begins at its sink's
//! position. If the sink has no position either, the lane begins at the `start` setting. If the state does not know the
//! channel at all, but other sinks have its events, the lowest position of these sinks is used instead of `start`. Safe to
//! cancel at any point: the next run finds the cursors that were recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::channel::settings::{LaneSettings, Start};
use crate::error::ChannelError;
use crate::read::first_event::FirstEvent;
use crate::run::context::{ReadPlan, RunContext};
use crate::status::Activity;
use crate::status::reporter::{ErrorReporter, LoopPart, StatusReporter, report_refusal};
use api::ApiError;
use ledger::{Change, Cursor};
use net::Chain;
use net::time::Time;
use proof::event::Offset;
use sink::{LaneRef, Position, SinkError};

/// The beginning of a lane. While a channel runs, only its lanes set cursors, so this does not become outdated.
#[derive(Clone, Copy, Debug)]
enum Beginning {
    /// The lane's recorded cursor.
    Recorded(Cursor),
    /// The lane has no cursor. The sink's own position, if it has one.
    New(Option<Cursor>),
}

/// Returns the cursors of all lanes, and starts the hub at the highest cursor. If a sink cannot report its position now, its
/// lane has `None` and begins later. If this applies to all sinks, waits until the sink of the last lane can report its
/// position. If `start` is a time and another sink has a cursor, the lane of a new sink begins later: otherwise all sinks would
/// wait until the service has answered a search.
pub(crate) async fn positions(
    shared: &RunContext,
    lanes: &[LaneSettings],
) -> Result<Vec<Option<Cursor>>, ChannelError> {
    let (mut beginnings, mut errors) = (Vec::with_capacity(lanes.len()), BTreeMap::new());
    for lane_settings in lanes {
        let asked = ask(shared, lane_settings).await;
        beginnings
            .push(asked.inspect_err(|error| drop(errors.insert(&lane_settings.name, Chain(error).to_string()))).ok());
    }
    if let Some(lane_settings) = lanes.last().filter(|_| beginnings.iter().all(Option::is_none)) {
        beginnings.pop();
        beginnings.push(Some(beginning(shared, lane_settings).await));
        errors.remove(&lane_settings.name);
    }
    let is_new = shared.look(|ledger| ledger.cursors().is_empty());
    let of_sink = |beginning: &Beginning| if let Beginning::New(own) = beginning { *own } else { None };
    if is_new && beginnings.iter().flatten().any(|beginning| of_sink(beginning).is_none()) {
        for (sink, error) in errors {
            warn!(channel = %shared.channel.identity.name, %sink, error, "the state does not know the channel, and a sink that may have its events does not answer: the other sinks begin at `start`, or at the lowest position that is known");
        }
    }
    let lowest = beginnings.iter().flatten().filter_map(of_sink).min().filter(|_| is_new);
    let has_cursor = beginnings.iter().flatten().any(|beginning| matches!(beginning, Beginning::Recorded(_)));
    let may_be_later = matches!(shared.read_plan().settings.start, Start::Time(_)) && has_cursor;
    let mut positions = Vec::with_capacity(lanes.len());
    for (lane_settings, beginning) in lanes.iter().zip(beginnings) {
        positions.push(match beginning {
            Some(Beginning::New(None)) if may_be_later => None,
            Some(beginning) => Some(cursor(shared, lane_settings, beginning, lowest, LoopPart::Channel).await?),
            None => None,
        });
    }
    shared.hub.begin_at(begin(shared, positions.iter().flatten().map(|position| position.through)));
    Ok(positions)
}

/// Returns the offset at which the shared reading begins: the end of everything that was read. If all cursors are above it, or all
/// below it, reading begins at the nearest of them. An operator, or the `start` of a new sink, may have set a cursor above events
/// that were never read. If reading began there, the lanes below would read these events for themselves, and the channel would not
/// search for events that become visible late.
///
/// The cursor of a sink that the configuration does not contain counts too. The sink may return, and must then get the events that
/// became visible below its cursor. Only a lane that reads for itself finds them in the gaps.
fn begin(shared: &RunContext, cursors: impl Iterator<Item = Option<Offset>> + Clone) -> Option<Offset> {
    let (lowest, highest) = (cursors.clone().min().flatten(), cursors.max().flatten());
    shared.look(|ledger| {
        let highest_recorded = highest.max(ledger.highest_cursor());
        ledger.history().last().map_or(highest, |read| highest_recorded.min(lowest.max(Some(read))))
    })
}

/// Returns the cursor at which a lane begins. Waits while the lane's sink does not answer.
pub(crate) async fn position(shared: &RunContext, lane_settings: &LaneSettings) -> Result<Cursor, ChannelError> {
    let beginning = beginning(shared, lane_settings).await;
    cursor(shared, lane_settings, beginning, None, LoopPart::Lane(lane_settings.name.clone())).await
}

/// Returns the recorded cursor. If none is recorded, returns and records the first of these that exists: the sink's own
/// position, the lowest position of the sinks `lowest`, or the `start` setting. `part` reports the errors of the service.
async fn cursor(
    shared: &RunContext,
    lane_settings: &LaneSettings,
    beginning: Beginning,
    lowest: Option<Cursor>,
    part: LoopPart,
) -> Result<Cursor, ChannelError> {
    let own = match beginning {
        Beginning::Recorded(cursor) => return Ok(cursor),
        Beginning::New(own) => own,
    };
    let (channel, sink) = (&shared.channel.identity.name, &lane_settings.name);
    let to = if let Some(own) = own {
        warn!(%channel, %sink, position = own.through.map(Offset::get), "the state does not know this sink, but the sink has events of the channel: delivering the events above the sink's position");
        own
    } else if let Some(lowest) = lowest {
        warn!(%channel, %sink, position = lowest.through.map(Offset::get), "the state does not know the channel, but another sink has events of the channel: delivering the events above that sink's position");
        lowest
    } else {
        let reporter = StatusReporter { handle: shared.channel.handle.clone(), part };
        Cursor { through: shared.by_plan(|read_plan| start(read_plan, &reporter)).await? }
    };
    // The lane did not reach this cursor by delivering. The cursor is therefore recorded as set, and the sink adopts it as
    // its position.
    shared.commit(vec![Change::SetCursor { sink: sink.clone(), to }]).await?;
    Ok(to)
}

/// Returns the recorded cursor or, without one, requests the sink's own position once. The sink counts as having no position
/// if it stores no positions, or is local while instances share the state.
async fn ask(shared: &RunContext, lane_settings: &LaneSettings) -> Result<Beginning, SinkError> {
    if let Some(cursor) = shared.look(|ledger| ledger.cursor(&lane_settings.name)) {
        return Ok(Beginning::Recorded(cursor));
    }
    if shared.owned.leased.lease.is_shared() && lane_settings.sink.is_local() {
        return Ok(Beginning::New(None));
    }
    let lane = LaneRef { channel: shared.channel.identity.clone(), sink: lane_settings.name.clone() };
    Ok(Beginning::New(match lane_settings.sink.position(&lane).await? {
        Position::At(through) => Some(Cursor { through }),
        Position::Untracked | Position::Missing(_) => None,
    }))
}

/// Like [`ask`], but waits while the sink does not answer.
async fn beginning(shared: &RunContext, lane_settings: &LaneSettings) -> Beginning {
    let (channel, sink) = (&shared.channel.identity, &lane_settings.name);
    let reporter = StatusReporter { handle: shared.channel.handle.clone(), part: LoopPart::Lane(sink.clone()) };
    let mut retry = shared.channel.parts.machine.retry(lane_settings.retry);
    loop {
        let error = match ask(shared, lane_settings).await {
            Ok(beginning) => {
                if retry.attempt() > 0 {
                    info!(channel = %channel.name, %sink, "sink accepts events again");
                    shared.channel.handle.board().lane(sink).status.error = None;
                }
                return beginning;
            }
            Err(error) => error,
        };
        let (wait, times) = (retry.next_wait(None), retry.attempt());
        if times == 1 {
            warn!(channel = %channel.name, %sink, error = %Chain(&error), "sink refused: its events wait and will be offered again");
        } else {
            debug!(channel = %channel.name, %sink, times, error = %Chain(&error), "sink refused again");
        }
        let problem = report_refusal(&reporter.handle, sink, &error, times);
        reporter.report(Activity::Waiting { error: problem });
        sleep(wait).await;
    }
}

/// Returns the last offset before the start of a plan. Waits while the service does not answer.
async fn start(read_plan: Arc<ReadPlan>, reporter: &StatusReporter) -> Result<Option<Offset>, ChannelError> {
    let mut trouble = ErrorReporter::new(&read_plan, reporter, None);
    loop {
        let (answer, doing) = match read_plan.settings.start {
            Start::Earliest => return Ok(None),
            Start::Offset(first) => return Ok(first.before()),
            Start::Latest => (newest(&read_plan).await, "asking for the latest event"),
            Start::Time(time) => {
                (first_since(&read_plan, time).await, "searching for the first event since the start time")
            }
        };
        match answer {
            Ok(offset) => return Ok(offset),
            Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
            Err(error) => trouble.wait_out(doing, error).await,
        }
    }
}

async fn newest(read_plan: &ReadPlan) -> Result<Option<Offset>, ApiError> {
    Ok(read_plan.source.poll(None, 1).await?.events.first().map(|event| event.offset))
}

/// Returns the last offset before the first event that was created at `time` or later. If no such event exists yet, returns
/// the newest offset.
async fn first_since(read_plan: &ReadPlan, time: Time) -> Result<Option<Offset>, ApiError> {
    let first = FirstEvent::since(&*read_plan.source, time, read_plan.channel.parts.machine.time()).await?;
    info!(channel = %read_plan.channel.identity.name, start = %time, first_event = %first, "reading begins at the first event since the start time");
    Ok(first.before())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use tokio::time::timeout;

    use super::*;
    use crate::run::tests::{Receives, begun, channel};
    use ledger::{KnownEvent, SinkName};
    use proof::event::EventKey;

    /// Otherwise an event that became visible meanwhile would be passed on as a new event, and the other sink would not get it.
    #[tokio::test]
    async fn reading_does_not_begin_below_the_cursor_of_a_removed_sink() {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let (shared, plan, _) = begun(&channel).await;
        let cursor = |at| Cursor { through: Offset::new(at) };
        let set = |sink: &SinkName, at| Change::SetCursor { sink: sink.clone(), to: cursor(at) };
        let key = EventKey { offset: Offset::new(12).unwrap(), id: None };
        let known = KnownEvent { key, previous: Offset::new(4), digest: None };
        let (own, removed) = (plan.lanes[0].name.clone(), SinkName::from("removed"));
        shared.commit(vec![set(&own, 4), set(&removed, 12), Change::Read(vec![known])]).await.unwrap();
        let positions = positions(&shared, &plan.lanes).await.unwrap();
        assert_eq!((positions, shared.hub.position()), (vec![Some(cursor(4))], cursor(12).through));
    }

    /// The service of this test answers no search.
    #[tokio::test(start_paused = true)]
    async fn a_new_sink_whose_start_cannot_be_found_stops_no_other_sink() {
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        let start = Start::Time(Time::At(Timestamp::UNIX_EPOCH));
        channel.plan.send_modify(|plan| Arc::make_mut(&mut plan.settings).start = start);
        let (shared, plan, _) = begun(&channel).await;
        let known = plan.lanes[0].clone();
        let new = LaneSettings { name: "new".into(), ..known.clone() };
        let cursor = Cursor { through: Offset::new(10) };
        shared.commit(vec![Change::SetCursor { sink: known.name.clone(), to: cursor }]).await.unwrap();
        let lanes = [new.clone(), known];
        let positions = timeout(Duration::from_secs(600), positions(&shared, &lanes)).await.expect("no wait").unwrap();
        assert_eq!((positions, shared.hub.position()), (vec![None, Some(cursor)], cursor.through));
        assert!(timeout(Duration::from_secs(600), position(&shared, &new)).await.is_err(), "this lane waits");
        assert!(shared.channel.handle.board().lane(&new.name).status.reading.is_some(), "its status says why");
    }
}
