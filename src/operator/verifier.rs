//! Which verifier checks the events of a channel.

use proof::verify::Verifier;
use record::ChannelRef;

use crate::{ConfiguredChannel, Refusal, find, names};

/// Finds a channel and its verifier. A channel that is not configured gets the verifier that all configured channels share.
///
/// # Errors
/// [`Refusal::Usage`] if the channel is unknown, or if the configured channels are verified in different ways.
pub fn verifier_of(channels: &[ConfiguredChannel], name_or_id: &str) -> Result<(ChannelRef, Verifier), Refusal> {
    let channel = find(channels, name_or_id)?;
    let known = channels.iter().find(|known| known.channel == channel).map(|known| known.verifier.clone());
    let verifier = known.or_else(|| common(channels)).ok_or_else(|| {
        let (id, names) = (channel.id, names(channels));
        let message = format!(
            "the channel {id} is not configured, and the configured ones ({names}) are verified differently: it is unknown which settings apply"
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
            let (channel, found) = verifier_of(&channels, name_or_id).unwrap();
            assert_eq!((&*channel.name, found), ("a", verified(1)));
        }
        let error = verifier_of(&channels, "c").unwrap_err();
        assert_eq!(error.to_string(), "`c` is neither a configured channel (a, b) nor a UUID");
    }

    #[test]
    fn a_channel_that_is_not_configured_is_verified_as_all_are() {
        let channels = [known("a", ID, 1)];
        let (found, by) = verifier_of(&channels, OTHER).unwrap();
        assert_eq!((&*found.name, by), (OTHER, verified(1)));

        let two_ways = [known("a", ID, 1), known("b", ID, 2)];
        assert!(matches!(verifier_of(&two_ways, OTHER), Err(Refusal::Usage(_))));
    }
}
