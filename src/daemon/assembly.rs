//! Builds the running parts from a checked configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::config::{self, Config};
use api::{AccountName, Client};
use channel::{Channel, LaneSettings, Settings, SharedParts};
use cluster::Peers;
use operator::{ApiKeys, Discovery, Operations, Process, Reloads};
use sink::{OpenFiles, Sink, SinkError};
use telemetry::metrics::Metrics;

mod feed;

pub(super) use self::feed::feed_after;
pub(crate) use self::feed::{FeedService, feed_cannot_listen, serve_feed};

/// The part of the memory limit that is reserved for the tasks of a channel and the buffers of its connections. Pages
/// and events are not included. This is the largest measured use, with every kind of failure at once: 90 MiB for 999
/// channels.
const CHANNEL_BYTES: u64 = 92 << 10;

/// Why the daemon could not start, or why a new configuration was rejected.
pub(crate) type StartError = Box<dyn std::error::Error + Send + Sync>;

/// A valid configuration that cannot be used on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct AssemblyError {
    pub(super) what: String,
    pub(super) source: StartError,
}

/// The configured sinks, by name.
pub(crate) type Sinks = BTreeMap<String, LaneSettings>;

/// The clients of the accounts.
pub(crate) type Clients = BTreeMap<AccountName, Client>;

/// Returns the clients of the accounts that channels use.
pub(crate) fn clients(config: &Config) -> Result<Clients, AssemblyError> {
    clients_of(config, &config.accounts_in_use(), &Clients::new())
}

/// Returns the client of one account.
pub(crate) fn client_of(config: &Config, account: &AccountName) -> Result<Client, AssemblyError> {
    let mut clients = clients_of(config, &BTreeSet::from([account.clone()]), &Clients::new())?;
    clients.remove(account).ok_or_else(|| AssemblyError {
        what: "the client for the service could not be created".to_owned(),
        source: format!("{account}.api_key is missing").into(),
    })
}

/// Returns the clients of these accounts. A client in `before` is kept if its settings have not changed. Clients share
/// connections if their settings allow it.
fn clients_of(config: &Config, wanted: &BTreeSet<AccountName>, before: &Clients) -> Result<Clients, AssemblyError> {
    let mut clients = Clients::new();
    for (name, account) in config.accounts.iter().filter(|(name, _)| wanted.contains(name)) {
        let settings = account.client.clone();
        let kept = before.get(name).filter(|client| client.has(&settings)).cloned();
        let other = clients.values().find(|other| other.suits(&settings));
        let client = match (kept, other) {
            (Some(kept), _) => Ok(kept),
            (None, Some(other)) => other.beside(settings),
            (None, None) => Client::new(settings),
        };
        let client = client.map_err(|error| AssemblyError {
            what: format!("the client for the service could not be created from {name}"),
            source: error.into(),
        })?;
        clients.insert(name.clone(), client);
    }
    Ok(clients)
}

/// Returns the operations of this process. `reloads` receives the requests to read the configuration again.
pub(crate) fn operations(
    config: &Config,
    clients: &Clients,
    parts: &SharedParts,
    reloads: Reloads,
    discovery: watch::Receiver<Discovery>,
    cluster: Option<Peers>,
) -> Operations {
    let process = Process { pid: std::process::id(), started: Timestamp::now(), log_lines_lost: 0 };
    Operations {
        version: crate::version::text(),
        ledgers: parts.ledgers.clone(),
        handles: parts.handles.clone(),
        recent: parts.recent.clone(),
        daemon: Some((process, reloads)),
        log: None,
        api_keys: api_keys(config, clients),
        discovery: Some(discovery),
        feed: None,
        rejected_config: None,
        cluster,
        channels: config.channels.iter().map(config::Channel::for_operator).collect(),
    }
}

/// Returns the API keys that the status shows.
pub(super) fn api_keys(config: &Config, clients: &Clients) -> Vec<ApiKeys> {
    let of_account = |(account, client): (&AccountName, &Client)| {
        let expires = config.accounts.get(account).and_then(|account| account.key_expires);
        ApiKeys { account: account.clone(), keys: client.keys().clone(), expires }
    };
    clients.iter().map(of_account).collect()
}

