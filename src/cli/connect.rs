//! What commands that read the service need: the client, the channels and their verifiers.

use std::path::Path;
use std::sync::Arc;

use super::exit::Failure;
use crate::api::Client;
use crate::config::{self, Config};
use crate::daemon::assembly;
use crate::record::ChannelRef;
use crate::telemetry::Chain;
use crate::verify::Verifier;

/// The service and the channels of a configuration.
#[derive(Debug)]
pub struct Connection {
    /// The client of the service.
    pub client: Client,
    /// The configured channels.
    pub channels: Channels,
}

impl Connection {
    /// Reads the configuration. Nothing is asked of the service yet.
    ///
    /// # Errors
    /// [`Failure::Config`], where it is wrong.
    pub fn open(file: Option<&Path>) -> Result<Self, Failure> {
        Self::of(&load(file)?)
    }

    /// By a configuration that has been read.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let client = assembly::client(config).map_err(|error| Failure::Config(Chain(&error).to_string()))?;
        Ok(Self { client, channels: Channels::of(config) })
    }
}

/// The configured channels in the order of their names, and how the events of each are verified.
#[derive(Clone, Debug)]
pub struct Channels(Vec<(ChannelRef, Verifier)>);

impl Channels {
    /// Reads the configuration for its channels alone.
    ///
    /// # Errors
    /// [`Failure::Config`], where it is wrong.
    pub fn open(file: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self::of(&load(file)?))
    }

    fn of(config: &Config) -> Self {
        let each = |channel: &config::Channel| (channel.channel.clone(), channel.verification.verifier.clone());
        Self(config.channels.iter().map(each).collect())
    }

    /// The channel of that configured name or, failing that, of that id. A channel that is not configured goes by its
    /// id, and is verified as all that are configured.
    ///
    /// # Errors
    /// [`Failure::Usage`], where it is neither, or the configured ones are verified in different ways.
    pub fn channel(&self, name_or_id: &str) -> Result<(ChannelRef, &Verifier), Failure> {
        if let Some((channel, verifier)) = self.0.iter().find(|(channel, _)| &*channel.name == name_or_id) {
            return Ok((channel.clone(), verifier));
        }
        let id = name_or_id.parse().map_err(|_| {
            Failure::Usage(format!("`{name_or_id}` is neither a configured channel{} nor a UUID", self.names()))
        })?;
        if let Some((channel, verifier)) = self.0.iter().find(|(channel, _)| channel.id == id) {
            return Ok((channel.clone(), verifier));
        }
        let verifier = self.common().ok_or_else(|| {
            Failure::Usage(format!(
                "the channel {id} is not configured, and those that are{} are verified in different ways: nothing says \
                 whose events it has",
                self.names()
            ))
        })?;
        Ok((ChannelRef { name: Arc::from(name_or_id), id }, verifier))
    }

    /// How events are verified that do not say which channel they come from.
    ///
    /// # Errors
    /// [`Failure::Usage`], where the channels are verified in different ways.
    pub fn verifier(&self) -> Result<&Verifier, Failure> {
        self.common().ok_or_else(|| {
            Failure::Usage(format!(
                "the channels are verified in different ways: say which is meant with --channel{}",
                self.names()
            ))
        })
    }

    fn common(&self) -> Option<&Verifier> {
        let (_, first) = self.0.first()?;
        self.0.iter().all(|(_, verifier)| verifier == first).then_some(first)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(channel, _)| &*channel.name).collect();
        if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
    }
}

pub(super) fn load(file: Option<&Path>) -> Result<Config, Failure> {
    Config::load(file).map_err(|problems| Failure::Config(problems.to_string()))
}

#[cfg(test)]
mod tests;
