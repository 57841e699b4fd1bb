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
        let Self {
            memory: _, shutdown_grace: _, signer_names: _, explorers: _, discover: _, feed: _, notes: _, ..
        } = self;
        let settings = SettingDigests {
            version: version::text(),
            channels: channels.iter().map(|channel| (channel.channel.id, of_channel(channel, sinks))).collect(),
            sinks: sinks.iter().flat_map(|(name, sink)| of_sink(name, sink)).collect(),
        };
        Configured { channels: channels.iter().map(|channel| channel.channel.id).collect(), settings }
    }
}

/// The digests of a channel's settings, by their keys in the table of the channel.
fn of_channel(configured: &Channel, all_sinks: &BTreeMap<String, Sink>) -> Digests {
    // A comparison changes nothing. The organization and the network of the account are in `verification`, and the key of the
    // account is a way to the service.
    let Channel { channel, account: _, discovered, sinks, filters, start, settle, compare: _, verification } =
        configured;
    let Verification { verifier, expect, unsigned, ordering, proof_timeout } = verification;
    let Verifier { signers, workflow_owner } = &**verifier;
    // The order of these lists has no effect.
    let expect: BTreeMap<&str, BTreeSet<_>> =
        expect.lists().map(|(what, values)| (what.into(), values.iter().collect())).collect();
    let addresses: BTreeSet<_> = signers.addresses().iter().map(ToString::to_string).collect();
    // Each instance keeps the name that a discovered channel had when this instance found it. If the channel was renamed at the service
    // in between, two instances with the same files have different names for it. This does not matter, because the state and the sinks
    // identify a channel by its id, unless a sink publishes events to subjects that contain the name.
    let is_subject = |name: &String| {
        let settings = all_sinks.get(name).map(|sink| &sink.settings);
        matches!(settings, Some(SinkSettings::Nats(nats)) if nats.subject.has_channel_name())
    };
    let has_name = !discovered || sinks.iter().any(is_subject);
    let name = has_name.then(|| ("name", format!("{:?}", channel.name)));
    let settings = [
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
    name.into_iter().chain(settings).map(|(key, text)| (key.to_owned(), SettingDigests::digest(&text))).collect()
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
    use std::path::Path;

    use super::*;
    use crate::config::ConfigText;
    use ::ledger::store::discovered::{self, DiscoveredChannel};
    use proof::event::ChannelId;

    fn config(rest: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        config_in(directory.path(), rest)
    }

    fn config_in(directory: &Path, rest: &str) -> Config {
        let file = directory.join("channeld.toml");
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
    fn instances_that_found_a_channel_under_different_names_do_not_differ() {
        let found = ChannelId(uuid::Uuid::from_u128(1));
        let with = |sink: &str, name: &str, rest: &str| {
            let state = tempfile::tempdir().unwrap();
            let known = [DiscoveredChannel { channel_id: found, name: Some(name.to_owned()) }];
            discovered::write(state.path(), &known).unwrap();
            let discover = format!("[discover]\nchannels = \"all\"\nsinks = [{sink:?}]\n");
            config_in(state.path(), &format!("{discover}[state]\npath = {:?}\n{rest}", state.path())).published()
        };
        let (one, two) = (with("s", "pay", ""), with("s", "renamed", ""));
        assert!(one.channels.contains(&found) && one.channels == two.channels);
        assert_eq!(one.differences(&two), []);
        // A name that the operator chose is compared, and a name in subjects.
        let differs = [(Some(found), "name".to_owned())];
        let named = with("s", "pay", &format!("[channels.chosen]\nid = \"{found}\"\nsinks = [\"s\"]\n"));
        assert!(one.differences(&named).contains(&differs[0]));
        for (subject, expected) in [("a.{channel}", &differs[..]), ("a.{channel_id}", &[][..])] {
            let nats = format!("[sinks.n]\ntype = \"nats\"\nurl = \"nats://127.0.0.1:1\"\nsubject = {subject:?}\n");
            let (one, two) = (with("n", "pay", &nats), with("n", "renamed", &nats));
            assert_eq!(one.differences(&two), expected, "{subject}");
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
