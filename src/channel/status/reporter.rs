//! Reports the activity and the errors of each part of a channel's loop to the status board and the log.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tracing::field::display;
use tracing::{debug, error, info, warn};

use crate::channel::controls::Handle;
use crate::error::ReadError;
use crate::run::context::ReadPlan;
use crate::status::{Activity, Problem};
use ledger::StateError;
use ledger::store::LONG_WAIT;
use net::Chain;
use net::retry::Retry;
use sink::{Fault, SinkError};
use telemetry::trace::TraceId;

/// A transient error needs an operator's attention if it occurs this many times in a row.
const MANY_TIMES: u32 = 20;

/// The connection of one part of the loop to the status board.
#[derive(Clone, Debug)]
pub(crate) struct StatusReporter {
    pub(crate) handle: Arc<Handle>,
    pub(crate) part: LoopPart,
}

#[derive(Clone, Debug)]
pub(crate) enum LoopPart {
    /// The intake for all lanes that keep up.
    Channel,
    /// The intake of a lane that has fallen behind. The lane is identified by the name of its sink.
    Lane(Arc<str>),
    /// The requests for late proofs.
    Late,
    /// The reading of past events for a replay.
    Replay,
    /// The search for events that become visible late.
    Gaps,
}

impl StatusReporter {
    pub(crate) fn report(&self, activity: Activity) {
        let mut board = self.handle.board();
        match &self.part {
            LoopPart::Channel => board.report(activity),
            LoopPart::Lane(sink) => board.lane(sink).status.reading = Some(activity),
            LoopPart::Late => board.status.pending_error = activity.problem().cloned(),
            LoopPart::Replay => board.replays.error = activity.problem().cloned(),
            LoopPart::Gaps => board.status.gap_error = activity.problem().cloned(),
        }
    }

    /// Reports that the proofs of the events that were read cannot be recorded yet. The first of `times` attempts began
    /// `lasts` ago. The store logs this wait once for all channels.
    pub(crate) fn report_unrecorded_proofs(&self, lasts: Duration, times: u32, error: &StateError) {
        let message = format!("recording the proofs of new events: {}", Chain(error));
        let problem = Problem::new("state", message, lasts >= LONG_WAIT);
        let since = problem.since - SignedDuration::try_from(lasts).unwrap_or_default();
        self.report(Activity::Waiting { error: Problem { since, times, ..problem } });
    }

    /// Returns whether the part reads events for the first time. A lane that is behind reads events again.
    pub(crate) fn reads_first(&self) -> bool {
        matches!(self.part, LoopPart::Channel)
    }
}

/// Reports the repeated errors of one part of a channel to the log and the status, and waits between attempts.
#[derive(Debug)]
pub(crate) struct ErrorReporter {
    channel: Arc<str>,
    reporter: StatusReporter,
    trace: Option<TraceId>,
    pub(crate) retry: Retry,
    last: Option<Problem>,
}

impl ErrorReporter {
    /// Creates a reporter without errors. `trace` is the trace id of the batch in progress.
    pub(crate) fn new(read_plan: &ReadPlan, reporter: &StatusReporter, trace: Option<TraceId>) -> Self {
        let ReadPlan { channel, settings, .. } = read_plan;
        let retry = channel.parts.machine.retry(settings.retry);
        Self { channel: channel.identity.name.clone(), reporter: reporter.clone(), trace, retry, last: None }
    }

    /// Logs an error, reports it in the status, and waits until the next attempt is due. `doing` names the action that
    /// failed.
    pub(crate) async fn wait_out(&mut self, doing: &'static str, error: impl Into<ReadError>) {
        let error = error.into();
        let wait = self.retry.next_wait(error.retry_after());
        self.report(doing, &error, wait);
        sleep(wait).await;
    }

