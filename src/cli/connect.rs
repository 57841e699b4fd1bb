//! The parts that commands need to read the service: the client, a channel, and its verifier.

use std::path::Path;

use super::exit::{Exit, Failure};
use crate::config::{Channel, Config};
use crate::daemon::assembly;
use api::Client;
use net::Chain;
use operator::{ConfiguredChannel, SignerNames, verifier_of};
use proof::verify::Verifier;
use record::ChannelRef;

/// Access to the service and one of its channels.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) channel: ChannelRef,
    pub(super) verifier: Verifier,
    pub(super) signer_names: SignerNames,
}

impl Connection {
    /// Prepares access to a channel by its name or id. Sends no request to the service yet.
    pub(super) fn open(file: Option<&Path>, name_or_id: &str) -> Result<Self, Failure> {
        let config = Config::load(file)?;
        let client = client(&config)?;
        let (channel, verifier) = verifier_of(&configured(&config.channels), name_or_id)?;
        Ok(Self { client, channel, verifier, signer_names: config.signer_names })
    }
}

pub(super) fn client(config: &Config) -> Result<Client, Failure> {
    assembly::client(config).map_err(|error| Failure(Exit::Config, Chain(&error).to_string()))
}

pub(super) fn configured(channels: &[Channel]) -> Vec<ConfiguredChannel> {
    channels.iter().map(Channel::for_operator).collect()
}
