//! The configuration: compiled-in defaults, the operator's files and the environment, merged and then checked once.
//!
//! `config/default.toml` documents every key. Each value is read through a `Section`. If a value is wrong, the section
//! records the mistake with the key and the origin of the value, and reading continues: an operator sees all mistakes at
//! once. A [`Config`] consists of types that other crates define, and needs no further check. Those crates do not depend
//! on this module.
//!
//! | module | contents |
//! |---|---|
//! | `sources` | the defaults, the operator's files, the environment, and the files and programs that they name |
//! | `reading` | reads the merged sources key by key, and records the keys and the mistakes |
//! | `tables` | one file for each table: reads its keys, and describes the settings for `channeld check` |
//! | `partial` | loads a part of the configuration, for commands that need only this part |
//! | `descriptors` | how many files and connections a configuration can need |
//! | `published` | the part that an instance publishes to the instances that share its state |
//! | `effective`, `settings_list` | the values in effect with their origins; how `channeld check` prints settings |
//! | `schema`, `edit` | the JSON Schema of a file; changes to the operator's files |
//!
//! # Invariants
//!
//! * **All or nothing.** A [`Config`] exists only if nothing was wrong, unknown keys included.
//! * **No secret is shown.** No problem, note or `Debug` output contains a secret. Malformed secrets are not quoted either.
//! * **Read, not watched.** Loading runs the programs that print secrets. It has no other side effects, and keeps no state or open
//!   files. To reload, load again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

mod descriptors;
mod edit;
mod effective;
mod key;
mod partial;
mod problem;
mod published;
mod reading;
mod schema;
pub mod settings_list;
mod sources;
mod tables;

pub use partial::LocalConfig;
pub use problem::{ConfigError, ConfigProblem, built_without, not_built_in};
pub use schema::schema;
pub use sources::environment::{FILE_VARIABLE, is_in_environment};
pub use sources::files::{ConfigText, Files};
pub use tables::account::{Account, Accounts};
pub use tables::api::Api;
pub use tables::channel::Channel;
pub use tables::discover::{ChannelPattern, Discover};
pub use tables::feed::Feed;
pub use tables::sink::{Sink, SinkSettings};

pub(crate) use edit::write_expect;
pub(crate) use effective::{Origin, Setting};
pub(crate) use partial::{load_both_backends, load_listen, load_service, load_verifier, verification_from_flags};
pub(crate) use reading::values::positive_duration;
pub(crate) use sources::DEFAULTS;
pub(crate) use sources::files::{read_named, read_secret};
pub(crate) use tables::discover::channel_name;

use reading::{Reader, Reported, Section, all, values};
use tables::feed::FeedUsage;
use tables::{account, daemon, discover, feed, sink, state};

use ::ledger::store::StateSettings;
use api::AccountName;
use operator::{Changes, Difference, SignerNames};
use proof::event::ChannelId;
use telemetry::Log;
use telemetry::trace::Otlp;

/// The answers of the feed can use this share of `limits.memory`: an eighth.
const FEED_SHARE: u64 = 8;