    /// Logs an error, and reports it in the status. The next attempt comes after `wait`.
    pub(crate) fn report(&mut self, doing: &'static str, error: &ReadError, wait: Duration) {
        let (channel, kind, wait_ms) = (&self.channel, error.name(), wait.as_millis());
        let (chain, trace_id) = (Chain(error), self.trace.map(display));
        let mut problem = Problem::new(kind, format!("{doing}: {chain}"), !error.heals()).after(self.last.as_ref());
        let times = problem.times;
        problem.needs_attention |= times >= MANY_TIMES;
        self.last = Some(problem.clone());
        let activity = match error {
            ReadError::InDoubt { above, below } => Activity::InDoubt { above: *above, below: *below, error: problem },
            _ => Activity::Waiting { error: problem },
        };
        self.reporter.report(activity);
        if times == MANY_TIMES && error.heals() {
            error!(%channel, trace_id, doing, kind, wait_ms, error = %chain, "failed many times in a row: an operator must find the cause; retrying");
        } else if times > 1 {
            debug!(%channel, trace_id, doing, kind, wait_ms, error = %chain, "still failing");
        } else if error.heals() {
            warn!(%channel, trace_id, doing, kind, wait_ms, error = %chain, "failed: retrying; not logged again while the kind of error stays the same");
        } else {
            error!(%channel, trace_id, doing, kind, wait_ms, error = %chain, "failed: an operator must act; retrying");
        }
    }

    /// Records a success, and resets the retry wait. If an error was reported before, logs that the part works again.
    pub(crate) fn over(&mut self) {
        self.retry.reset();
        if let Some(Problem { kind, .. }) = self.last.take() {
            self.reporter.report(Activity::Reading);
            info!(channel = %self.channel, trace_id = self.trace.map(display), kind, "works again");
        }
    }
}

/// Reports on the board that a lane's sink has refused events `times` times in a row. Returns the reported problem.
pub(crate) fn report_refusal(handle: &Handle, sink: &Arc<str>, error: &SinkError, times: u32) -> Problem {
    let (kind, message) = (error.kind().to_owned(), Chain(error).to_string());
    let needs_attention = error.needs_attention() || times >= MANY_TIMES;
    let mut board = handle.board();
    let status = &mut board.lane(sink).status;
    if error.fault() != Fault::Event {
        // The events wait, and none of them becomes a dead letter.
        status.dead_letters_in_a_row = 0;
    }
    let since = status.error.as_ref().map_or_else(Timestamp::now, |earlier| earlier.since);
    status.error.insert(Problem { kind, message, since, times, needs_attention }).clone()
}

/// A guard for a pause that a sink's target asked for. Until the guard is dropped, the board shows the pause as the lane's
/// problem, unless the lane has another problem.
pub(crate) struct PauseOnBoard<'a> {
    handle: &'a Handle,
    sink: &'a Arc<str>,
}

impl<'a> PauseOnBoard<'a> {
    pub(crate) fn begin(handle: &'a Handle, sink: &'a Arc<str>, left: Duration) -> Self {
        let message = format!("the target has asked all channels to wait, for {} s more", left.as_secs() + 1);
        let problem = Problem::new(Problem::ASKED_TO_WAIT, message, false);
        handle.board().lane(sink).status.error.get_or_insert(problem);
        Self { handle, sink }
    }
}

impl Drop for PauseOnBoard<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.handle.board().lanes.get_mut(self.sink) {
            lane.status.error.take_if(|shown| shown.kind == Problem::ASKED_TO_WAIT);
        }
    }
}

/// A guard for a run of a channel. When the guard is dropped, the board shows that the run has ended.
pub(crate) struct RunOnBoard<'a>(&'a Handle);

impl<'a> RunOnBoard<'a> {
    pub(crate) fn begin(handle: &'a Handle, name: &Arc<str>) -> Self {
        let mut board = handle.board();
        board.status.channel = name.clone();
        board.report(Activity::Reading);
        Self(handle)
    }
}

impl Drop for RunOnBoard<'_> {
    fn drop(&mut self) {
        self.0.board().run_ends();
    }
}
