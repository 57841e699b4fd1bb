//! The part of the configuration that an instance publishes to the others: which channels it reads, and digests of the
//! settings that decide what is verified and delivered.
//!
//! # Invariants
//!
//! * **No new setting is forgotten.** Each struct of settings is taken apart completely, so a new field must be assigned here.
//! * **No secret.** A digest is made from texts without secrets, because others can guess the content of a digest.
//! * **Nothing of one machine.** Paths, addresses of this instance and the way to the service may differ between instances.

use std::collections::{BTreeMap, BTreeSet};

use super::{Channel, Config, Sink, SinkSettings};
use crate::version;
use ::channel::Verification;
use ::ledger::store::shared::{Configured, SettingDigests};
use proof::verify::Verifier;

type Digests = BTreeMap<String, String>;

impl Config {
    /// Returns the published part.
    pub(crate) fn published(&self) -> Configured {
        let Self { channels, sinks, accounts: _, api: _, state: _, listen: _, hosts: _, log: _, otlp: _, .. } = self;
        // Each channel that was found is published as a channel.
        let Self { memory: _, shutdown_grace: _, signer_names: _, discover: _, notes: _, .. } = self;
        let settings = SettingDigests {
            version: version::text(),
            channels: channels.iter().map(|channel| (channel.channel.id, of_channel(channel))).collect(),
            sinks: sinks.iter().flat_map(|(name, sink)| of_sink(name, sink)).collect(),
        };
        Configured { channels: channels.iter().map(|channel| channel.channel.id).collect(), settings }
    }
}

/// The digests of a channel's settings, by their keys in the table of the channel.
fn of_channel(configured: &Channel) -> Digests {
    // A comparison changes nothing. The organization and the network of the account are in `verification`, and the key of the
    // account is a way to the service.
    let Channel { channel, account: _, discovered: _, sinks, filters, start, settle, compare: _, verification } =
        configured;
    let Verification { verifier, expect, unsigned, ordering, proof_timeout } = verification;
    let Verifier { signers, workflow_owner } = &**verifier;
    // The order of these lists has no effect.
    let expect: BTreeMap<&str, BTreeSet<_>> =
        expect.lists().map(|(what, values)| (what.into(), values.iter().collect())).collect();
    let addresses: BTreeSet<_> = signers.addresses().iter().map(ToString::to_string).collect();
    let settings = [
        ("name", format!("{:?}", channel.name)),
        ("sinks", format!("{:?}", sinks.iter().collect::<BTreeSet<_>>())),
        ("filters", format!("{filters:?}")),
        ("start", format!("{start:?}")),
        ("settle", format!("{settle:?}")),
        ("expect", format!("{expect:?}")),
        ("verification.valid_signers", format!("{addresses:?}")),
        ("verification.min_required_signatures", signers.required().to_string()),
        ("verification.workflow_owner", workflow_owner.to_string()),
        ("verification.unsigned", format!("{unsigned:?}")),
        ("verification.ordering", format!("{ordering:?}")),
        ("verification.proof_timeout", format!("{proof_timeout:?}")),
    ];
    settings.into_iter().map(|(key, text)| (key.to_owned(), SettingDigests::digest(&text))).collect()
}

/// The digests of a sink's settings, by their keys.
fn of_sink(name: &str, sink: &Sink) -> Digests {
    // The retry waits change only when an event is delivered.
    let Sink { settings, retry: _, give_up_after, shape, filter } = sink;
    let is_local = matches!(settings, SinkSettings::Stdout | SinkSettings::File(_) | SinkSettings::Sqlite(_));
    let mut digests = Digests::new();
    let mut add =
        |key: &str, text: String| digests.insert(format!("sinks.{name}.{key}"), SettingDigests::digest(&text));
    for (key, value) in sink.shown() {
        // A sink of one machine has its own path there.
        if !is_local || ["type", "format", "include_proof"].contains(&key) {
            add(key, value.to_string());
        }
    }
    let template = shape.template.as_ref().map(|template| template.text());
    add("format", format!("{shape:?} {template:?}"));
    add("filter", format!("{filter:?}"));
    add("give_up_after", format!("{give_up_after:?}"));
    digests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigText;

    fn config(rest: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("channeld.toml");
        let text = format!(
            "[api]\nbase_url = \"http://127.0.0.1:1\"\napi_key = \"k\"\n[verification]\norg_id = \"o\"\n[channels.c]\n\
             id = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"s\"]\n[sinks.s]\ntype = \"webhook\"\n\
             url = \"http://127.0.0.1:2/\"\n{rest}"
        );
        std::fs::write(&file, text).unwrap();
        let loaded = Config::of(ConfigText::read(Some(&file)).unwrap(), []);
        loaded.unwrap_or_else(|problems| panic!("{problems}")).config
    }

    #[test]
    fn a_setting_that_changes_what_is_verified_or_delivered_changes_the_digest_of_its_key() {
        let plain = config("").published();
        assert_eq!(plain, config("").published());
        for (change, key) in [
            ("[channels.c.verification]\nmin_required_signatures = 1\n", "verification.min_required_signatures"),
            ("[channels.c.verification]\norg_id = \"other\"\n", "verification.workflow_owner"),
            ("[channels.c.verification]\nordering = \"strict\"\n", "verification.ordering"),
            ("[channels.c.expect]\nchain_selector = [\"16015286601757825753\"]\n", "expect"),
            ("give_up_after = \"1h\"\n", "sinks.s.give_up_after"),
            ("filter = \"failures\"\n", "sinks.s.filter"),
        ] {
            let differences = plain.differences(&config(change).published());
            assert!(differences.iter().any(|(_, differing)| differing == key), "{key}: {differences:?}");
        }
    }

    #[test]
    fn settings_of_one_machine_are_not_published() {
        let plain = config("").published();
        assert_eq!(
            plain,
            config("[log]\nlevel = \"debug\"\n[admin]\nlisten = \"\"\n[state]\npath = \"/other\"\n").published()
        );
    }
}
