//! Handles a sink that refuses events: the waits of the lane, its reports, and the dead letters.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::field::{DisplayValue, display};
use tracing::{debug, error, info, warn};

use crate::deliver::lane::{Halt, Lane};
use crate::error::ChannelError;
use crate::status::Problem;
use crate::status::trouble::MANY_TIMES;
use ledger::{DEAD_LETTERS, DeadLetter};
use net::Chain;
use record::Message;
use sink::SinkError;
use telemetry::trace::TraceId;

impl Lane {
    /// Reports a refusal once, not at every attempt, and waits.
    pub(super) async fn refused(&mut self, error: SinkError, stop: &CancellationToken) -> Result<(), Halt> {
        let retry_after = match &error {
            SinkError::Closed => return Err(ChannelError::SinkClosed { sink: self.outlet.name.clone() }.into()),
            SinkError::Overtaken(message) => {
                error!(channel = %self.identity.channel.name, sink = %self.identity.sink, reason = message, "another instance delivers to this sink: this one stops");
                return Err(ChannelError::Lost.into());
            }
            SinkError::Refused { retry_after, .. } => *retry_after,
            SinkError::Gone { .. }
            | SinkError::Io { .. }
            | SinkError::Unavailable { .. }
            | SinkError::Displaced { .. } => None,
        };
        let wait = self.retry.next_wait(retry_after);
        let problem = self.problem(&error);
        self.log_refusal(&error, wait);
        let (handle, sink) = (&self.shared.channel.handle, &self.outlet.name);
        if let SinkError::Gone { .. } = error {
            handle.sink_is_gone(sink, problem);
        } else {
            // The wait can be an hour. An operator who has repaired the sink can resume it to end the wait.
            tokio::select! { biased; _ = stop.run_until_cancelled(sleep(wait)) => {} () = handle.sink_resumed(sink) => {} }
        }
        self.goes_on(stop).await
    }

    /// Waits for the sink's turn if it limits its rate, and while the sink is paused.
    pub(super) async fn paced(&self, stop: &CancellationToken) -> Result<(), Halt> {
        // If `stop` fires, this wait ends early, and the next line returns `Stopped`.
        let _ = stop.run_until_cancelled(self.outlet.sink.pace()).await;
        self.goes_on(stop).await
    }

    /// Waits while the sink is paused.
    pub(super) async fn goes_on(&self, stop: &CancellationToken) -> Result<(), Halt> {
        let goes_on = self.shared.channel.handle.until(|pauses| pauses.sink_goes_on(&self.outlet.name), stop).await;
        let lost = self.shared.owned.claim.lease.is_lost();
        if goes_on && !lost { Ok(()) } else { Err(Halt::Stopped) }
    }

    /// Returns the dead letter of an event that was refused for too long. While the dead letters are full, returns `None`,
    /// and the event is offered again.
    pub(super) fn dead_letter(&mut self, event: &Message, error: &SinkError) -> Option<DeadLetter> {
        let letter = self.give_up.ends_with(event, error, self.shared.channel.parts.machine.now())?;
        if self.shared.look(|ledger| ledger.dead_letter_room().is_full(DEAD_LETTERS)) {
            return None;
        }
        let (channel, sink, facts) = (&self.identity.channel.name, &self.identity.sink, &letter.facts);
        self.shared.channel.metrics.gave_up(sink);
        error!(%channel, %sink, trace_id = self.trace_id(), offset = facts.offset.get(), attempts = facts.attempts, reason = facts.reason, "the sink refused the event for too long: it is a dead letter now, see `channeld dead-letters list`");
        Some(letter)
    }
    fn problem(&self, error: &SinkError) -> Problem {
        let (kind, message, times) = (error.kind(), Chain(error).to_string(), self.retry.attempt());
        let needs_attention = error.needs_attention() || times >= MANY_TIMES;
        let mut board = self.shared.channel.handle.board();
        let shown = &mut board.lane(&self.outlet.name).status.error;
        let since = shown.as_ref().map_or_else(Timestamp::now, |earlier| earlier.since);
        shown.insert(Problem { kind: kind.to_owned(), message, since, times, needs_attention }).clone()
    }

    fn log_refusal(&self, error: &SinkError, wait: Duration) {
        let (channel, sink, attempt) = (&self.identity.channel.name, &self.outlet.name, self.retry.attempt());
        let trace_id = self.trace_id();
        let (wait_ms, gone, error) = (wait.as_millis(), matches!(error, SinkError::Gone { .. }), Chain(error));
        if gone {
            error!(%channel, %sink, trace_id, %error, "sink accepts no more events: they wait until an operator resumes it");
        } else if attempt == 1 {
            warn!(%channel, %sink, trace_id, wait_ms, %error, "sink refused: its events wait and will be offered again");
        } else {
            debug!(%channel, %sink, trace_id, attempt, wait_ms, %error, "sink refused again");
        }
    }

    pub(super) fn trace_id(&self) -> Option<DisplayValue<TraceId>> {
        self.trace.map(|(id, _)| display(id))
    }

    pub(super) fn accepted(&mut self) {
        if self.retry.attempt() > 0 {
            info!(channel = %self.identity.channel.name, sink = %self.outlet.name, trace_id = self.trace_id(), "sink accepts events again");
            self.retry.reset();
            self.shared.channel.handle.board().lane(&self.outlet.name).status.error = None;
        }
    }
}
