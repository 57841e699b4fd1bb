//! Compares two configurations.

use std::collections::BTreeMap;

use super::{Channel, Config};
use operator::{Changes, Difference};

impl Config {
    /// Returns the differences to another configuration.
    pub fn changes_to(&self, after: &Self) -> Changes {
        fn channels(config: &Config) -> BTreeMap<String, &Channel> {
            config.channels.iter().map(|channel| (channel.channel.name.to_string(), channel)).collect()
        }
        let others = [
            ("api", self.api != after.api),
            ("log", self.log != after.log),
            ("shutdown_grace", self.shutdown_grace != after.shutdown_grace),
        ];
        Changes {
            channels: difference(&channels(self), &channels(after)),
            sinks: difference(&self.sinks, &after.sinks),
            others: others.iter().filter(|(_, changed)| *changed).map(|(name, _)| (*name).to_owned()).collect(),
            warnings: Vec::new(),
        }
    }
}

fn difference<T: PartialEq>(before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) -> Difference {
    let missing_in = |those: &BTreeMap<String, T>, these: &BTreeMap<String, T>| {
        these.keys().filter(|name| !those.contains_key(*name)).cloned().collect()
    };
    let changed = after.iter().filter(|(name, one)| before.get(*name).is_some_and(|other| other != *one));
    Difference {
        added: missing_in(before, after),
        removed: missing_in(after, before),
        changed: changed.map(|(name, _)| name.clone()).collect(),
    }
}
