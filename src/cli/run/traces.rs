//! Traces of a daemon, exported as long as it runs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::config::Log;
use crate::metrics::Metrics;
use crate::trace::{Export, Headers, SetupError, Traces};

/// How long the last spans may take at most, of what the grace leaves.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// The export under way, where there is one.
pub(super) struct Exporting {
    task: JoinSet<()>,
    headers: watch::Sender<Headers>,
    stop: CancellationToken,
}

impl Exporting {
    /// Exports what begins in the traces that are returned.
    pub(super) fn begin(log: &Log, metrics: &Metrics) -> Result<(Traces, Self), SetupError> {
        let (headers, stop) = (watch::Sender::default(), CancellationToken::new());
        let mut exporting = Self { task: JoinSet::new(), headers, stop };
        let Some(otlp) = log.otlp.clone() else { return Ok((Traces::default(), exporting)) };
        exporting.follow(log);
        let (traces, export) = Export::new(otlp, exporting.headers.subscribe(), metrics.spans_lost())?;
        exporting.task.spawn(export.run(exporting.stop.clone()));
        Ok((traces, exporting))
    }

    /// From now on the collector is told these headers.
    pub(super) fn follow(&self, log: &Log) {
        let newer = log.otlp.as_ref().map(|otlp| otlp.headers.clone()).unwrap_or_default();
        self.headers.send_if_modified(|headers| std::mem::replace(headers, newer.clone()) != newer);
    }

    /// Exports what has ended, but not beyond `deadline`.
    pub(super) async fn end(&mut self, deadline: Instant) {
        self.stop.cancel();
        let left = deadline.saturating_duration_since(Instant::now()).min(LAST_SPANS);
        if timeout(left, self.task.join_next()).await.is_err() {
            warn!("the last traces could not be exported in time: they are lost");
        }
    }
}
