//! From a checked configuration to the parts that run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{self, Client};
use crate::channel::{Channel, Lasting, Outlet, Settings};
use crate::config::{self, Config};
use crate::retry::RetryPolicy;
use crate::sink::SinkError;

/// A configuration that is right in itself, but not on this machine.
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
pub fn client(api: &config::Api) -> Result<Client, AssemblyError> {
    Ok(Client::new(api::Settings {
        base_url: api.base_url.clone(),
        api_key: api.api_key.expose().to_owned(),
        connect_timeout: api.connect_timeout,
        request_timeout: api.request_timeout,
    })?)
}

/// The configured sinks. Nothing is opened or sent yet. One that is no different from before is the one of before.
///
/// # Errors
/// If one cannot be made.
pub fn sinks(config: &Config, before: Option<(&Config, &Sinks)>) -> Result<Sinks, AssemblyError> {
    let unchanged = |name: &String, sink: &config::Sink| {
        let (config, sinks) = before?;
        let same = config.sinks.get(name).is_some_and(|before| *before.target == *sink.target);
        same.then(|| sinks.get(name))?.map(|outlet| outlet.sink.clone())
    };
    let sink = |(name, sink): (&String, &config::Sink)| {
        let built = match unchanged(name, sink) {
            Some(built) => built,
            None => sink.target.build().map_err(|source| AssemblyError::Sink { name: name.clone(), source })?,
        };
        let outlet = Outlet {
            shape: sink.shape,
            filter: sink.filter.clone().map(Arc::new),
            gives_up_after: sink.target.gives_up_after(),
            ..Outlet::new(name, built, sink.target.retry())
        };
        Ok((name.clone(), outlet))
    };
    config.sinks.iter().map(sink).collect()
}

/// The configured channels, each with its outlets.
#[must_use]
pub fn channels(config: &Config, client: &Client, sinks: &Sinks, lasting: &Lasting) -> Vec<Arc<Channel>> {
    let channel = |channel: &config::Channel| {
        let outlet = |name: &String| {
            let mut outlet = sinks.get(name)?.clone();
            if let Some(filter) = channel.filters.get(name) {
                outlet.filter = Some(Arc::new(filter.clone()));
            }
            Some(outlet)
        };
        let outlets = channel.sinks.iter().filter_map(outlet).collect();
        Arc::new(Channel::new(settings(config, channel), client.clone(), outlets, lasting))
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
        retry: RetryPolicy { wait: api.retry_wait, max_wait: api.retry_wait_max },
        idle_wait: api.idle_wait,
        grace: config.shutdown_grace,
    }
}
