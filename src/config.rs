//! The configuration: compiled-in defaults, the operator's file and the environment, merged and then checked once.
//!
//! `config/default.toml` documents every key. Each value is read through a `Section`, which records a mistake with its
//! key and origin and continues, so an operator sees all mistakes at once. The result consists of the settings types of
//! the modules below, and none of these modules reads this one. A [`Config`] needs no further check.
//!
//! | module | contents |
//! |---|---|
//! | `sources` | the defaults, the operator's file, the environment, and the files that they name |
//! | `reading` | reads the merged sources key by key, and records the keys and the mistakes |
//! | `tables` | one file for each table: reads its keys, and describes the settings for `channeld check` |
//! | `parts` | loads a part of the configuration, for commands that need no more |
//! | `effective`, `shown` | the values in effect with their origins; the settings that follow from them |
//! | `schema`, `edit` | the JSON Schema of the file; changes to the operator's file |
//!
//! # Invariants
//!
//! * **All or nothing.** A [`Config`] exists only if nothing was wrong, unknown keys included.
//! * **Secrets are silent.** No problem, note or `Debug` output contains a secret. Malformed secrets are not quoted either.
//! * **Read, not watched.** Loading has no effect and keeps nothing. To reload, load again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

mod built_in;
mod edit;
mod effective;
mod key;
mod parts;
mod problem;
mod reading;
mod schema;
pub mod shown;
mod sources;
mod tables;

#[cfg(not(feature = "console"))]
pub(crate) use built_in::no_console;
pub use built_in::not_built_in;
pub use edit::{EditError, write_expect};
pub use effective::{Origin, Setting};
pub use parts::{Local, load_both_backends, load_listen, load_verifier, verification_from_flags};
pub use problem::{ConfigError, Problem};
pub use schema::schema;
pub use sources::environment::FILE_VARIABLE;
pub use sources::files::Files;
pub use sources::text::Text;
pub use tables::api::Api;
pub use tables::channel::Channel;
pub use tables::sink::{Sink, SinkSettings};

pub(crate) use reading::values::positive_duration;
pub(crate) use sources::layer::DEFAULTS;

use reading::{Reader, Reported, Section, values};
use tables::{channel, daemon, sink, state};

use ::ledger::store::StateSettings;
use operator::{Changes, Difference, SignerNames};
use telemetry::Log;
use telemetry::trace::Otlp;

/// All settings of the operator, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[api]`: the service.
    pub api: Api,
    /// `[state]` and `[cluster]`: where the state of the channels is stored.
    pub state: StateSettings,
    /// `admin.listen`: the address for health, metrics and status; `None` if they are turned off.
    pub listen: Option<SocketAddr>,
    /// `admin.hosts`: the host names that requests to this address may use.
    pub hosts: Vec<String>,
    /// `[log]`: the level and format of the log.
    pub log: Log,
    /// `[log]`: where traces are exported; `None` if they are not exported.
    pub otlp: Option<Otlp>,
    /// `limits.memory`: the limit for pages, events being processed and queues, in bytes.
    pub memory: u64,
    /// How long the work in progress may take after a signal to stop. Zero: channeld does not wait.
    pub shutdown_grace: Duration,
    /// `[verification.signer_names]`: the displayed names of signers.
    pub signer_names: SignerNames,
    /// `[channels.NAME]`, in the order of their names. At least one.
    pub channels: Vec<Channel>,
    /// `[sinks.NAME]`, including sinks that no channel uses.
    pub sinks: BTreeMap<String, Sink>,
    /// Notes for the operator that are not mistakes, one sentence each.
    pub notes: Vec<String>,
}

/// A configuration and its sources.
pub struct Loaded {
    /// The operator's file.
    pub text: Text,
    /// The settings from all sources.
    pub config: Config,
    /// The files with secrets, certificates and keys.
    pub files: Files,
}

