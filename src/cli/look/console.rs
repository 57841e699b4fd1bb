//! `channeld console`: events, their proofs and the daemon, in a browser. A signal ends the command at once, without waiting
//! for browsers. The daemon completes the requests that it has received from the console.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tracing::warn;

use crate::cli::context::{CommandError, Context, Exit};
use crate::daemon::signals::Signals;

#[cfg(feature = "console")]
mod serve;

#[cfg(feature = "console")]
pub(crate) use serve::serve;

/// Show events, their proofs and the daemon in a browser.
///
/// Prints an address that works once. The browser that opens the address stays signed in, by a cookie, and can sign in
/// other browsers. The console runs next to the daemon, as a user who may use its control socket. The console listens
/// only on loopback addresses, and contacts no other machines except the configured service and database. It runs until
/// Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The loopback address to listen on. With port 0, the system chooses the port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// The sink of type `sqlite` or `postgres` whose table is read [default: the first such sink that a channel uses]
    #[arg(long, value_name = "SINK")]
    from: Option<String>,
    /// Show everything, but allow no changes: no retry, no replay, no pause.
    #[arg(long)]
    read_only: bool,
    /// Open the address in the browser of this desktop.
    #[arg(long)]
    open: bool,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "must be an IP address and a port".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("must be a loopback address, such as 127.0.0.1:8480; from another machine, use `ssh -L`".to_owned())
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let config = cx.config()?;
    telemetry::init_plain(&config.log);
    let mut signals = Signals::listen().map_err(CommandError::output)?;
    let announce = |address: &str| {
        cx.say(address)?;
        anstream::eprintln!("The address works once. Ctrl-C ends the console.");
        if args.open {
            open_browser(address);
        }
        Ok(())
    };
    tokio::select! {
        served = serve(&config, args.listen, args.from.as_deref(), args.read_only, announce) => match served? {},
        _ = signals.next() => Ok(Exit::Done),
    }
}

/// Returns an error, because this program was built without the console.
#[cfg(not(feature = "console"))]
#[expect(clippy::unused_async, reason = "it has the signature of the function with the console")]
pub(crate) async fn serve(
    _config: &crate::config::Config,
    _listen: SocketAddr,
    _from: Option<&str>,
    _read_only: bool,
    _announce: impl FnOnce(&str) -> Result<(), CommandError>,
) -> Result<std::convert::Infallible, CommandError> {
    Err(CommandError::usage(crate::config::built_without("the console", "console")))
}

/// Asks the desktop to open the address. The address is printed in any case.
pub(crate) fn open_browser(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut browser = Command::new(program);
    browser.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = browser.spawn() {
        warn!(%error, "no browser could be started: open the address yourself");
    }
}
