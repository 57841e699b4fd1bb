//! `channeld console`: events, their proofs and the daemon, in a browser.
//!
//! # Cancellation
//!
//! Ends at a signal, whatever its clients do. The daemon completes the requests that it has received.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use tracing::warn;

use crate::cli::connect::{client, configured};
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::who;
use crate::cli::output::say;
use crate::config::{Config, Sink, SinkSettings};
use crate::daemon::signals::Signals;
use console::{Console, ConsoleError, EventSource, Settings};
use net::Chain;

/// Show events, their proofs and the daemon in a browser.
///
/// Prints one address, which works once: the browser that opens it is let in by a cookie from then on, and can let in others.
/// Runs beside the daemon as the user who may use its control socket, listens on loopback only, and asks nothing of other
/// machines but the service and the database that are configured. Runs until it is interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen: a loopback address. Port 0 lets the system choose.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// The sink of type `sqlite` or `postgres` whose table is read [default: the first that a channel uses]
    #[arg(long, value_name = "SINK")]
    from: Option<String>,
    /// Show everything and change nothing: no retry, no redelivery, no pause.
    #[arg(long)]
    read_only: bool,
    /// Open the address in this desktop's browser.
    #[arg(long)]
    open: bool,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "must be an IP address and a port".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("must be a loopback address, such as 127.0.0.1:8480: from another machine, come through `ssh -L`".to_owned())
}

/// Serves until a signal arrives.
pub(crate) async fn run(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let config = Config::load(file)?;
    telemetry::init_plain(&config.log);
    let mut signals = Signals::listen().map_err(Failure::output)?;
    let console = open(&config, args.listen, args.from.as_deref(), args.read_only).await?;
    let address = console.offer_address();
    say(out, &address)?;
    anstream::eprintln!("The address works once. Ctrl-C ends the console.");
    if args.open {
        open_browser(&address);
    }
    tokio::select! { never = console.serve() => match never {}, _ = signals.next() => Ok(Exit::Done) }
}

/// Opens the console of this configuration. Sends no request yet.
pub(crate) async fn open(
    config: &Config,
    listen: SocketAddr,
    from: Option<&str>,
    read_only: bool,
) -> Result<Console, Failure> {
    let settings = Settings {
        listen,
        read_only,
        directory: config.state.path.clone(),
        who: who(),
        channels: configured(&config.channels),
        signer_names: config.signer_names.clone(),
        source: source(config, from)?,
        client: client(config)?,
    };
    Ok(Console::open(settings).await?)
}

/// The table of the named sink or, without a name, the table of the first such sink that a channel uses.
fn source(config: &Config, from: Option<&str>) -> Result<EventSource, Failure> {
    let wrong = |why: String| Failure(Exit::Usage, why);
    if let Some(name) = from {
        let sink = config.sinks.get(name).ok_or_else(|| {
            let names: Vec<_> = config.sinks.keys().map(String::as_str).collect();
            wrong(format!("--from {name}: there is no such sink; there are: {}", names.join(", ")))
        })?;
        return table(name, sink).ok_or_else(|| {
            wrong(format!("--from {name}: this sink is no table: name one of type sqlite or postgres"))
        });
    }
    let mut names = config.channels.iter().flat_map(|channel| &channel.sinks);
    let first = names.find_map(|name| table(name, config.sinks.get(name)?));
    Ok(first.unwrap_or_else(|| EventSource::Service("no channel has a sink of type sqlite or postgres".to_owned())))
}

/// The table of a sink; `None` if the sink is none.
fn table(name: &str, sink: &Sink) -> Option<EventSource> {
    match &sink.settings {
        SinkSettings::Sqlite(settings) => Some(EventSource::Sqlite(name.to_owned(), settings.clone())),
        SinkSettings::Postgres(settings) => Some(EventSource::Postgres(name.to_owned(), settings.clone())),
        _ => None,
    }
}

impl From<ConsoleError> for Failure {
    fn from(error: ConsoleError) -> Self {
        let exit = match error {
            ConsoleError::Table(_) => Exit::Config,
            ConsoleError::Listen { .. } => Exit::Failed,
        };
        Self(exit, Chain(&error).to_string())
    }
}

/// Asks the desktop to open the address. The address is printed in any case.
pub(crate) fn open_browser(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut browser = Command::new(program);
    browser.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = browser.spawn() {
        warn!(%error, "no browser could be opened: open the address yourself");
    }
}
