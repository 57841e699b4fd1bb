//! The configured channels, and the names by which operators refer to them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Refusal;
use api::AccountName;
use channel::Expect;
use proof::event::ChannelId;
use proof::verify::{Address, Verifier};
use record::ChannelRef;

/// The displayed names of signers.
pub type SignerNames = BTreeMap<Address, String>;

/// A channel of the configuration.
#[derive(Clone, Debug)]
pub struct ConfiguredChannel {
    /// The name and id of the channel.
    pub channel: ChannelRef,
    /// Whether `[discover]` has added the channel.
    pub discovered: bool,
    /// The account whose key reads the channel.
    pub account: AccountName,
    /// Its sinks, in the order of the configuration.
    pub sinks: Vec<Arc<str>>,
    /// Verifies the channel's events.
    pub verifier: Verifier,
    /// The expected contents of the channel's events.
    pub expect: Arc<Expect>,
}

/// Returns the channel with this configured name or, if no name matches, with this id. The name of a channel that is
/// not configured is its id.
///
/// # Errors
/// [`Refusal::Usage`] if the text is neither a configured name nor an id.
pub fn find(channels: &[ConfiguredChannel], name_or_id: &str) -> Result<ChannelRef, Refusal> {
    if let Some(known) = channels.iter().find(|known| &*known.channel.name == name_or_id) {
        return Ok(known.channel.clone());
    }
    name_or_id.parse().map(|id| by_id(channels, id)).map_err(|_| {
        let names = names(channels);
        Refusal::Usage(format!("`{name_or_id}` is neither a configured channel ({names}) nor a UUID"))
    })
}

/// Returns the configured names as a list for a message.
pub fn names(channels: &[ConfiguredChannel]) -> String {
    let names: Vec<_> = channels.iter().map(|known| &*known.channel.name).collect();
    names.join(", ")
}

pub(crate) fn by_id(channels: &[ConfiguredChannel], id: ChannelId) -> ChannelRef {
    let known = channels.iter().find(|known| known.channel.id == id);
    known.map_or_else(|| ChannelRef { name: id.to_string().into(), id }, |known| known.channel.clone())
}

/// Checks that `sink` is one of the `sinks` of a channel.
///
/// # Errors
/// [`Refusal::Usage`] if it is not one of them.
pub fn check_sink(channel: &str, sink: &str, sinks: &[impl Borrow<str>]) -> Result<(), Refusal> {
    if sinks.iter().any(|known| known.borrow() == sink) {
        return Ok(());
    }
    let sinks = sinks.join(", ");
    Err(Refusal::Usage(format!("channel {channel} has no sink {sink}; its sinks are: {sinks}")))
}

/// Finds a channel and its verifier. A channel that is not configured gets the verifier that all configured channels share.
///
/// # Errors
/// [`Refusal::Usage`] if the text is neither a configured name nor an id. Also if the channel is not configured and the
/// configured channels are verified in different ways.
pub fn verifier_of(channels: &[ConfiguredChannel], name_or_id: &str) -> Result<(ChannelRef, Verifier), Refusal> {
    let channel = find(channels, name_or_id)?;
    let known = channels.iter().find(|known| known.channel == channel).map(|known| known.verifier.clone());
    let verifier = known.or_else(|| common(channels)).ok_or_else(|| {
        let (id, names) = (channel.id, names(channels));
        let message = format!(
            "the channel {id} is not configured, and the configured channels ({names}) use different verification settings: it is unknown which settings apply"
        );
        Refusal::Usage(message)
    })?;
    Ok((channel, verifier))
}

fn common(channels: &[ConfiguredChannel]) -> Option<Verifier> {
    let first = &channels.first()?.verifier;
    channels.iter().all(|channel| channel.verifier == *first).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proof::verify::SignerSet;

    const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    const OTHER: &str = "d290f1ee-6c54-4b01-90e6-d701748f0851";

    fn verified(owner: u8) -> Verifier {
        Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([owner; 20]))
    }

    fn known(name: &str, id: &str, owner: u8) -> ConfiguredChannel {
        let channel = ChannelRef { name: name.into(), id: id.parse().unwrap() };
        let (account, sinks, expect) = <_>::default();
        ConfiguredChannel { channel, account, discovered: false, sinks, verifier: verified(owner), expect }
    }

    #[test]
    fn a_channel_is_found_by_name_and_id() {
        let channels = [known("a", ID, 1), known("b", OTHER, 2)];
        for name_or_id in ["a", ID] {
            let (channel, found) = verifier_of(&channels, name_or_id).unwrap();
            assert_eq!((&*channel.name, found), ("a", verified(1)));
        }
        let error = verifier_of(&channels, "c").unwrap_err();
        assert_eq!(error.to_string(), "`c` is neither a configured channel (a, b) nor a UUID");
    }

    #[test]
    fn an_unconfigured_channel_uses_the_default_verification() {
        let channels = [known("a", ID, 1)];
        let (found, by) = verifier_of(&channels, OTHER).unwrap();
        assert_eq!((&*found.name, by), (OTHER, verified(1)));

        let two_ways = [known("a", ID, 1), known("b", ID, 2)];
        assert!(matches!(verifier_of(&two_ways, OTHER), Err(Refusal::Usage(_))));
    }
}
