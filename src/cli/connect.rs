//! What a command that reads needs: the client, and whose events are whose.

use std::sync::Arc;

use super::exit::Failure;
use crate::api::Client;
use crate::record::ChannelRef;
use crate::verify::Verifier;

/// The service and the channels of a configuration.
#[derive(Debug)]
pub struct Connection {
    /// The client of the service.
    pub client: Client,
    /// The configured channels.
    pub channels: Channels,
}

/// The configured channels, and how the events of each are verified.
#[derive(Clone, Debug)]
pub struct Channels {
    /// In the order of their names.
    pub configured: Vec<(ChannelRef, Verifier)>,
    /// How the events of any other channel are verified, where the configuration says so for all.
    pub otherwise: Option<Verifier>,
}

impl Channels {
    /// The channel of that configured name or, failing that, of that id. A channel that is not configured goes by its
    /// id and is verified as all are.
    ///
    /// # Errors
    /// [`Failure::Usage`], where it is neither.
    pub fn channel(&self, name_or_id: &str) -> Result<(ChannelRef, &Verifier), Failure> {
        if let Some((channel, verifier)) = self.configured.iter().find(|(channel, _)| &*channel.name == name_or_id) {
            return Ok((channel.clone(), verifier));
        }
        let id = name_or_id.parse().map_err(|_| {
            Failure::Usage(format!("`{name_or_id}` is neither a configured channel{} nor a UUID", self.names()))
        })?;
        if let Some((channel, verifier)) = self.configured.iter().find(|(channel, _)| channel.id == id) {
            return Ok((channel.clone(), verifier));
        }
        let verifier = self.otherwise.as_ref().ok_or_else(|| {
            Failure::Usage(format!(
                "the channel {id} is not configured{}: nothing says whose events it has",
                self.names()
            ))
        })?;
        Ok((ChannelRef { name: Arc::from(name_or_id), id }, verifier))
    }

    /// How events are verified that do not say which channel they come from.
    ///
    /// # Errors
    /// [`Failure::Usage`], where the configuration does not say it once for all.
    pub fn verifier(&self) -> Result<&Verifier, Failure> {
        let mut each = self.otherwise.iter().chain(self.configured.iter().map(|(_, verifier)| verifier));
        let first = each.next().ok_or_else(|| Failure::Usage("no channel is configured".to_owned()))?;
        if self.otherwise.is_none() && each.any(|verifier| verifier != first) {
            return Err(Failure::Usage(format!(
                "the channels are verified in different ways: say which is meant with --channel{}",
                self.names()
            )));
        }
        Ok(first)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.configured.iter().map(|(channel, _)| &*channel.name).collect();
        if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Address, SignerSet};

    const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    const OTHER: &str = "d290f1ee-6c54-4b01-90e6-d701748f0851";

    fn verifier(owner: u8) -> Verifier {
        Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([owner; 20]))
    }

    fn configured(name: &str, id: &str, owner: u8) -> (ChannelRef, Verifier) {
        (ChannelRef { name: name.into(), id: id.parse().unwrap() }, verifier(owner))
    }

    #[test]
    fn a_channel_is_found_by_its_name_and_by_its_id() {
        let channels =
            Channels { configured: vec![configured("a", ID, 1), configured("b", OTHER, 2)], otherwise: None };
        for name_or_id in ["a", ID] {
            let (channel, found) = channels.channel(name_or_id).unwrap();
            assert_eq!((&*channel.name, found), ("a", &verifier(1)));
        }
        let error = channels.channel("c").unwrap_err();
        assert_eq!(error.to_string(), "`c` is neither a configured channel (a, b) nor a UUID");
        assert!(matches!(channels.verifier(), Err(Failure::Usage(_))), "two ways, and nothing says which");
    }

    #[test]
    fn a_channel_that_is_not_configured_is_verified_as_all_are() {
        let mut channels = Channels { configured: vec![configured("a", ID, 1)], otherwise: None };
        assert!(matches!(channels.channel(OTHER), Err(Failure::Usage(_))));
        assert_eq!(channels.verifier().unwrap(), &verifier(1));
        channels.otherwise = Some(verifier(3));
        let (channel, found) = channels.channel(OTHER).unwrap();
        assert_eq!((&*channel.name, found), (OTHER, &verifier(3)));
        assert_eq!(channels.verifier().unwrap(), &verifier(3));
    }
}
