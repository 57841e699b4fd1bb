//! `channeld run`: runs the daemon.

use std::path::Path;

use tracing::error;

use crate::config::{Config, Text};
use crate::daemon::{self, EndReason};
use net::Chain;
use telemetry::ALWAYS;

use super::context::Exit;

/// Runs the daemon until a signal ends it, or until no channel is left.
pub(super) async fn run(file: Option<&Path>) -> Exit {
    // Listen first, so that a signal during the start also shuts the daemon down cleanly.
    let signals = daemon::Signals::listen();
    let loaded = match Text::read(file).and_then(|text| Config::of(text, std::env::vars_os())) {
        Ok(loaded) => loaded,
        Err(problems) => {
            let priority = if telemetry::is_journal() { "<3>" } else { "" };
            problems.to_string().lines().for_each(|line| eprintln!("{priority}{line}"));
            return Exit::Config;
        }
    };
    match Box::pin(daemon::run(file.map(Path::to_owned), loaded, signals)).await {
        // Deliveries that did not finish within the grace period are not lost: the next start repeats them.
        Ok(EndReason::Drained | EndReason::GraceExpired | EndReason::SinkClosed) => Exit::Done,
        Ok(EndReason::AllGone) => Exit::Unavailable,
        Ok(EndReason::Interrupted | EndReason::StateFailed) => Exit::Failed,
        Err(error) => {
            error!(target: ALWAYS, error = %Chain(&*error), "channeld could not start");
            Exit::Failed
        }
    }
}
