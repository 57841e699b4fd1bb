//! The part of an instance's configuration that the other instances must know: its channels, and digests of its settings.
//! A digest shows whether two instances have the same setting, and does not show the setting.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use proof::event::ChannelId;

/// The number of bytes of a digest. The instances do not deceive each other, so a collision is only a matter of chance.
const LENGTH: usize = 6;

/// The settings of a channel that decide which events are verified: the list `expect`, and all keys of this table.
const EXPECT: &str = "expect";
const VERIFICATION: &str = "verification.";

/// The published part of an instance's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// The configured channels.
    pub channels: BTreeSet<ChannelId>,
    /// The settings that decide what is verified and delivered. Empty if the instance does not publish them, because it is
    /// an older version.
    pub settings: SettingDigests,
}

/// The digests of the settings of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingDigests {
    /// The version of channeld. A setting can have another digest in another version.
    pub version: String,
    /// By channel, the digest of each setting, by the setting's key in the table of the channel.
    pub channels: BTreeMap<ChannelId, BTreeMap<String, String>>,
    /// The digest of each setting of the sinks, by its key.
    pub sinks: BTreeMap<String, String>,
}

impl SettingDigests {
    /// The digest of a setting. Equal settings must have equal texts.
    pub fn digest(text: &str) -> String {
        hex::encode(&Sha256::digest(text.as_bytes())[..LENGTH])
    }
}

impl Configured {
    /// Returns the keys of the settings in which two instances differ. A key in the table of a channel has the id of the channel.
    /// Only channels that both instances configure are compared.
    pub fn differences(&self, other: &Self) -> Vec<(Option<ChannelId>, String)> {
        let (one, two) = (&self.settings, &other.settings);
        let mut differences = Vec::new();
        for (channel, settings) in &one.channels {
            let Some(others) = two.channels.get(channel) else { continue };
            let is_same = one.version == two.version;
            differences.extend(differing(settings, others, is_same).map(|key| (Some(*channel), key.clone())));
        }
        if one.version == two.version {
            // A sink that only one instance configures is not compared. If a channel uses it, the `sinks` of the channel differ.
            differences.extend(differing(&one.sinks, &two.sinks, false).map(|key| (None, key.clone())));
        }
        differences
    }

    /// Whether two instances verify the events of a channel in the same way, as far as they have published it.
    pub(super) fn verifies_like(&self, other: &Self, channel: ChannelId) -> bool {
        let settings = |of: &Self| of.settings.channels.get(&channel).cloned().unwrap_or_default();
        let decides = |key: &&String| **key == EXPECT || key.starts_with(VERIFICATION);
        std::ptr::eq(self, other) || !differing(&settings(self), &settings(other), false).any(|key| decides(&key))
    }
}

/// The keys with different digests. If `all` is set, these include the keys that only one of the two has.
fn differing<'a>(
    one: &'a BTreeMap<String, String>,
    other: &'a BTreeMap<String, String>,
    all: bool,
) -> impl Iterator<Item = &'a String> {
    let changed = one.iter().filter(move |(key, digest)| other.get(*key).map_or(all, |other| other != *digest));
    let missing = other.keys().filter(move |key| all && !one.contains_key(*key));
    changed.map(|(key, _)| key).chain(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(7));

    fn configured(version: &str, settings: &[(&str, &str)], sinks: &[(&str, &str)]) -> Configured {
        let digests = |settings: &[(&str, &str)]| {
            settings.iter().map(|(key, value)| ((*key).to_owned(), SettingDigests::digest(value))).collect()
        };
        let channels = [(CHANNEL, digests(settings))].into();
        let settings = SettingDigests { version: version.to_owned(), channels, sinks: digests(sinks) };
        Configured { channels: [CHANNEL].into(), settings }
    }

    #[test]
    fn differences_name_the_keys_and_only_settings_of_verification_prevent_a_claim() {
        let one = configured("1", &[("verification.unsigned", "drop"), ("start", "latest")], &[("s.format", "json")]);
        assert_eq!(one.differences(&one.clone()), []);
        let two = configured("1", &[("verification.unsigned", "drop"), ("start", "7")], &[("s.format", "raw")]);
        assert_eq!(one.differences(&two), [(Some(CHANNEL), "start".to_owned()), (None, "s.format".to_owned())]);
        assert!(one.verifies_like(&two, CHANNEL));
        for key in ["verification.unsigned", "expect"] {
            let (one, two) = (configured("1", &[(key, "a")], &[]), configured("1", &[(key, "b")], &[]));
            assert!(!one.verifies_like(&two, CHANNEL), "{key}");
        }
    }

    #[test]
    fn instances_of_other_versions_are_compared_only_in_what_both_publish() {
        let one = configured("1", &[("start", "7")], &[("s", "a")]);
        let two = configured("2", &[("start", "7"), ("new", "1")], &[("s", "b")]);
        assert_eq!((one.differences(&two), one.differences(&Configured::default())), (vec![], vec![]));
    }
}
