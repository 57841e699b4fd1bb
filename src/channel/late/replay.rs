//! Replays past events: reads the range of a replay from the service, and makes its events late, one page at a time.
//!
//! # Invariants
//!
//! * **Durable.** One commit makes the events of a page late and moves the position of the replay. After a crash, the replay
//!   continues at this position, on the instance that owns the channel then. No event is skipped. An event is delivered again
//!   only if a sink accepted it and the acceptance was not recorded.
//! * **In the background.** The next page is read only when few events of the earlier pages are undelivered. New events use
//!   the same queues, so they wait at most for the events in the queues.
//! * **Only accepted events.** Quarantined events of the range are not replayed. Every other event must pass the checks of an
//!   event that is read for the first time. An event that contradicts the event that was read at its offset is quarantined.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use tracing::{info, warn};

use crate::channel::settings::LaneSettings;
use crate::error::ChannelError;
use crate::read::reader::History;
use crate::read::{compare, gap_search};
use crate::run::context::{ReadPlan, RunContext};
use crate::status::Activity;
use crate::status::reporter::{ErrorReporter, LoopPart, StatusReporter};
use crate::verify::Stage;
use ledger::{Change, Ledger, Pending, Replay, ReplayId, ReplayState, SinkName};
use proof::event::{Offset, RawEvent};
use telemetry::ALWAYS;

/// The reading of a replay.
struct Reading {
    /// The position of the replay after the pages that were read.
    next: Offset,
    history: History,
}

/// Carries out the channel's replays.
pub(crate) async fn watch(shared: &RunContext) -> Result<Infallible, ChannelError> {
    loop {
        shared.owned.leased.until(has_running).await;
        // Boxed, because most channels have no replay.
        Box::pin(shared.by_plan(|read_plan| carry_out(shared, read_plan))).await?;
    }
}

fn has_running(ledger: &Ledger) -> bool {
    ledger.replays().values().any(|replay| replay.state == ReplayState::Running)
}

fn is_running(ledger: &Ledger, id: ReplayId) -> bool {
    ledger.replays().get(&id).is_some_and(|replay| replay.state == ReplayState::Running)
}

/// Reports the running replays whose sinks are not configured. They wait until their sinks are configured again, or until an
/// operator cancels them.
pub(crate) fn report_missing_sinks(shared: &RunContext, lanes: &[LaneSettings]) {
    let channel = &shared.channel.identity.name;
    let is_configured = |sink: &SinkName| lanes.iter().any(|lane| lane.name == *sink);
    shared.look(|ledger| {
        for (id, replay) in ledger.replays().iter().filter(|(_, replay)| replay.state == ReplayState::Running) {
            for sink in replay.sinks.iter().filter(|sink| !is_configured(sink)) {
                warn!(%channel, %sink, replay = id, "replay waits: its sink is not configured; configure the sink again, or cancel the replay with `channeld replay --cancel`");
            }
        }
    });
    shared.channel.handle.board().replays.follow(lanes.iter().map(|lane| lane.name.clone()).collect());
}

/// Carries out the running replays, in the order in which they are due, until none is left.
async fn carry_out(shared: &RunContext, read_plan: Arc<ReadPlan>) -> Result<(), ChannelError> {
    let reporter = StatusReporter { handle: shared.channel.handle.clone(), part: LoopPart::Replay };
    // Clears an error that was reported under an earlier plan.
    reporter.report(Activity::Reading);
    let mut trouble = ErrorReporter::new(&read_plan, &reporter, None);
    let stage = Stage {
        read_plan: read_plan.clone(),
        reporter: &reporter,
        received: shared.channel.parts.machine.time(),
        trace: None,
        replayed: true,
    };
    let mut readings = BTreeMap::<ReplayId, Reading>::new();
    while let Some((id, replay)) = due(shared).await {
        let Some(next) = replay.next else {
            shared.commit(vec![Change::SetReplay { id, state: ReplayState::Done }]).await?;
            let Replay { from, to, events, .. } = replay;
            let (channel, from, to) = (&shared.channel.identity.name, from.get(), to.get());
            info!(target: ALWAYS, %channel, replay = id, from, to, events, "replay finished");
            continue;
        };
        let begin = || {
            let history = History::of(read_plan.quiet_source(), next, replay.to, read_plan.settings.page_limit);
            Reading { next, history }
        };
        shared.look(|ledger| readings.retain(|id, _| is_running(ledger, *id)));
        let reading = readings.remove(&id).filter(|reading| reading.next == next).unwrap_or_else(begin);
        if let Some(reading) = step(shared, &stage, (id, &replay), reading, &mut trouble).await? {
            readings.insert(id, reading);
        }
    }
    // A replay that is paused or cancelled has no error.
    trouble.over();
    Ok(())
}

