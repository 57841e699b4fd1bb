//! What commands that read the service need: the client, a channel, and how its events are verified.

use std::path::Path;

use super::exit::{Exit, Failure};
use crate::config::{Channel, Config, SignerNames};
use crate::daemon::assembly;
use api::Client;
use net::Chain;
use operator::{ConfiguredChannel, find, names};
use proof::verify::Verifier;
use record::ChannelRef;

/// The service, and one of its channels.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) channel: ChannelRef,
    pub(super) verifier: Verifier,
    pub(super) signer_names: SignerNames,
}

impl Connection {
    /// To a channel by its name or id. Nothing is asked of the service yet.
    pub(super) fn open(file: Option<&Path>, name_or_id: &str) -> Result<Self, Failure> {
        let config = Config::load(file)?;
        let client = client(&config)?;
        let (channel, verifier) = channel(&configured(&config.channels), name_or_id)?;
        Ok(Self { client, channel, verifier, signer_names: config.signer_names })
    }
}

pub(super) fn client(config: &Config) -> Result<Client, Failure> {
    assembly::client(config).map_err(|error| Failure(Exit::Config, Chain(&error).to_string()))
}

pub(super) fn configured(channels: &[Channel]) -> Vec<ConfiguredChannel> {
    channels.iter().map(Channel::for_operator).collect()
}

/// A channel that is not configured is verified as all that are configured.
pub(super) fn channel(channels: &[ConfiguredChannel], name_or_id: &str) -> Result<(ChannelRef, Verifier), Failure> {
    let channel = find(channels, name_or_id)?;
    let known = channels.iter().find(|known| known.channel == channel).map(|known| known.verifier.clone());
    let verifier = known.or_else(|| common(channels)).ok_or_else(|| {
        let (id, names) = (channel.id, names(channels));
        let message = format!(
            "the channel {id} is not configured, and those that are ({names}) are verified in different ways: nothing says \
             whose events it has"
        );
        Failure(Exit::Usage, message)
    })?;
    Ok((channel, verifier))
}

fn common(channels: &[ConfiguredChannel]) -> Option<Verifier> {
    let first = &channels.first()?.verifier;
    channels.iter().all(|channel| channel.verifier == *first).then(|| first.clone())
}

#[cfg(test)]
mod tests;
