//! What the service manager is told while the daemon runs: that it lives, and how it is.
//!
//! # Cancellation
//!
//! May be dropped at any point: it changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::debug;

use crate::control::{Answer, Operations, Report, Request};
use crate::liveness::Liveness;
use crate::systemd::Notifier;

/// Between two looks at how things are. What does not differ is not told again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Tells the service manager, where there is one. Does not end.
pub(super) async fn tell(notifier: &Notifier, liveness: Liveness, operations: watch::Receiver<Arc<Operations>>) {
    tokio::join!(notifier.keep_alive(|| liveness.check()), tell_status(notifier, operations));
}

async fn tell_status(notifier: &Notifier, operations: watch::Receiver<Arc<Operations>>) {
    while notifier.is_heard() {
        let now = operations.borrow().clone();
        match now.answer(Request::Status).await {
            Ok(Answer::Status(report)) => notifier.status(&summary(&report)),
            Ok(_) => {}
            Err(error) => debug!(?error, "how things are could not be told"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    std::future::pending::<()>().await;
}

/// A line that tells whether to look, and nothing that only an operator may know.
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