/// Waits until a step of a replay is due. Returns `None` if no replay runs any more.
async fn due(shared: &RunContext) -> Option<(ReplayId, Replay)> {
    let mut due = None;
    let is_due = |ledger: &Ledger| {
        due = ledger.due_replay().map(|(id, replay)| (id, replay.clone()));
        due.is_some() || !has_running(ledger)
    };
    shared.owned.leased.until(is_due).await;
    due
}

/// Reads the next page, compares it with the events that were read before, and makes its events late. If the service does not
/// answer, waits before the next attempt. Returns the reading for the next page. Returns `None` if the next step must begin
/// another reading, because the page was not released or was the last page.
async fn step(
    shared: &RunContext,
    stage: &Stage<'_>,
    (id, replay): (ReplayId, &Replay),
    mut reading: Reading,
    trouble: &mut ErrorReporter,
) -> Result<Option<Reading>, ChannelError> {
    let events = match reading.history.next_or_doubt().await {
        Ok(events) => events,
        Err(error) => {
            trouble.wait_out("reading the events of a replay", error).await;
            return Ok(Some(reading));
        }
    };
    match compare::compare(shared, stage, &events, Some(replay.to), false).await {
        Ok(difference) => compare::record(shared, difference).await?,
        Err(error) => {
            trouble.wait_out("comparing the service's history", error).await;
            return Ok(None);
        }
    }
    trouble.over();
    if shared.look(|ledger| ledger.contradiction().is_some()) {
        return Ok(None);
    }
    let following = events.last().map(|last| last.offset).filter(|last| *last < replay.to);
    let following = following.and_then(|last| Offset::new(last.get().saturating_add(1)));
    release(shared, id, replay, &events, following).await?;
    // If an operator has paused the replay meanwhile, the page was not released, and must be read again. After the last page,
    // this reading cannot return it again.
    Ok(following.map(|next| Reading { next, ..reading }))
}

/// Makes events late and moves the position of the replay, in one commit.
async fn release(
    shared: &RunContext,
    id: ReplayId,
    replay: &Replay,
    page: &[RawEvent],
    next: Option<Offset>,
) -> Result<(), ChannelError> {
    let channel = &shared.channel;
    let is_quarantined = |event: &RawEvent| shared.look(|ledger| ledger.quarantined().contains_key(&event.event_key()));
    let time = channel.parts.machine.time();
    let pending = |event: &RawEvent| Pending { received: None, ..channel.pending(event, time, false) };
    let released: Vec<_> = page.iter().filter(|event| !is_quarantined(event)).collect();
    let events: Vec<_> = released.iter().map(|event| pending(event)).collect();
    let keys: Vec<_> = events.iter().map(Pending::event_key).collect();
    let closing = shared.gaps.closing.lock().await;
    let changes = || {
        let mut changes = gap_search::found_by(shared, None, released.into_iter().cloned());
        changes.extend([Change::Asked(shared.asked()), Change::ReleaseReplayed { id, next, events }]);
        changes
    };
    shared.commit_with(changes).await?;
    drop(closing);
    // If an operator has paused or cancelled the replay meanwhile, the commit has changed nothing.
    if shared.look(|ledger| ledger.replays().get(&id).is_some_and(|replay| replay.next == next)) {
        let mut board = channel.handle.board();
        board.replays.note(id, next);
        for sink in &replay.sinks {
            board.comparisons.replayed(sink, keys.iter().copied());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
