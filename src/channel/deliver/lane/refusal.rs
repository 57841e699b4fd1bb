//! Handles a sink that refuses events: the waits of the lane, its reports, and the dead letters.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::field::{DisplayValue, display};
use tracing::{debug, error, info, warn};

use crate::ChannelError;
use crate::deliver::lane::{Halt, Lane};
use crate::status::Problem;
use crate::trouble::MANY_TIMES;
use ledger::{DEAD_LETTERS, DeadLetter, GivenUp};
use net::Chain;
use proof::event::EventKey;
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
        error!(%channel, %sink, trace_id = self.trace_id(), offset = facts.offset.get(), attempts = facts.attempts, reason = facts.reason, "given up: it is a dead letter now, see `channeld dead-letters list`");
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
            error!(%channel, %sink, trace_id, %error, "sink wants no more: its events wait until an operator resumes it");
        } else if attempt == 1 {
            warn!(%channel, %sink, trace_id, wait_ms, %error, "sink refused: its events wait and are offered again");
        } else {
            debug!(%channel, %sink, trace_id, attempt, wait_ms, %error, "sink refused again");
        }
    }

    pub(super) fn trace_id(&self) -> Option<DisplayValue<TraceId>> {
        self.trace.map(|(id, _)| display(id))
    }

    pub(super) fn accepted(&mut self) {
        if self.retry.attempt() > 0 {
            info!(channel = %self.identity.channel.name, sink = %self.outlet.name, trace_id = self.trace_id(), "sink accepts again");
            self.retry.reset();
            self.shared.channel.handle.board().lane(&self.outlet.name).status.error = None;
        }
    }
}

/// Times the refusals of the event that a lane offers.
#[derive(Debug)]
pub(super) struct GiveUpTimer {
    /// `None` disables giving up.
    gives_up_after: Option<Duration>,
    /// The event that was last refused.
    refused: Option<GivenUp>,
}

impl GiveUpTimer {
    pub(super) fn new(gives_up_after: Option<Duration>) -> Self {
        Self { gives_up_after, refused: None }
    }

    /// Counts a refusal at `now`, in Unix seconds. Returns the dead letter if the event was refused for too long. Other
    /// errors are not caused by the event and would affect any event, so the event is offered again.
    pub(super) fn ends_with(&mut self, event: &Message, error: &SinkError, now: i64) -> Option<DeadLetter> {
        let SinkError::Refused { .. } = error else { return None };
        let limit = self.gives_up_after?;
        let (key, received) = (event.event_key(), event.record().received);
        let EventKey { offset, id: event_id } = key;
        let earlier = self.refused.as_ref().filter(|refused| refused.event_key() == key);
        let (since, attempts) = earlier.map_or((now, 0), |refused| (refused.since, refused.attempts));
        let (reason, attempts) = (Chain(error).to_string(), attempts.saturating_add(1));
        let facts = GivenUp { offset, event_id, reason, attempts, since, at: now, received, bytes: 0 };
        self.refused = Some(facts.clone());
        let waited = Duration::from_secs(u64::try_from(now - since).unwrap_or(0));
        (waited >= limit).then(|| DeadLetter { facts, json: event.record().event() })
    }
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
    fn an_event_is_given_up_when_it_was_refused_for_too_long_and_not_before() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
        let mut give_up = GiveUpTimer::new(Some(Duration::from_secs(60)));
        for now in [1_000, 1_030, 1_059, 900] {
            assert_eq!(give_up.ends_with(&event, &refusal(), now), None, "{now}");
        }
        let letter = give_up.ends_with(&event, &refusal(), 1_060).unwrap();
        assert_eq!(letter.json, event.record().event());
        let GivenUp { reason, attempts, since, at, .. } = letter.facts;
        assert_eq!((&*reason, attempts, since, at), ("answered 503", 5, 1_000, 1_060));
    }

    #[test]
    fn without_a_limit_nothing_is_given_up_nor_is_what_the_system_refuses() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
        let io = || SinkError::io("writing", std::io::ErrorKind::StorageFull.into());
        let (mut for_ever, mut short) = (GiveUpTimer::new(None), GiveUpTimer::new(Some(Duration::ZERO)));
        assert_eq!(for_ever.ends_with(&event, &refusal(), i64::MAX), None);
        assert_eq!(short.ends_with(&event, &io(), i64::MAX), None);
    }
}