/// Returns the clients, and the configured sinks and channels. Nothing is opened or sent yet. A sink whose settings have not
/// changed is kept from `before`. If the settings of a client have not changed, the client is kept, and its refused keys
/// are tried again. The channels share the memory and the space for recent proofs.
pub(super) fn assemble(
    config: &Config,
    before: Option<(&Config, &Clients, &Sinks)>,
    parts: &SharedParts,
) -> Result<(Clients, Sinks, Vec<Arc<Channel>>), AssemblyError> {
    let (none, in_use) = (Clients::new(), config.accounts_in_use());
    let known = before.map_or(&none, |(_, clients, _)| clients);
    let clients = clients_of(config, &in_use, known)?;
    let mut sinks = Sinks::new();
    for (name, configured) in &config.sinks {
        let settings = &configured.settings;
        let unchanged = |config: &Config| config.sinks.get(name).is_some_and(|before| before.settings == *settings);
        let kept = before.filter(|(config, ..)| unchanged(config)).and_then(|(.., sinks)| sinks.get(name));
        let sink = match kept {
            Some(lane_settings) => lane_settings.sink.clone(),
            None => settings.build(name, &parts.open_files, &parts.metrics).map_err(|error| AssemblyError {
                what: format!("sink {name} could not be created"),
                source: error.into(),
            })?,
        };
        sinks.insert(name.clone(), lane_settings(name, configured, sink));
    }
    let channels = channels(config, &clients, &sinks, parts);
    parts.recent.share_among(channels.len());
    let memory = config.memory - config.feed_memory();
    parts.handles.memory.share_among(memory_for_events(memory, channels.len()), channels.len());
    for (account, client) in &clients {
        let turns = parts.handles.turns.of(account);
        turns.limit(config.accounts.get(account).and_then(|account| account.rate));
        turns.first_pause(config.api.retry.wait);
        if known.get(account).is_some_and(|known| known != client) {
            turns.forget_refusals();
        }
        client.keys().forget_refusals();
    }
    parts.handles.turns.keep(&in_use);
    Ok((clients, sinks, channels))
}

/// Returns the part of the memory limit that pages and events can use: what the channels themselves leave, but at least half.
fn memory_for_events(limit: u64, channels: usize) -> u64 {
    limit - (CHANNEL_BYTES * channels as u64).min(limit / 2)
}

/// Returns the lane settings of a sink, before a channel's own filter is applied (see [`filtered`]).
fn lane_settings(name: &str, configured: &config::Sink, sink: Arc<dyn Sink>) -> LaneSettings {
    let config::Sink { retry, give_up_after, shape, filter, .. } = configured;
    let (shape, filter) = (shape.clone(), filter.clone().map(Arc::new));
    LaneSettings { shape, filter, gives_up_after: *give_up_after, ..LaneSettings::new(name, sink, *retry) }
}

/// Builds a sink separately from the daemon, and returns its lane settings for one channel.
pub(crate) fn lane_settings_of(
    config: &Config,
    channel: &config::Channel,
    name: &str,
) -> Result<LaneSettings, SinkError> {
    let configured = &config.sinks[name];
    let sink = configured.settings.build(name, &OpenFiles::default(), &Metrics::default())?;
    Ok(filtered(channel, lane_settings(name, configured, sink)))
}

/// Applies the channel's own filter, if the channel has one for the sink.
fn filtered(channel: &config::Channel, lane_settings: LaneSettings) -> LaneSettings {
    let filter = channel.filters.get(&*lane_settings.name).cloned().map(Arc::new).or(lane_settings.filter);
    LaneSettings { filter, ..lane_settings }
}

/// Returns the configured channels, each with its lanes.
pub(crate) fn channels(config: &Config, clients: &Clients, sinks: &Sinks, parts: &SharedParts) -> Vec<Arc<Channel>> {
    let channel = |configured: &config::Channel| {
        let settings = settings(config, configured);
        let lanes = configured.sinks.iter().filter_map(|name| Some(filtered(configured, sinks.get(name)?.clone())));
        let lanes = lanes.collect();
        Some(Arc::new(Channel::new(settings, clients.get(&configured.account)?.clone(), lanes, parts)))
    };
    config.channels.iter().filter_map(channel).collect()
}

