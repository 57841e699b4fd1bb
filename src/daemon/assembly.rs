//! Makes the parts that run from a checked configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{self, Client};
use crate::channel::{Channel, Outlet, Settings, SharedParts};
use crate::config::{self, Config, SinkSettings};
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

/// The configured sinks. Nothing is opened or sent yet. One whose settings have not changed is kept from `before`.
///
/// # Errors
/// If one cannot be made.
pub fn sinks(config: &Config, before: Option<(&Config, &Sinks)>) -> Result<Sinks, AssemblyError> {
    let kept = |name: &String, settings: &SinkSettings| {
        let (config, sinks) = before?;
        config.sinks.get(name).filter(|sink| sink.settings == *settings)?;
        sinks.get(name).map(|outlet| outlet.sink.clone())
    };
    let outlet = |(name, sink): (&String, &config::Sink)| {
        let failed = |source| AssemblyError::Sink { name: name.clone(), source };
        let built = kept(name, &sink.settings).map_or_else(|| sink.settings.build().map_err(failed), Ok)?;
        let outlet = Outlet {
            shape: sink.shape,
            filter: sink.filter.clone().map(Arc::new),
            gives_up_after: sink.give_up_after,
            ..Outlet::new(name, built, sink.retry)
        };
        Ok((name.clone(), outlet))
    };
    config.sinks.iter().map(outlet).collect()
}

/// The configured channels, each with its outlets.
#[must_use]
pub fn channels(config: &Config, client: &Client, sinks: &Sinks, parts: &SharedParts) -> Vec<Arc<Channel>> {
    let channel = |channel: &config::Channel| {
        let outlet = |name: &String| {
            let mut outlet = sinks.get(name)?.clone();
            if let Some(filter) = channel.filters.get(name) {
                outlet.filter = Some(Arc::new(filter.clone()));
            }
            Some(outlet)
        };
        let outlets = channel.sinks.iter().filter_map(outlet).collect();
        Arc::new(Channel::new(settings(config, channel), client.clone(), outlets, parts))
    };
    config.channels.iter().map(channel).collect()
}

fn settings(config: &Config, channel: &config::Channel) -> Settings {
    let api = &config.api;
    let verification = &channel.verification;
    Settings {
        channel: channel.channel.clone(),
        start: channel.start,
        verifier: Arc::new(verification.verifier.clone()),
        unsigned: verification.unsigned,
        ordering: verification.ordering,
        proof_timeout: verification.proof_timeout,
        page_limit: api.page_limit,
        retry: api.retry,
        idle_wait: api.idle_wait,
        grace: config.shutdown_grace,
    }
}
