//! `channeld run`: runs the daemon.

use std::future::pending;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tracing::error;

use crate::config::{Config, ConfigError, ConfigText, Loaded};
use crate::daemon::{self, EndReason, Signal, Signals};
use net::Chain;
use net::tasks::joined;
use telemetry::ALWAYS;

use super::context::Exit;

/// How long the end of the program waits for a reader of standard error that has stopped reading.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Run the daemon: read the configured channels and deliver events.
///
/// Verified events go to the configured sinks, and logs go to standard error. On SIGTERM or SIGINT, the daemon
/// finishes and records the current batch, then exits. A second signal ends it at once. On SIGHUP, the daemon reads
/// the configuration and the secrets again.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Exit when every sink has every event that the service had at the start.
    ///
    /// For each channel, the last event that counts is the newest event in the first answer of the service. If a proof is missing,
    /// the command waits until it arrives, or until `proof_timeout` moves the event to the quarantine. The command also waits for a
    /// paused channel or a sink that refuses events. Exits with 0 if every sink has caught up, with 69 if the service does not
    /// answer or a channel does not exist, and with 1 if a signal stops it before. If instances share the state, run only one
    /// instance.
    #[arg(long)]
    until_caught_up: bool,
}

/// Loads the configuration on a blocking thread, because a file can be on a mount that hangs, and a program that prints a secret
/// can take long. Returns `None` if a signal to stop arrives first. If a signal to reload arrives, the files are read again.
async fn load(file: Option<&Path>, signals: &mut io::Result<Signals>) -> Option<Result<Loaded, ConfigError>> {
    loop {
        let file = file.map(Path::to_owned);
        let read = move || Config::of(ConfigText::read(file.as_deref())?, std::env::vars_os());
        tokio::select! {
            loaded = spawn_blocking(read) => return Some(joined(loaded).await),
            signal = next(signals) => if signal == Signal::Stop { return None },
        }
    }
}

async fn next(signals: &mut io::Result<Signals>) -> Signal {
    match signals {
        Ok(signals) => signals.next().await,
        // The daemon reports this error when it starts.
        Err(_) => pending().await,
    }
}

/// Runs the daemon until a signal ends it, or until no channel is left.
pub(super) async fn run(args: &Args, file: Option<&Path>) -> Exit {
    // Listen first, so that a signal during the start also shuts the daemon down cleanly.
    let mut signals = Signals::listen();
    let loaded = match load(file, &mut signals).await {
        None if args.until_caught_up => return Exit::Failed,
        None => return Exit::Done,
        Some(Ok(loaded)) => loaded,
        Some(Err(problems)) => {
            let priority = if telemetry::is_journal() { "<3>" } else { "" };
            problems.to_string().lines().for_each(|line| eprintln!("{priority}{line}"));
            return Exit::Config;
        }
    };
    let logs = match telemetry::init(&loaded.config.log) {
        Ok(logs) => logs,
        Err(error) => {
            eprintln!("channeld: the thread that writes the log could not be started: {error}");
            return Exit::Failed;
        }
    };
    let queue = logs.queue.clone();
    let exit = match Box::pin(daemon::run(file.map(Path::to_owned), loaded, signals, logs, args.until_caught_up)).await
    {
        // Deliveries that did not finish within the grace period are not lost: the next start repeats them.
        Ok(EndReason::Drained | EndReason::GraceExpired | EndReason::SinkClosed) => Exit::Done,
        Ok(EndReason::AllGone | EndReason::Unavailable) => Exit::Unavailable,
        Ok(EndReason::NotCaughtUp | EndReason::Interrupted | EndReason::StateFailed) => Exit::Failed,
        Err(error) => {
            error!(target: ALWAYS, error = %Chain(&*error), "channeld could not start");
            Exit::Failed
        }
    };
    queue.flush(LAST_LINES);
    exit
}
