//! A sink that refuses: how long the lane waits, what it reports, and when it gives an event up.

use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::field::{DisplayValue, display};
use tracing::{debug, error, info, warn};

use crate::channel::deliver::lane::{Flow, Lane};
use crate::channel::status::Problem;
use crate::channel::trouble::MANY_TIMES;
use crate::channel::{ChannelError, pause};
use crate::ledger::{DEAD_LETTERS, DeadLetter};
use crate::record::Message;
use crate::sink::SinkError;
use crate::telemetry::Chain;
use crate::telemetry::trace::TraceId;

impl Lane {
    /// Reports a refusal, once and not each time, and waits.
    pub(super) async fn refused(&mut self, error: SinkError, stop: &CancellationToken) -> Result<Flow, ChannelError> {
        let retry_after = match &error {
            SinkError::Closed => return Err(ChannelError::SinkClosed { sink: self.outlet.name.clone() }),
            SinkError::Overtaken { message } => {
                error!(channel = %self.identity.channel.name, sink = %self.identity.sink, reason = message, "another instance delivers to this sink: this one stops");
                return Err(ChannelError::Lost);
            }
            SinkError::Refused { retry_after, .. } => *retry_after,
            SinkError::Gone { .. } | SinkError::Io { .. } => None,
        };
        let wait = self.retry.next_wait(retry_after);
        let problem = self.problem(&error);
        self.log_refusal(&error, wait);
        let (controls, sink) = (&self.shared.handle.controls, &self.outlet.name);
        let waited = if let SinkError::Gone { .. } = error {
            controls.sink_is_gone(sink, problem);
            true
        } else {
            // An operator who has repaired the sink resumes it, and need not wait out what may be an hour.
            tokio::select! { biased; waited = pause(wait, stop) => waited, () = controls.sink_resumed(sink) => true }
        };
        Ok(if waited && self.goes_on(stop).await { Flow::On } else { Flow::Stop })
    }

    /// Waits while the sink is paused. `false` where `stop` fired or the lease is lost.
    pub(super) async fn goes_on(&self, stop: &CancellationToken) -> bool {
        let goes_on = self.shared.handle.controls.until_sink_goes_on(&self.outlet.name, stop).await;
        goes_on && !self.shared.claim().lease().lost.is_cancelled()
    }

    /// The dead letter of an event that was refused for too long. While there is no room for one, the event is offered on.
    pub(super) fn dead_letter(&mut self, event: &Message, error: &SinkError) -> Option<DeadLetter> {
        let letter = self.give_up.ends_with(event, error, self.shared.machine.now())?;
        if self.shared.look(|ledger| ledger.dead_letter_room().is_full(DEAD_LETTERS)) {
            return None;
        }
        let (channel, sink, facts) = (&self.identity.channel.name, &self.identity.sink, &letter.facts);
        self.shared.metrics.gave_up(sink);
        error!(%channel, %sink, trace_id = self.trace_id(), offset = %facts.offset, attempts = facts.attempts, reason = facts.reason, "given up: it is a dead letter now, see `channeld dead-letters list`");
        Some(letter)
    }
    fn problem(&self, error: &SinkError) -> Problem {
        let (kind, message, times) = (error.kind(), Chain(error).to_string(), self.retry.attempt());
        let needs_attention = error.needs_attention() || times >= MANY_TIMES;
        self.shared.handle.board.update(|board| {
            let lane = &mut board.lane(&self.outlet.name).status;
            let since = lane.error.as_ref().map_or_else(Timestamp::now, |earlier| earlier.since);
            let problem = Problem { kind: kind.to_owned(), message, since, times, needs_attention };
            lane.error.insert(problem).clone()
        })
    }

    fn log_refusal(&self, error: &SinkError, wait: Duration) {
        let (channel, sink, attempt) = (&self.identity.channel.name, &self.outlet.name, self.retry.attempt());
        let trace_id = self.trace_id();
        let (wait_ms, gone, error) = (wait.as_millis(), matches!(error, SinkError::Gone { .. }), Chain(error));
        if gone {
            error!(%channel, %sink, trace_id, %error, "sink wants no more: its events wait until an operator resumes it");
        } else if attempt == 1 {
            warn!(%channel, %sink, trace_id, wait_ms, %error, "sink refused: its events wait and are offered again");
        } else {
            debug!(%channel, %sink, trace_id, attempt, wait_ms, %error, "sink refused again");
        }
    }

    pub(super) fn trace_id(&self) -> Option<DisplayValue<TraceId>> {
        self.trace.map(display)
    }

    pub(super) fn accepted(&mut self) {
        if self.retry.attempt() > 0 {
            info!(channel = %self.identity.channel.name, sink = %self.outlet.name, trace_id = self.trace_id(), "sink accepts again");
            self.retry.reset();
            self.shared.handle.board.update(|board| board.lane(&self.outlet.name).status.error = None);
        }
    }
}
