//! What a lane says of its sink: that it refuses, once, and that it accepts again.

use std::time::Duration;

use jiff::Timestamp;
use tracing::field::{DisplayValue, display};
use tracing::{debug, error, info, warn};

use crate::channel::status::Problem;
use crate::channel::trouble::STUBBORN;
use crate::sink::SinkError;
use crate::telemetry::Chain;
use crate::trace::TraceId;

use super::Lane;

impl Lane {
    pub(super) fn tell(&self, error: &SinkError) -> Problem {
        let (kind, message, times) = (error.kind(), Chain(error).to_string(), self.retry.attempt());
        let needs_attention = error.needs_attention() || times >= STUBBORN;
        self.shared.handle.observe_lane(&self.outlet.name, |lane| {
            let since = lane.error.as_ref().map_or_else(Timestamp::now, |earlier| earlier.since);
            let problem = Problem { kind: kind.to_owned(), message, since, times, needs_attention };
            lane.error.insert(problem).clone()
        })
    }

    pub(super) fn complain(&self, error: &SinkError, wait: Duration) {
        let (channel, sink, attempt) = (&self.recorded.channel.name, &self.outlet.name, self.retry.attempt());
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
            info!(channel = %self.recorded.channel.name, sink = %self.outlet.name, trace_id = self.trace_id(), "sink accepts again");
            self.retry.reset();
            self.shared.handle.observe_lane(&self.outlet.name, |lane| lane.error = None);
        }
    }
}