/// All settings of the operator, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[api]` and `[accounts.NAME]`: the organizations at the service. The default account is in `[api]`; it is absent if it
    /// has no API key and no channel uses it.
    pub accounts: Accounts,
    /// `[api]`: how the channels of all accounts are read.
    pub api: Api,
    /// `[state]` and `[cluster]`: where the state of the channels is stored.
    pub state: StateSettings,
    /// `admin.listen`: the address of the admin listener, which serves health, metrics and status. `None` if the
    /// listener is turned off.
    pub listen: Option<SocketAddr>,
    /// `admin.hosts`: the host names that requests to the admin listener may use.
    pub hosts: Vec<String>,
    /// `[log]`: the level and format of the log.
    pub log: Log,
    /// `[log]`: where traces are exported; `None` if traces are not exported.
    pub otlp: Option<Otlp>,
    /// `limits.memory`: the limit for pages, events being processed and queues, in bytes.
    pub memory: u64,
    /// How long the work in progress may take after a signal to stop. If this time is zero, channeld does not wait for
    /// the work.
    pub shutdown_grace: Duration,
    /// `[verification.signer_names]`: the displayed names of signers.
    pub signer_names: SignerNames,
    /// `[console.explorers]`: the address of the block explorer of each network, by its chain selector.
    pub explorers: BTreeMap<u64, String>,
    /// `[discover]`: the channels that are added while the daemon runs. `None` if none are added.
    pub discover: Option<Discover>,
    /// `[channels.NAME]` and the channels that `[discover]` has added, in the order of their names. At least one, unless
    /// `[discover]` can add some.
    pub channels: Vec<Channel>,
    /// `[sinks.NAME]`, including sinks that no channel uses.
    pub sinks: BTreeMap<String, Sink>,
    /// `[feed]`: the feed. `None` if the configuration has none.
    pub feed: Option<Feed>,
    /// Notes for the operator that are not mistakes, one sentence each.
    pub notes: Vec<String>,
}

/// A configuration and its sources.
pub struct Loaded {
    /// The operator's files.
    pub text: ConfigText,
    /// The settings from all sources.
    pub config: Config,
    /// The files with secrets, certificates and keys.
    pub files: Files,
}

