//! The parts that commands need to read the service: the client, a channel, and its verifier.

use std::path::Path;

use super::exit::{Exit, Failure};
use crate::config::{Channel, Config, SignerNames};
use crate::daemon::assembly;
use api::Client;
use net::Chain;
use operator::{ConfiguredChannel, find, names};
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

/// Finds a channel and its verifier. A channel that is not configured gets the verifier that all configured channels share.
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
mod tests {
    use std::sync::Arc;

    use super::*;
    use proof::verify::{Address, SignerSet};

    const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    const OTHER: &str = "d290f1ee-6c54-4b01-90e6-d701748f0851";

    fn verified(owner: u8) -> Verifier {
        Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([owner; 20]))
    }

    fn known(name: &str, id: &str, owner: u8) -> ConfiguredChannel {
        let channel = ChannelRef { name: name.into(), id: id.parse().unwrap() };
        ConfiguredChannel { channel, sinks: Vec::new(), verifier: verified(owner), expect: Arc::default() }
    }

    #[test]
    fn a_channel_is_found_by_its_name_and_by_its_id() {
        let channels = [known("a", ID, 1), known("b", OTHER, 2)];
        for name_or_id in ["a", ID] {
            let (channel, found) = channel(&channels, name_or_id).unwrap();
            assert_eq!((&*channel.name, found), ("a", verified(1)));
        }
        let error = channel(&channels, "c").unwrap_err();
        assert_eq!(error.to_string(), "`c` is neither a configured channel (a, b) nor a UUID");
    }

    #[test]
    fn a_channel_that_is_not_configured_is_verified_as_all_are() {
        let channels = [known("a", ID, 1)];
        let (found, by) = channel(&channels, OTHER).unwrap();
        assert_eq!((&*found.name, by), (OTHER, verified(1)));

        let two_ways = [known("a", ID, 1), known("b", ID, 2)];
        assert!(matches!(channel(&two_ways, OTHER), Err(Failure(Exit::Usage, _))));
    }
}
