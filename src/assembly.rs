//! From a checked configuration to the parts that run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{self, Client};
use crate::channel::{Channel, Handles, Outlet, RecentEvents, Settings};
use crate::config::{self, Config, Target};
use crate::retry::RetryPolicy;
use crate::sink::{File, SinkError, Stdout, Webhook, WebhookSettings};
use crate::state::State;

/// Waits of a sink that has no schedule of its own in the configuration.
const SINK_RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

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

/// The configured sinks. Nothing is opened or sent yet.
///
/// # Errors
/// If one cannot be made.
pub fn sinks(config: &Config) -> Result<Sinks, AssemblyError> {
    let sink = |(name, sink): (&String, &config::Sink)| {
        let failed = |source| AssemblyError::Sink { name: name.clone(), source };
        let outlet = match &sink.target {
            Target::Stdout => Outlet::new(name, Arc::new(Stdout::new().map_err(failed)?), SINK_RETRY),
            Target::File(file) => Outlet::new(name, Arc::new(File::new(file.clone())), SINK_RETRY),
            Target::Webhook(settings) => {
                let retry = RetryPolicy { wait: settings.retry_wait, max_wait: settings.retry_wait_max };
                let outlet = Outlet::new(name, Arc::new(webhook(settings).map_err(failed)?), retry);
                Outlet { gives_up_after: settings.give_up_after, ..outlet }
            }
        };
        let (shape, filter) = (sink.shape, sink.filter.clone().map(Arc::new));
        Ok((name.clone(), Outlet { shape, filter, ..outlet }))
    };
    config.sinks.iter().map(sink).collect()
}

fn webhook(settings: &config::Webhook) -> Result<Webhook, SinkError> {
    Webhook::new(WebhookSettings {
        url: settings.url.clone(),
        keys: settings.keys.clone(),
        headers: settings.headers.clone(),
        connection: settings.connection.clone(),
        timeout: settings.timeout,
        dispatch: settings.dispatch,
    })
}

/// The configured channels, each with its outlets. `state` and `recent` are the process's own: they stay when the
/// configuration is read again.
#[must_use]
pub fn channels(
    config: &Config,
    client: &Client,
    sinks: &Sinks,
    state: &Arc<State>,
    recent: &Arc<RecentEvents>,
    handles: &Handles,
) -> Vec<Channel> {
    let channel = |channel: &config::Channel| {
        let outlet = |name: &String| {
            let mut outlet = sinks.get(name)?.clone();
            if let Some(filter) = channel.filters.get(name) {
                outlet.filter = Some(Arc::new(filter.clone()));
            }
            Some(outlet)
        };
        let outlets = channel.sinks.iter().filter_map(outlet).collect();
        Channel::new(
            settings(&config.api, channel),
            client.clone(),
            state.clone(),
            recent.clone(),
            outlets,
            handles.of(channel.channel.id),
        )
    };
    config.channels.iter().map(channel).collect()
}

fn settings(api: &config::Api, channel: &config::Channel) -> Settings {
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
    }
}
