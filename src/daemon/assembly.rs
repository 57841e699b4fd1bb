//! Makes the parts that run from a checked configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{self, Client};
use crate::channel::{Channel, Outlet, Settings, SharedParts};
use crate::config::{self, Config};
use crate::sink::SinkError;

/// A valid configuration that cannot be used on this machine.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The client of the service.
    #[error("the client of the service could not be set up")]
    Client(#[from] api::SettingsError),
    /// A sink.
    #[error("sink {name} could not be set up")]
    Sink {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: SinkError,
    },
}

/// The configured sinks, by name.
pub type Sinks = BTreeMap<String, Outlet>;

/// The client of the configured service.
///
/// # Errors
/// If TLS or HTTP cannot be set up.
pub fn client(config: &Config) -> Result<Client, AssemblyError> {
    Ok(Client::new(config.api.client.clone())?)
}

/// The configured sinks and channels. Nothing is opened or sent yet. A sink whose settings have not changed is kept from
/// `before`.
pub(super) fn assemble(
    config: &Config,
    before: Option<(&Config, &Sinks)>,
    parts: &SharedParts,
) -> Result<(Sinks, Vec<Arc<Channel>>), AssemblyError> {
    let client = client(config)?;
    let mut sinks = Sinks::new();
    for (name, config::Sink { settings, retry, give_up_after, shape, filter }) in &config.sinks {
        let unchanged = |config: &Config| config.sinks.get(name).is_some_and(|before| before.settings == *settings);
        let kept = before.filter(|(config, _)| unchanged(config)).and_then(|(_, sinks)| sinks.get(name));
        let sink = match kept {
            Some(outlet) => outlet.sink.clone(),
            None => settings.build().map_err(|source| AssemblyError::Sink { name: name.clone(), source })?,
        };
        let (shape, filter) = (*shape, filter.clone().map(Arc::new));
        let outlet = Outlet { shape, filter, gives_up_after: *give_up_after, ..Outlet::new(name, sink, *retry) };
        sinks.insert(name.clone(), outlet);
    }
    let channels = channels(config, &client, &sinks, parts);
    Ok((sinks, channels))
}

/// The configured channels, each with its outlets.
#[must_use]
pub fn channels(config: &Config, client: &Client, sinks: &Sinks, parts: &SharedParts) -> Vec<Arc<Channel>> {
    let channel = |configured: &config::Channel| {
        let outlet = |name: &String| {
            let outlet = sinks.get(name)?.clone();
            let filter = configured.filters.get(name).cloned().map(Arc::new).or(outlet.filter);
            Some(Outlet { filter, ..outlet })
        };
        let settings = settings(config, configured);
        let outlets = configured.sinks.iter().filter_map(outlet).collect();
        Arc::new(Channel::new(settings, client.clone(), outlets, parts))
    };
    config.channels.iter().map(channel).collect()
}

fn settings(config: &Config, channel: &config::Channel) -> Settings {
    let api = &config.api;
    Settings {
        channel: channel.channel.clone(),
        start: channel.start,
        verification: channel.verification.clone(),
        page_limit: api.page_limit,
        retry: api.retry,
        idle_wait: api.idle_wait,
        grace: config.shutdown_grace,
    }
}
