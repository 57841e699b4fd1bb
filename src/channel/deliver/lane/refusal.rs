//! Handles a sink that refuses events: the waits of the lane, the reports of the refusals, and the dead letters.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::field::{DisplayValue, display};
use tracing::{debug, error, info, warn};

use crate::deliver::lane::{Halt, Lane};
use crate::error::ChannelError;
use crate::status::Pauses;
use crate::status::reporter::{PauseOnBoard, report_refusal};
use ledger::{DEAD_LETTERS, DeadLetter, DeadLetterFacts};
use net::Chain;
use proof::event::EventKey;
use record::Message;
use sink::SinkError;
use telemetry::trace::TraceId;

impl Lane {
    /// Reports a refusal, and waits before the next offer. The first of several refusals in a row is logged as a warning. The
    /// others are logged at the level `debug`.
    pub(super) async fn refused(&mut self, error: SinkError, stop: &CancellationToken) -> Result<(), Halt> {
        let retry_after = match &error {
            SinkError::Closed => return Err(ChannelError::SinkClosed { sink: self.settings.name.clone() }.into()),
            SinkError::Overtaken(message) => {
                error!(channel = %self.identity.channel.name, sink = %self.identity.sink, reason = message, "another instance delivers to this sink: this instance stops the channel");
                return Err(ChannelError::Lost.into());
            }
            SinkError::Refused { retry_after, .. } => *retry_after,
            SinkError::Gone { .. }
            | SinkError::Io { .. }
            | SinkError::Unavailable { .. }
            | SinkError::Displaced { .. } => None,
        };
        let wait = self.retry.next_wait(retry_after);
        let (handle, sink) = (&self.shared.channel.handle, &self.settings.name);
        let problem = report_refusal(handle, sink, &error, self.retry.attempt());
        self.log_refusal(&error, wait);
        if let SinkError::Gone { .. } = error {
            handle.sink_is_gone(sink, problem);
        } else {
            // The wait can be an hour. An operator who has repaired the sink can end the wait by resuming the sink.
            tokio::select! { biased; _ = stop.run_until_cancelled(sleep(wait)) => {} () = handle.sink_resumed(sink) => {} }
        }
        self.until_active(stop).await
    }

    /// Waits until the sink allows the next delivery. If the target has asked all channels to wait, an operator can end this
    /// wait by resuming the sink.
    pub(super) async fn turn(&self) {
        let (handle, sink) = (&self.shared.channel.handle, &self.settings.name);
        let turn = self.settings.sink.pace(&self.identity);
        let Some(left) = self.settings.sink.pause() else { return turn.await };
        let _shown = PauseOnBoard::begin(handle, sink, left);
        tokio::select! { biased; () = turn => {} () = handle.sink_resumed(sink) => {} }
    }

    /// Waits while the sink is paused or gone. Returns `Halt::Stopped` if `stop` fires or the lease is lost.
    pub(super) async fn until_active(&self, stop: &CancellationToken) -> Result<(), Halt> {
        let sink = &*self.settings.name;
        let is_active = |pauses: &Pauses| !pauses.paused.sinks.contains_key(sink) && !pauses.gone.contains_key(sink);
        let is_active = self.shared.channel.handle.until(is_active, stop).await;
        let is_lost = self.shared.owned.leased.lease.is_lost();
        if is_active && !is_lost { Ok(()) } else { Err(Halt::Stopped) }
    }

    /// Returns the dead letter of an event if the event was refused for too long. Returns `None` while the dead letters are
    /// full.
    pub(super) fn dead_letter(&mut self, event: &Message, error: &SinkError) -> Option<DeadLetter> {
        let now = self.shared.channel.parts.machine.now();
        let letter = given_up(&mut self.last_refused, self.settings.gives_up_after, event, error, now)?;
        if self.shared.look(|ledger| ledger.dead_letter_room().is_full(DEAD_LETTERS)) {
            return None;
        }
        let (channel, sink, facts) = (&self.identity.channel.name, &self.identity.sink, &letter.facts);
        self.shared.channel.metrics.gave_up(sink);
        error!(%channel, %sink, trace_id = self.trace_id(), offset = facts.offset.get(), attempts = facts.attempts, reason = facts.reason, "the sink refused the event for too long: the event is a dead letter now, see `channeld dead-letters list`");
        Some(letter)
    }

    fn log_refusal(&self, error: &SinkError, wait: Duration) {
        let (channel, sink, attempt) = (&self.identity.channel.name, &self.settings.name, self.retry.attempt());
        let trace_id = self.trace_id();
        let (wait_ms, gone, error) = (wait.as_millis(), matches!(error, SinkError::Gone { .. }), Chain(error));
        if gone {
            error!(%channel, %sink, trace_id, %error, "sink accepts no more events: new events wait until an operator resumes the sink");
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
            info!(channel = %self.identity.channel.name, sink = %self.settings.name, trace_id = self.trace_id(), "sink accepts events again");
            self.retry.reset();
            self.shared.channel.handle.board().lane(&self.settings.name).status.error = None;
        }
    }
}

/// Counts a refusal at `now`, in Unix seconds. Returns the dead letter if the event was refused for at least `limit`. Returns
/// `None` for an error other than a refusal, because such an error would affect every event.
fn given_up(
    last: &mut Option<DeadLetterFacts>,
    limit: Option<Duration>,
    event: &Message,
    error: &SinkError,
    now: i64,
) -> Option<DeadLetter> {
    let (SinkError::Refused { .. }, limit) = (error, limit?) else { return None };
    let (key, received) = (event.event_key(), event.record().received);
    let EventKey { offset, id: event_id } = key;
    let earlier = last.as_ref().filter(|refused| refused.event_key() == key);
    let (since, attempts) = earlier.map_or((now, 0), |refused| (refused.since, refused.attempts));
    let (reason, attempts) = (Chain(error).to_string(), attempts.saturating_add(1));
    let facts = last.insert(DeadLetterFacts { offset, event_id, reason, attempts, since, at: now, received, bytes: 0 });
    let waited = Duration::from_secs(u64::try_from(now - since).unwrap_or(0));
    (waited >= limit).then(|| DeadLetter { facts: facts.clone(), json: event.record().event() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use record::Shape;
    use record::testing::notice;
    use sink::Fault;

    fn refusal() -> SinkError {
        SinkError::Refused { message: "answered 503".to_owned(), retry_after: None, fault: Fault::Target }
    }

    #[test]
    fn an_event_becomes_a_dead_letter_only_after_give_up_after() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
        let mut last = None;
        let mut give_up = |now| given_up(&mut last, Some(Duration::from_secs(60)), &event, &refusal(), now);
        for now in [1_000, 1_030, 1_059, 900] {
            assert_eq!(give_up(now), None, "{now}");
        }
        let letter = give_up(1_060).unwrap();
        assert_eq!(letter.json, event.record().event());
        let DeadLetterFacts { reason, attempts, since, at, .. } = letter.facts;
        assert_eq!((&*reason, attempts, since, at), ("answered 503", 5, 1_000, 1_060));
    }

    #[test]
    fn without_a_limit_or_on_a_system_failure_there_are_no_dead_letters() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
        let io = || SinkError::io("writing", std::io::ErrorKind::StorageFull.into());
        assert_eq!(given_up(&mut None, None, &event, &refusal(), i64::MAX), None);
        assert_eq!(given_up(&mut None, Some(Duration::ZERO), &event, &io(), i64::MAX), None);
    }
}
