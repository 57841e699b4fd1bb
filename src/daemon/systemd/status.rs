//! The watchdog and the status line, kept up while the daemon runs.
//!
//! # Cancellation
//!
//! May be dropped at any point: it changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::debug;

use crate::liveness::Liveness;
use crate::operator::api::GetStatus;
use crate::operator::{Operations, Report};

use super::Notifier;

/// Between two status lines.
const INTERVAL: Duration = Duration::from_secs(2);

/// Feeds the watchdog and sends the status line. Does not end.
pub(in crate::daemon) async fn tell(
    notifier: &Notifier,
    liveness: Liveness,
    operations: watch::Receiver<Arc<Operations>>,
) {
    tokio::join!(notifier.keep_alive(|| liveness.check()), tell_status(notifier, operations));
}

async fn tell_status(notifier: &Notifier, operations: watch::Receiver<Arc<Operations>>) {
    while notifier.has_manager() {
        let now = operations.borrow().clone();
        match now.status(&GetStatus {}).await {
            Ok(report) => notifier.status(&summary(&report)),
            Err(error) => debug!(?error, "how things are could not be told"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
    std::future::pending::<()>().await;
}

/// How many channels and reasons there are. Any user of the machine can read it, so it has no details.
fn summary(report: &Report) -> String {
    let channels = counted(report.channels.len(), "channel");
    match report.reasons.len() {
        0 => format!("{channels}, ready"),
        reasons => format!("{channels}, not ready for {}: see channeld status", counted(reasons, "reason")),
    }
}

fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