/// Returns the settings for reading a configured channel.
pub(crate) fn settings(config: &Config, channel: &config::Channel) -> Settings {
    let api = &config.api;
    Settings {
        channel: channel.channel.clone(),
        start: channel.start,
        verification: channel.verification.clone(),
        page_limit: api.page_limit,
        retry: api.retry,
        idle_wait: api.idle_wait,
        settle: channel.settle,
        compare: channel.compare,
        grace: config.shutdown_grace,
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the resources that all channels share.

    use std::fmt::Write;

    use super::*;
    use crate::config::ConfigText;
    use crate::daemon::open_ledgers;
    use ledger::store::StateSettings;
    use ledger::{PROOFS, PROOFS_OF_A_CHANNEL};
    use telemetry::metrics::Metrics;
    use telemetry::trace::Traces;

    const SHARED: &str = "api.base_url = \"http://127.0.0.1:1\"\napi.api_key = \"k\"\nverification.org_id = \"o\"\n\
                          sinks.s.type = \"stdout\"\n";

    fn config(directory: &std::path::Path, channels: usize) -> Config {
        let mut text = SHARED.to_owned();
        for channel in 0..channels {
            let id = uuid::Uuid::from_u128(channel as u128);
            writeln!(text, "channels.c{channel} = {{ id = \"{id}\", sinks = [\"s\"] }}").unwrap();
        }
        load(directory, text)
    }

    /// A hundred accounts, each with a key and a channel.
    fn hundred_accounts() -> String {
        let mut text = SHARED.to_owned();
        for number in 0..100 {
            let (id, name) = (uuid::Uuid::from_u128(number), format!("a{number}"));
            writeln!(text, "channels.c{number} = {{ id = \"{id}\", sinks = [\"s\"], account = \"{name}\" }}").unwrap();
            writeln!(text, "accounts.{name} = {{ api_key = \"key-{number}.\", requests_per_second = 9 }}").unwrap();
        }
        text
    }

    fn load(directory: &std::path::Path, text: String) -> Config {
        let file = directory.join("channeld.toml");
        std::fs::write(&file, text).unwrap();
        Config::of(ConfigText::read(Some(&file)).unwrap(), []).unwrap_or_else(|problems| panic!("{problems}")).config
    }

    #[test]
    fn channels_reserve_their_own_memory_but_at_most_half_of_the_limit() {
        const MEBIBYTE: u64 = 1 << 20;
        assert_eq!(memory_for_events(192 * MEBIBYTE, 0), 192 * MEBIBYTE);
        let beside_a_thousand = memory_for_events(192 * MEBIBYTE, 1_000);
        assert_eq!(beside_a_thousand, 192 * MEBIBYTE - 1_000 * 92 * 1_024, "the reserve is not cut off");
        assert_eq!(memory_for_events(192 * MEBIBYTE, 100_000), 96 * MEBIBYTE);
    }

    #[tokio::test]
    async fn a_reload_replaces_only_the_client_of_the_account_that_changed() {
        let directory = tempfile::tempdir().unwrap();
        let ledgers = Arc::new(
            open_ledgers(StateSettings { path: directory.path().join("state"), database: None }).await.unwrap(),
        );
        let parts = SharedParts::new(ledgers, Arc::default(), Metrics::default(), Traces::default());
        let text = hundred_accounts();
        let before = load(directory.path(), text.clone());
        let (clients, sinks, channels) = assemble(&before, None, &parts).unwrap();
        assert_eq!((clients.len(), channels.len()), (100, 100), "the default account is not used");
        let shares =
            |client: &Client| clients.values().all(|other| other.suits(&before.accounts[client.account()].client));
        assert!(clients.values().all(shares), "the accounts share their connections");

        let after = load(directory.path(), text.replace("key-7.", "another-key"));
        let (changed, ..) = assemble(&after, Some((&before, &clients, &sinks)), &parts).unwrap();
        let is_kept = |name: &AccountName| Arc::ptr_eq(clients[name].keys(), changed[name].keys());
        let replaced: Vec<_> = changed.keys().filter(|name| !is_kept(name)).map(ToString::to_string).collect();
        assert_eq!(replaced, ["accounts.a7"]);
    }

    #[tokio::test]
    async fn channels_share_the_space_for_recent_proofs_and_each_has_a_minimum() {
        let directory = tempfile::tempdir().unwrap();
        let ledgers = Arc::new(
            open_ledgers(StateSettings { path: directory.path().join("state"), database: None }).await.unwrap(),
        );
        let parts = SharedParts::new(ledgers, Arc::default(), Metrics::default(), Traces::default());
        for (channels, each) in [(1, PROOFS), (4, PROOFS / 4), (200, PROOFS_OF_A_CHANNEL)] {
            assemble(&config(directory.path(), channels), None, &parts).unwrap();
            assert_eq!(parts.recent.proofs_each(), each, "{channels} channels");
        }
    }
}
