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
    let channels = Channels(vec![configured("a", ID, 1), configured("b", OTHER, 2)]);
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
    let channels = Channels(vec![configured("a", ID, 1)]);
    let (channel, found) = channels.channel(OTHER).unwrap();
    assert_eq!((&*channel.name, found), (OTHER, &verifier(1)));
    assert_eq!(channels.verifier().unwrap(), &verifier(1));

    let two_ways = Channels(vec![configured("a", ID, 1), configured("b", ID, 2)]);
    assert!(matches!(two_ways.channel(OTHER), Err(Failure::Usage(_))));
}