impl Config {
    /// Loads the defaults, `file` if it is given, and the environment.
    ///
    /// # Errors
    /// Every problem that was found. If the file cannot be read, this is the only problem.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::of(ConfigText::read(file)?, std::env::vars_os()).map(|loaded| loaded.config)
    }

    /// Checks the defaults, the operator's `text` and `variables`.
    ///
    /// # Errors
    /// Every problem that was found. If the text is not TOML, this is the only problem.
    pub fn of(
        text: ConfigText,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Loaded, ConfigError> {
        let (config, reader) = Self::checked(&text, variables)?;
        Ok(Loaded { text, config, files: reader.files.take() })
    }

    /// Like [`load`](Self::load). Also returns each value in effect with its origin.
    pub(crate) fn load_with_settings(file: Option<&Path>) -> Result<(Self, Vec<Setting>), ConfigError> {
        Self::loaded_settings(&ConfigText::read(file)?, std::env::vars_os())
    }

    fn loaded_settings(
        text: &ConfigText,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Vec<Setting>), ConfigError> {
        let (config, reader) = Self::checked(text, variables)?;
        let mut settings = effective::settings(&reader);
        settings.extend(effective::of_discovered(&settings, &config.channels));
        Ok((config, settings))
    }

    fn checked(
        text: &ConfigText,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Reader), ConfigError> {
        let reader = Reader::open(text, variables)?;
        let config = Self::read(&Section::root(&reader));
        reader.note_unknown();
        let mut config = reader.finish(config, false)?;
        config.notes = reader.notes.take();
        let used = config.sinks_in_use();
        let idle = config.sinks.keys().filter(|name| !used.contains(*name));
        config.notes.extend(idle.map(|name| format!("sinks.{name}: no channel uses this sink")));
        let used = config.accounts_in_use();
        let idle = config.accounts.keys().filter(|name| !name.is_default() && !used.contains(name));
        config.notes.extend(idle.map(|name| format!("{name}: no channel uses this account")));
        Ok((config, reader))
    }

    fn read(root: &Section<'_>) -> Result<Self, Reported> {
        all!(Self {
            accounts: account::read_all(root),
            api: Api::read(&root.section("api")),
            state: state::read(root),
            listen: daemon::read_listen(root),
            hosts: daemon::read_hosts(root),
            log: daemon::read_log(root),
            otlp: daemon::read_otlp(root),
            memory: daemon::read_memory(root),
            shutdown_grace: root.required("shutdown_grace", values::duration),
            signer_names: tables::verification::signer_names(root),
            explorers: tables::console::explorers(root),
            discover: discover::read(root),
            channels: Ok(discover::read_channels(root, &discover, &state)),
            sinks: {
                let is_shared = state.as_ref().is_ok_and(|state| state.database.is_some());
                let mut users = channels.clone().unwrap_or_default();
                if let Ok(Some(Discover { template, .. })) = &discover {
                    // Any number of channels can be added, so the template counts as several.
                    users.extend([template.clone(), template.clone()]);
                }
                let usage = FeedUsage::read(root, channels.as_deref().unwrap_or_default());
                Ok(sink::read_all(root, &users, &usage, is_shared))
            },
            feed: {
                let none = BTreeMap::new();
                let (channels, sinks) = (channels.as_deref().unwrap_or_default(), sinks.as_ref().unwrap_or(&none));
                feed::read(root, channels, discover.as_ref().ok().and_then(Option::as_ref), sinks)
            },
            notes: Ok(Vec::new()),
        })
    }

    /// The configured channels, and the template of the channels that `[discover]` finds.
    fn channels_and_template(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter().chain(self.discover.as_ref().map(|discover| &discover.template))
    }

    /// The sinks that channels use.
    pub(crate) fn sinks_in_use(&self) -> BTreeSet<String> {
        self.channels_and_template().flat_map(|channel| channel.sinks.iter().cloned()).collect()
    }

    /// The accounts that channels use, or that find channels.
    pub(crate) fn accounts_in_use(&self) -> BTreeSet<AccountName> {
        self.channels_and_template().map(|channel| channel.account.clone()).collect()
    }

    /// The account of a channel. A channel that is not configured belongs to the default account.
    pub(crate) fn account_of(&self, channel: ChannelId) -> AccountName {
        let configured = self.channels.iter().find(|configured| configured.channel.id == channel);
        configured.map_or_else(AccountName::default, |configured| configured.account.clone())
    }

    /// The names of the accounts that differ in another configuration. `[api]` is the default account.
    fn changed_accounts(&self, after: &Self) -> BTreeSet<AccountName> {
        let names = self.accounts.keys().chain(after.accounts.keys());
        let changed = names.filter(|name| self.accounts.get(*name) != after.accounts.get(*name)).cloned();
        changed.chain((self.api != after.api).then(AccountName::default)).collect()
    }

    /// The part of `limits.memory` that the answers of the feed can use, in bytes.
    pub(crate) fn feed_memory(&self) -> u64 {
        self.feed.as_ref().map_or(0, |_| self.memory / FEED_SHARE)
    }

    /// Returns the differences to another configuration.
    pub fn changes_to(&self, after: &Self) -> Changes {
        fn channels(config: &Config) -> BTreeMap<String, &Channel> {
            config.channels.iter().map(|channel| (channel.channel.name.to_string(), channel)).collect()
        }
        let others = [
            ("discover", self.discover != after.discover),
            ("feed", self.feed != after.feed),
            ("limits", self.memory != after.memory),
            ("log", (&self.log, &self.otlp) != (&after.log, &after.otlp)),
            ("shutdown_grace", self.shutdown_grace != after.shutdown_grace),
        ];
        let others = others.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name.to_owned());
        Changes {
            channels: difference(&channels(self), &channels(after)),
            sinks: difference(&self.sinks, &after.sinks),
            others: self.changed_accounts(after).iter().map(ToString::to_string).chain(others).collect(),
            ..Changes::default()
        }
    }
}

fn difference<T: PartialEq>(before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) -> Difference {
    let missing = |of: &BTreeMap<String, T>, other: &BTreeMap<String, T>| {
        of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
    };
    let has_changed = |name: &&String| before.get(*name).is_some_and(|one| after.get(*name) != Some(one));
    Difference {
        added: missing(after, before),
        removed: missing(before, after),
        changed: after.keys().filter(has_changed).cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
