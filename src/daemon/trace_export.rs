//! The export of traces while the daemon runs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use net::Chain;
use telemetry::metrics::Metrics;
use telemetry::trace::{Export, Otlp, Traces};

/// How long the export of the last spans may take, even if more of the grace period remains.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// The trace export, if one is configured.
#[derive(Default)]
pub(super) struct TraceExport {
    task: JoinSet<()>,
    otlp: Option<watch::Sender<Otlp>>,
    stop: CancellationToken,
}

impl TraceExport {
    /// Returns the traces, and starts their export. The error says why the export cannot start.
    pub(super) fn begin(otlp: Option<Otlp>, metrics: &Metrics) -> Result<(Traces, Self), String> {
        let mut trace_export = Self::default();
        let Some(otlp) = otlp else { return Ok((Traces::default(), trace_export)) };
        let settings = trace_export.otlp.insert(watch::Sender::new(otlp)).subscribe();
        let (traces, export) = Export::new(settings, metrics.spans_lost.clone())
            .map_err(|error| format!("traces cannot be exported: {}", Chain(&*error)))?;
        trace_export.task.spawn(export.run(trace_export.stop.clone()));
        Ok((traces, trace_export))
    }

    /// Sends the headers of this configuration to the collector from now on.
    pub(super) fn follow(&self, otlp: Option<&Otlp>) {
        if let Some((sender, newer)) = self.otlp.as_ref().zip(otlp) {
            sender.send_if_modified(|otlp| std::mem::replace(otlp, newer.clone()) != *newer);
        }
    }

    /// Exports the last spans, at most until `deadline`.
    pub(super) async fn end(&mut self, deadline: Instant) {
        self.stop.cancel();
        let left = deadline.saturating_duration_since(Instant::now()).min(LAST_SPANS);
        if timeout(left, self.task.join_next()).await.is_err() {
            warn!("the last traces could not be exported in time: they are lost");
        }
    }
}
