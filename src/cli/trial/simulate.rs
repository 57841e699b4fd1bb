//! `channeld simulate`: runs the simulated service until SIGTERM or SIGINT. As soon as the service accepts connections,
//! the command prints one line of JSON: the address, the API key and the ids that a client needs. Nothing else is
//! written to standard output.

use crate::cli::context::{CommandError, Context, Exit};
use crate::daemon::signals::{Signal, Signals};
use simulator::{Options, Simulator};

pub(crate) async fn run(options: Options, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let listen = options.listen;
    let mut signals = Signals::listen().map_err(CommandError::io("cannot listen for signals"))?;
    let simulator = Simulator::start(options).await.map_err(|error| {
        CommandError::failed(format!("cannot listen at {listen}: {error}; choose another --listen"))
    })?;
    cx.say_json(simulator.announcement())?;
    while signals.next().await != Signal::Stop {}
    simulator.stop().await;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests;