impl Config {
    /// Loads the defaults, `file` if it is given, and the environment.
    ///
    /// # Errors
    /// Every problem. If the file cannot be read, only that problem.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::of(Text::read(file)?, std::env::vars_os()).map(|loaded| loaded.config)
    }

    /// Checks the defaults, the operator's `text` and `variables`.
    ///
    /// # Errors
    /// Every problem. If the text is not TOML, only that problem.
    pub fn of(text: Text, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Loaded, ConfigError> {
        Self::examined(text, variables, |_, _| ()).map(|(loaded, ())| loaded)
    }

    /// Like [`load`](Self::load). Also returns each value in effect with its origin.
    ///
    /// # Errors
    /// Like [`load`](Self::load).
    pub fn load_with_settings(file: Option<&Path>) -> Result<(Self, Vec<Setting>), ConfigError> {
        let found = Self::examined(Text::read(file)?, std::env::vars_os(), effective::settings);
        found.map(|(loaded, settings)| (loaded.config, settings))
    }

    /// Checks the configuration, and also returns the result of `examine`.
    fn examined<T>(
        text: Text,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        examine: impl FnOnce(&Reader, &Text) -> T,
    ) -> Result<(Loaded, T), ConfigError> {
        let reader = Reader::open(&text, variables)?;
        let config = Self::read(&Section::root(&reader));
        reader.note_unknown();
        let (files, mut notes) = (reader.files.take(), reader.notes.take());
        let found = examine(&reader, &text);
        let mut config = reader.finish(config).map_err(|error| text.locate(error))?;
        notes.extend(unused(&config.channels, &config.sinks));
        config.notes = notes;
        Ok((Loaded { text, config, files }, found))
    }

    fn read(root: &Section<'_>) -> Result<Self, Reported> {
        let api = Api::read(&root.section("api"));
        let (state, listen) = (state::read(root), daemon::read_listen(root));
        let hosts = daemon::read_hosts(root);
        let (log, otlp) = (daemon::read_log(root), daemon::read_otlp(root));
        let memory = daemon::read_memory(root);
        let shutdown_grace = root.required("shutdown_grace", values::duration);
        let signer_names = tables::verification::signer_names(root);
        let channels = channel::read_all(root);
        let sinks = sink::read_all(&root.section("sinks"));
        sink::shape::check_raw(&root.section("sinks"), &channels, &sinks);
        sink::shape::try_templates(&root.section("sinks"), &channels, &sinks);
        state::check_sinks(root, state.as_ref().ok(), &sinks);
        Ok(Self {
            api: api?,
            state: state?,
            listen: listen?,
            hosts: hosts?,
            log: log?,
            otlp: otlp?,
            memory: memory?,
            shutdown_grace: shutdown_grace?,
            signer_names: signer_names?,
            channels,
            sinks,
            notes: Vec::new(),
        })
    }

    /// Returns the differences to another configuration.
    pub fn changes_to(&self, after: &Self) -> Changes {
        fn channels(config: &Config) -> BTreeMap<String, &Channel> {
            config.channels.iter().map(|channel| (channel.channel.name.to_string(), channel)).collect()
        }
        let others = [
            ("api", self.api != after.api),
            ("log", self.log != after.log),
            ("shutdown_grace", self.shutdown_grace != after.shutdown_grace),
        ];
        Changes {
            channels: difference(&channels(self), &channels(after)),
            sinks: difference(&self.sinks, &after.sinks),
            others: others.iter().filter(|(_, changed)| *changed).map(|(name, _)| (*name).to_owned()).collect(),
            warnings: Vec::new(),
        }
    }
}

fn unused(channels: &[Channel], sinks: &BTreeMap<String, Sink>) -> Vec<String> {
    let used: BTreeSet<_> = channels.iter().flat_map(|channel| &channel.sinks).collect();
    let idle = sinks.keys().filter(|name| !used.contains(name));
    idle.map(|name| format!("sinks.{name}: no channel uses this sink")).collect()
}

fn difference<T: PartialEq>(before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) -> Difference {
    let missing_in = |those: &BTreeMap<String, T>, these: &BTreeMap<String, T>| {
        these.keys().filter(|name| !those.contains_key(*name)).cloned().collect()
    };
    let changed = after.iter().filter(|(name, one)| before.get(*name).is_some_and(|other| other != *one));
    Difference {
        added: missing_in(before, after),
        removed: missing_in(after, before),
        changed: changed.map(|(name, _)| name.clone()).collect(),
    }
}

#[cfg(test)]
mod tests;
