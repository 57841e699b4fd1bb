//! The export of traces while the daemon runs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::metrics::Metrics;
use crate::telemetry::trace::{Export, Headers, Otlp, SetupError, Traces};

/// The longest time that exporting the last spans may take of what is left of the grace period.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// The export, where one is configured.
pub(super) struct Exporting {
    task: JoinSet<()>,
    headers: watch::Sender<Headers>,
    stop: CancellationToken,
}

impl Exporting {
    /// Exports what begins in the traces that are returned.
    pub(super) fn begin(otlp: Option<Otlp>, metrics: &Metrics) -> Result<(Traces, Self), SetupError> {
        let (headers, stop) = (watch::Sender::default(), CancellationToken::new());
        let mut exporting = Self { task: JoinSet::new(), headers, stop };
        let Some(otlp) = otlp else { return Ok((Traces::default(), exporting)) };
        exporting.follow(Some(&otlp));
        let (traces, export) = Export::new(otlp, exporting.headers.subscribe(), metrics.spans_lost.clone())?;
        exporting.task.spawn(export.run(exporting.stop.clone()));
        Ok((traces, exporting))
    }

    /// From now on the collector is told these headers.
    pub(super) fn follow(&self, otlp: Option<&Otlp>) {
        let newer = otlp.map(|otlp| otlp.headers.clone()).unwrap_or_default();
        self.headers.send_if_modified(|headers| std::mem::replace(headers, newer.clone()) != newer);
    }

    /// Exports the last spans, until `deadline`.
    pub(super) async fn end(&mut self, deadline: Instant) {
        self.stop.cancel();
        let left = deadline.saturating_duration_since(Instant::now()).min(LAST_SPANS);
        if timeout(left, self.task.join_next()).await.is_err() {
            warn!("the last traces could not be exported in time: they are lost");
        }
    }
}
