//! Opens the state at the start. If the machine lacks descriptors, memory or disk space, the daemon waits: another process may
//! release some.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::open_blocking;
use super::signals::{Signal, Signals};
use ledger::store::StateSettings;
use ledger::{Ledgers, StateError};
use net::Chain;
use telemetry::ALWAYS;

/// The wait between two attempts.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the start waits. Then the service manager must know that the daemon did not start.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Opens the state. `None` if a signal to stop arrived first.
pub(super) async fn open(settings: &StateSettings, signals: &mut Signals) -> Result<Option<Ledgers>, StateError> {
    let began = Instant::now();
    let mut is_reported = false;
    loop {
        let settings = settings.clone();
        let opened = tokio::select! {
            opened = open_blocking(move || settings.open()) => opened,
            // The state survives the end of the process at any moment, so the thread that opens it is not waited for.
            () = stop(signals) => return Ok(stopped()),
        };
        let error = match opened {
            Ok(store) => return Ok(Some(Ledgers::over(store))),
            Err(error) => error,
        };
        let Some(shortage) = error.shortage().filter(|_| began.elapsed() < MAX_WAIT) else { return Err(error) };
        if !is_reported {
            is_reported = true;
            let (error, advice) = (Chain(&error).to_string(), shortage.advice().trim_start_matches("; "));
            warn!(target: ALWAYS, error, advice, "the state cannot be opened yet: retrying for a minute");
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            () = stop(signals) => return Ok(stopped()),
        }
    }
}

fn stopped() -> Option<Ledgers> {
    info!(target: ALWAYS, "stopping before the state was opened");
    None
}

/// Waits for a signal to stop. The configuration was read just now, so a signal to read it again changes nothing.
async fn stop(signals: &mut Signals) {
    while signals.next().await != Signal::Stop {}
}
