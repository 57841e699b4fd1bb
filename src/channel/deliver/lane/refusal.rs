//! Handles a sink that refuses events: the waits of the lane, and the reports of the refusals.

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::field::{DisplayValue, display};
use tracing::{debug, error, info, warn};

use crate::deliver::lane::{Halt, Lane};
use crate::error::ChannelError;
use crate::status::Pauses;
use crate::status::reporter::{PauseOnBoard, report_refusal};
use net::Chain;
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
        let (handle, channel, sink) = (&self.shared.channel.handle, &self.identity.channel.name, &self.settings.name);
        let (attempt, trace_id, wait_ms) = (self.retry.attempt(), self.trace_id(), wait.as_millis());
        let problem = report_refusal(handle, sink, &error, attempt);
        if let SinkError::Gone { .. } = error {
            error!(%channel, %sink, trace_id, error = %Chain(&error), "sink accepts no more events: new events wait until an operator resumes the sink");
            handle.sink_is_gone(sink, problem);
            return self.until_active(stop).await;
        }
        if attempt == 1 {
            warn!(%channel, %sink, trace_id, wait_ms, error = %Chain(&error), "sink refused: its events wait and will be offered again");
        } else {
            debug!(%channel, %sink, trace_id, attempt, wait_ms, error = %Chain(&error), "sink refused again");
        }
        // The wait can be an hour. An operator who has repaired the sink can end the wait by resuming the sink.
        tokio::select! { biased; _ = stop.run_until_cancelled(sleep(wait)) => {} () = handle.sink_resumed(sink) => {} }
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

    /// Waits while the sink is paused or gone. Returns `Halt::Stopped` if `stop` fires, and [`ChannelError::Lost`] if the lease is
    /// lost. A lane that only stopped then would end the channel as if it had been told to end, and nothing would start the
    /// channel again.
    pub(super) async fn until_active(&self, stop: &CancellationToken) -> Result<(), Halt> {
        let sink = &*self.settings.name;
        let is_active = |pauses: &Pauses| !pauses.paused.sinks.contains_key(sink) && !pauses.gone.contains_key(sink);
        if !self.shared.channel.handle.until(is_active, stop).await {
            return Err(Halt::Stopped);
        }
        if self.shared.owned.leased.lease.is_lost() {
            return Err(ChannelError::Lost.into());
        }
        Ok(())
    }

    pub(super) fn trace_id(&self) -> Option<DisplayValue<TraceId>> {
        self.trace.map(|(id, _)| display(id))
    }

    /// Records that the sink has accepted everything that was offered.
    pub(super) fn accepted(&mut self) {
        if self.retry.attempt() > 0 {
            info!(channel = %self.identity.channel.name, sink = %self.settings.name, trace_id = self.trace_id(), "sink accepts events again");
            self.retry.reset();
        }
        // The problem can be older than the retries, which also begin again after an offer that was accepted in part.
        self.shared.channel.handle.board().lane_problem(&self.settings.name, None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use tokio::time::timeout;

    use crate::ChannelError;
    use crate::deliver::lane::{Halt, Lane};
    use crate::run::tests::{Receives, begun, channel};
    use ledger::Cursor;
    use proof::event::Offset;
    use sink::{Delivery, Recorded, Resumed, Sink, SinkError, Undelivered};

    /// A sink that cannot be reached.
    #[derive(Debug)]
    struct AwaySink;

    #[async_trait]
    impl Sink for AwaySink {
        async fn resume(&self, _: &Recorded) -> Result<Resumed, SinkError> {
            Err(SinkError::away("could not connect".to_owned()))
        }

        async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
            Ok(())
        }
    }

    /// Otherwise `status` would show a healthy sink while its channel is paused.
    #[tokio::test]
    async fn the_problem_of_a_sink_stays_on_the_board_when_its_lane_stops() {
        let (channel, handle) = channel(0, Arc::new(AwaySink));
        let (shared, plan, stop) = begun(&channel).await;
        let (mut lane, _) = Lane::new(shared, plan.lanes[0].clone(), Cursor::default());
        stop.cancel();
        assert!(matches!(lane.resume_and_report(&stop).await, Err(Halt::Stopped)));
        let problem = handle.board().lane(&plan.lanes[0].name).status.error.clone();
        assert!(problem.is_some_and(|problem| problem.message == "could not connect"));
    }

    /// If the lane ended without an error, the channel would count as stopped. It would not start again, even if its lease came
    /// back, and a daemon without another channel would exit.
    #[tokio::test]
    async fn a_lane_without_a_lease_ends_with_an_error() {
        let (channel, _) = channel(1, Arc::new(Receives::Everything));
        let (shared, plan, stop) = begun(&channel).await;
        // The lane reads for itself up to this position.
        shared.hub.begin_at(Offset::new(1));
        shared.owned.leased.lease.lost.cancel();
        let (lane, upcoming) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor::default());
        let ended = timeout(Duration::from_secs(10), lane.run(upcoming, stop)).await.expect("the lane ends");
        assert!(matches!(ended, Err(ChannelError::Lost)), "{ended:?}");
    }
}
