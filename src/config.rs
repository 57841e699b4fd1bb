//! The configuration: compiled-in defaults, the operator's file, the environment; merged, then checked once.
//!
//! `config/default.toml` documents every key. A value is looked up by `Keys`, which notes each mistake with its key and
//! its place and goes on, so that an operator sees all of them at once. Whoever holds a [`Config`] checks nothing again.
//!
//! # Invariants
//!
//! * **All or nothing.** A [`Config`] exists only if nothing at all was wrong, unknown keys included.
//! * **Secrets are silent.** No problem, note or `Debug` contains a secret; malformed ones are not quoted either.
//! * **Read, not watched.** Loading has no effect and keeps nothing: to reload is to load again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

mod api;
mod channel;
mod daemon;
mod environment;
pub(crate) mod file;
mod files;
mod filter;
pub(crate) mod keys;
mod layers;
mod local;
mod problem;
pub(crate) mod secret;
mod sink;
mod text;
mod unknown;
pub(crate) mod values;
mod verification;

pub use api::Api;
pub use channel::{Channel, Start};
pub use daemon::{Admin, Log, LogFormat, LogLevel, State};
pub use files::Files;
pub use local::Local;
pub use problem::{ConfigError, Problem};
pub use secret::Secret;
pub use sink::Sink;
pub use text::Text;
pub use verification::{Ordering, UnsignedPolicy, Verification, VerificationFlags, verification_from_flags};

pub(crate) use layers::DEFAULTS;

use keys::{Key, Keys, Reported};

use crate::record::Format;

/// Everything that an operator decides, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[api]`: the service.
    pub api: Api,
    /// `[state]`: what is remembered.
    pub state: State,
    /// `[admin]`: health, metrics, status.
    pub admin: Admin,
    /// `[log]`: what is logged.
    pub log: Log,
    /// How long the work in hand may take after a signal to stop. Zero: none is waited for.
    pub shutdown_grace: Duration,
    /// `[channels.NAME]`, in the order of their names. At least one.
    pub channels: Vec<Channel>,
    /// `[sinks.NAME]`, those that no channel uses included.
    pub sinks: BTreeMap<String, Sink>,
    /// What an operator should know though nothing is wrong, a sentence each.
    pub notes: Vec<String>,
}

/// A configuration, and the files beside the operator's own that it was read from.
#[derive(Debug)]
pub struct Loaded {
    /// What they say.
    pub config: Config,
    /// Where secrets, certificates and keys came from.
    pub files: Files,
}

impl Config {
    /// Loads the defaults, `file` where there is one, and the environment.
    ///
    /// # Errors
    /// Every problem there is; where the file cannot be read at all, that one.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with(file, std::env::vars_os())
    }

    /// As [`load`](Self::load), with other variables than the process's.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        Self::of(&Text::read(file)?, variables).map(|loaded| loaded.config)
    }

    /// Checks the defaults, the operator's `text` and `variables`.
    ///
    /// # Errors
    /// Every problem there is; where the text is not TOML, that one.
    pub fn of(text: &Text, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Loaded, ConfigError> {
        let mut keys = layers::merge(text, variables)?;
        let config = Self::read(&mut keys);
        let files = keys.files();
        keys.finish(config).map(|config| Loaded { config, files })
    }

    fn read(keys: &mut Keys) -> Result<Self, Reported> {
        let api = Api::read(keys);
        let state = State::read(keys);
        let admin = Admin::read(keys);
        let log = Log::read(keys);
        let shutdown_grace = keys.required(&Key::new("shutdown_grace"), values::duration);
        let sink_names = keys.names(&Key::new("sinks")).unwrap_or_default();
        let channels = channel::read_all(keys, &sink_names);
        let sinks = sink::read_all(keys);
        let (channels, sinks) = (channels?, sinks?);
        check_raw_files(keys, &channels, &sinks);
        Ok(Self {
            api: api?,
            state: state?,
            admin: admin?,
            log: log?,
            shutdown_grace: shutdown_grace?,
            notes: unused(&channels, &sinks),
            channels,
            sinks,
        })
    }
}

/// The service's event does not say which channel it is of: after a crash nobody could tell whose lines a file holds.
fn check_raw_files(keys: &mut Keys, channels: &[Channel], sinks: &BTreeMap<String, Sink>) {
    let raw = |sink: &Sink| sink.shape.format == Format::Raw && sink.target.reads_back();
    for (name, _) in sinks.iter().filter(|(_, sink)| raw(sink)) {
        if channels.iter().filter(|channel| channel.sinks.contains(name)).count() > 1 {
            let message = "cannot be \"raw\" for a file of several channels, whose events could not be told apart; use \
                           \"json\", or a sink for each channel";
            keys.wrong(&Key::new("sinks").at(name).at("format"), message);
        }
    }
}

fn unused(channels: &[Channel], sinks: &BTreeMap<String, Sink>) -> Vec<String> {
    let used: BTreeSet<_> = channels.iter().flat_map(|channel| &channel.sinks).collect();
    let idle = sinks.keys().filter(|name| !used.contains(name));
    idle.map(|name| format!("sinks.{name}: no channel uses this sink")).collect()
}

#[cfg(test)]
mod tests;
