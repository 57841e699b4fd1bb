//! What the state of this machine is of: all that a command on it needs, and nothing that is secret.

use std::path::Path;

use super::channel::{self, Channel};
use super::daemon::{Log, State};
use super::keys::{Key, Keys, Reported};
use super::layers;
use super::problem::ConfigError;
use super::text::Text;

/// A part of the configuration. No secret of it is read: while the daemon does not run, its secrets may not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// `[state]`: where it is.
    pub state: State,
    /// `[log]`: what is logged. Without traces.
    pub log: Log,
    /// `[channels.NAME]`, in the order of their names.
    pub channels: Vec<Channel>,
}

impl Local {
    /// Loads this part alone, as [`Config::load`](super::Config::load) loads all of it: what is wrong elsewhere is no
    /// error.
    ///
    /// # Errors
    /// What is wrong with it; where the file cannot be read at all, that.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut keys = layers::merge(&Text::read(file)?, std::env::vars_os())?;
        let local = Self::read(&mut keys);
        keys.settle(local)
    }

    fn read(keys: &mut Keys) -> Result<Self, Reported> {
        let (state, log) = (State::read(keys), Log::read_lines(keys));
        let sinks = keys.names(&Key::new("sinks")).unwrap_or_default();
        let channels = channel::read_all(keys, &sinks);
        Ok(Self { state: state?, log: log?, channels: channels? })
    }
}
