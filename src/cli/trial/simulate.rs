//! `channeld simulate`: runs the simulated service until a signal ends it.
//!
//! # Invariants
//!
//! * **One line.** Standard output gets exactly one JSON line, the announcement, once connections are accepted.
//!
//! # Cancellation
//!
//! SIGTERM and SIGINT end it.

use std::io::Write;

use crate::cli::exit::{Exit, Failure};
use crate::cli::output::say_json;
use crate::daemon::signals::{Signal, Signals};
use simulator::{Options, Simulator};

/// Runs the simulator until a signal.
pub(crate) async fn run(options: Options, out: &mut impl Write) -> Result<Exit, Failure> {
    let listen = options.listen;
    let mut signals = Signals::listen().map_err(Failure::io("cannot listen for signals"))?;
    let simulator = Simulator::start(options).await.map_err(|error| {
        Failure(Exit::Failed, format!("cannot listen at {listen}: {error}; choose another --listen"))
    })?;
    say_json(out, simulator.announcement())?;
    while signals.next().await != Signal::Stop {}
    simulator.stop().await;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests;
