//! Serves the console of a configuration.

use std::convert::Infallible;
use std::net::SocketAddr;

use crate::cli::context::{CommandError, Exit, configured};
use crate::cli::operate::who;
use crate::config::{Config, Sink, SinkSettings};
use crate::daemon::assembly;
use console::{Console, ConsoleError, ConsoleSettings, EventSource};
use net::Chain;

/// Opens the console, passes its address to `announce`, and serves until it is dropped.
pub(crate) async fn serve(
    config: &Config,
    listen: Option<SocketAddr>,
    from: Option<&str>,
    read_only: bool,
    announce: impl FnOnce(&str) -> Result<(), CommandError>,
) -> Result<Infallible, CommandError> {
    let settings = ConsoleSettings {
        listen,
        read_only,
        directory: config.state.path.clone(),
        who: who(),
        channels: configured(&config.channels),
        signer_names: config.signer_names.clone(),
        explorers: config.explorers.clone(),
        source: source(config, from)?,
        clients: assembly::clients(config)?,
    };
    let console = Console::open(settings).await?;
    announce(&console.offer_address())?;
    Ok(console.serve().await)
}

/// The table of the sink `from`. Without a name, the table of the first sink that has a table and is used by a channel.
fn source(config: &Config, from: Option<&str>) -> Result<EventSource, CommandError> {
    if let Some(name) = from {
        let sink = config.sinks.get(name).ok_or_else(|| {
            let names: Vec<_> = config.sinks.keys().map(String::as_str).collect();
            CommandError::usage(format!("--from {name}: unknown sink; the sinks are: {}", names.join(", ")))
        })?;
        let message = "this sink is not a table: choose one of type sqlite or postgres";
        return table(name, sink).ok_or_else(|| CommandError::usage(format!("--from {name}: {message}")));
    }
    let mut names = config.channels.iter().flat_map(|channel| &channel.sinks);
    let first = names.find_map(|name| table(name, config.sinks.get(name)?));
    Ok(first.unwrap_or_else(|| EventSource::Service("no channel has a sink of type sqlite or postgres".to_owned())))
}

fn table(name: &str, sink: &Sink) -> Option<EventSource> {
    match &sink.settings {
        SinkSettings::Sqlite(settings) => Some(EventSource::Sqlite(name.to_owned(), settings.clone())),
        SinkSettings::Postgres(settings) => Some(EventSource::Postgres(name.to_owned(), settings.clone())),
        _ => None,
    }
}

impl From<ConsoleError> for CommandError {
    fn from(error: ConsoleError) -> Self {
        let exit = match error {
            ConsoleError::Table(_) => Exit::Config,
            ConsoleError::Listen { .. } => Exit::Failed,
        };
        Self(exit, Chain(&error).to_string())
    }
}
