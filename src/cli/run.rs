//! `channeld run`: the daemon.

use std::path::PathBuf;

use tracing::error;

use crate::config::{Config, Text};
use crate::daemon::{self, Outcome};
use crate::telemetry::{ALWAYS, Chain};

use super::exit::Exit;

/// Read the configured channels and deliver their verified events, until told to stop.
///
/// Events go to the configured sinks, logs to standard error. SIGTERM and SIGINT let the batch in hand finish and be
/// recorded; a second one ends at once. SIGHUP reads the configuration and the secrets again.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the daemon until a signal ends it, or until no channel is left.
pub async fn run(file: Option<PathBuf>) -> Exit {
    // First: a signal that comes during the start ends the daemon in good order too.
    let signals = daemon::Signals::listen();
    let loaded = Text::read(file.as_deref()).and_then(|text| Ok((Config::of(&text, std::env::vars_os())?, text)));
    let (config, text) = match loaded {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprintln!("{problems}");
            return Exit::Config;
        }
    };
    match daemon::run(daemon::Start { file, text, config, signals }).await {
        // What did not finish within the grace period is not lost: it is offered again at the next start.
        Ok(Outcome::Drained | Outcome::GraceExpired | Outcome::SinkClosed) => Exit::Done,
        Ok(Outcome::AllGone) => Exit::Unavailable,
        Ok(Outcome::Interrupted | Outcome::StateFailed) => Exit::Failed,
        Err(error) => {
            error!(target: ALWAYS, error = %Chain(&*error), "channeld could not start");
            Exit::Failed
        }
    }
}
