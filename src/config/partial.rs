//! Loads parts of the configuration, for commands that need only this part. A mistake in another part is not an error.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use figment::{Figment, Metadata};

use super::key::Key;
use super::problem::ConfigError;
use super::reading::{Reader, Reported, Section, all};
use super::sources::files::ConfigText;
use super::sources::{Layer, defaults};
use super::tables::account::{self, Account};
use super::tables::channel::Channel;
use super::tables::daemon::{read_listen, read_log};
use super::tables::verification::{Levels, signer_names};
use super::tables::{discover, state};
use ::ledger::store::{PostgresSettings, StateSettings};
use api::AccountName;
use operator::SignerNames;
use proof::event::ChannelId;
use proof::verify::Verifier;
use telemetry::Log;

/// The settings for a command that works on the state of this machine. No secret is read, because secrets can be absent
/// while the daemon does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalConfig {
    /// `[state]` and `[cluster]`: where the state of the channels is stored.
    pub state: StateSettings,
    /// `[log]`: the level and format of the log.
    pub log: Log,
    /// `[verification.signer_names]`: the displayed names of signers.
    pub signer_names: SignerNames,
    /// `[channels.NAME]` and the channels that `[discover]` has added, in the order of their names.
    pub channels: Vec<Channel>,
}

impl LocalConfig {
    /// Loads only this part.
    ///
    /// # Errors
    /// Every problem with this part. If the file cannot be read or is not TOML, only that problem.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        load_part(file, |root| {
            all!(Self {
                state: state::read(root),
                log: read_log(root),
                signer_names: signer_names(root),
                channels: Ok(discover::read_channels(root, &discover::read(root), &state)),
            })
        })
    }
}

/// The settings for a command that asks the service about the organization.
pub(crate) struct ServiceConfig {
    /// The account whose channels are wanted.
    pub(crate) account: Account,
    /// The names of the configured channels, by their ids.
    pub(crate) channels: BTreeMap<ChannelId, String>,
}

/// Loads an account and the ids of the channels. No channel need be configured yet.
pub(crate) fn load_service(text: &ConfigText, account: &AccountName) -> Result<ServiceConfig, ConfigError> {
    read_part(text, std::env::vars_os(), |root| {
        all!(ServiceConfig { account: account::read_one(root, account), channels: channel_names(root) })
    })
}

/// The names of the configured channels, and of the channels that `[discover]` has added, by their ids. Channels without a valid id
/// are left out.
fn channel_names(root: &Section<'_>) -> Result<BTreeMap<ChannelId, String>, Reported> {
    let channels = root.section("channels");
    let id = |name: &str| channels.section(name).optional("id", |text| Ok(text.trim().parse().ok()));
    let named = |name: String| Some((id(&name).ok()???, name));
    let mut names: BTreeMap<_, _> = channels.names()?.into_iter().filter_map(named).collect();
    if root.section("discover").is_set("channels") {
        let all = discover::read_channels(root, &discover::read(root), &state::read(root));
        let added = all.into_iter().filter(|channel| channel.discovered).map(|channel| channel.channel);
        names.extend(added.map(|channel| (channel.id, channel.name.to_string())));
    }
    Ok(names)
}

/// Loads only `admin.listen`, the address of the health checks.
pub(crate) fn load_listen(file: Option<&Path>) -> Result<Option<SocketAddr>, ConfigError> {
    load_part(file, read_listen)
}

/// Loads where each of the two backends stores the state. `state.backend` has no influence.
pub(crate) fn load_both_backends(file: Option<&Path>) -> Result<(PathBuf, PostgresSettings), ConfigError> {
    load_part(file, state::read_both)
}

/// Loads the verifier of a channel, by its name or id, or the verifier that all channels share. Only `[verification]`, each
/// account and each `[channels.NAME.verification]` are checked. Returns `None` if the channel does not exist.
pub(crate) fn load_verifier(file: Option<&Path>, channel: Option<&str>) -> Result<Option<Verifier>, ConfigError> {
    load_part(file, |root| {
        let channels = root.section("channels");
        let has_id = |name: &str, id| channels.section(name).optional("id", |text| Ok(text.trim() == id));
        let is_meant = |name: &&String| {
            if let Some(channel) = channel {
                return *name == channel || matches!(has_id(name, channel), Ok(Some(true)));
            }
            let channel = channels.section(name);
            channel.is_table("verification") || channel.contains("account")
        };
        let names = channels.names()?;
        let meant = names.iter().filter(is_meant);
        let mut all: Vec<_> = meant.map(|name| Levels::of_channel(root, &channels.section(name))).collect();
        if channel.is_none() && all.len() < names.len().max(1) {
            all.push(Levels::shared(root));
        }
        let mut common = None;
        for levels in all {
            let verifier = levels.verifier()?.ok_or_else(|| levels.without_owner())?;
            if common.get_or_insert_with(|| verifier.clone()) != &verifier {
                return Err(root.wrong("verification", "differs between channels: choose one with --channel"));
            }
        }
        Ok(common)
    })
}

fn load_part<T>(file: Option<&Path>, read: impl FnOnce(&Section<'_>) -> Result<T, Reported>) -> Result<T, ConfigError> {
    read_part(&ConfigText::read(file)?, std::env::vars_os(), read)
}

fn read_part<T>(
    text: &ConfigText,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    read: impl FnOnce(&Section<'_>) -> Result<T, Reported>,
) -> Result<T, ConfigError> {
    let reader = Reader::open(text, variables)?;
    let part = read(&Section::root(&reader));
    reader.finish(part, true)
}

/// Builds a verifier from the flags of `channeld verify`, with the rules and defaults of `[verification]`. Neither the
/// file nor the environment is read. The name of a flag is the name of the key, with `--` in front and `-` instead of
/// `_`.
pub(crate) fn verification_from_flags<'a>(
    flags: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Verifier, ConfigError> {
    let table = Key::default().at("verification");
    let given = flags.into_iter().filter_map(|(flag, text)| {
        let key = table.at(&flag.trim_start_matches('-').replace('-', "_"));
        Some(Layer::value(Metadata::named(format!("flag {flag}")), &key, text?.to_owned()))
    });
    let reader = Reader::new(given.fold(defaults(), Figment::merge));
    let root = Section::root(&reader);
    let levels = Levels::shared(&root);
    let verifier = levels.verifier().and_then(|verifier| verifier.ok_or_else(|| levels.without_owner()));
    reader.finish(verifier, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tables::channel;

    #[test]
    fn a_problem_with_a_part_names_the_line() {
        let text = ConfigText::written(Path::new("channeld.toml"), "[admin]\nlisten = \"somewhere\"\n".to_owned());
        let error = read_part(&text, [], read_listen).expect_err("no address");
        assert_eq!(error.problems[0].origin.as_deref(), Some("file channeld.toml, line 2"));
    }

    /// Loads one part from this text and this variable, and returns the keys that have problems.
    fn problems<T>(
        text: &str,
        variable: (&str, &str),
        read: impl FnOnce(&Section<'_>) -> Result<T, Reported>,
    ) -> Vec<String> {
        let text = ConfigText::written(Path::new("channeld.toml"), text.to_owned());
        let part = read_part(&text, [(variable.0.into(), variable.1.into())], read);
        part.err().map_or(Vec::new(), |error| error.problems.into_iter().map(|problem| problem.key).collect())
    }

    #[test]
    fn a_mistake_in_a_variable_affects_only_its_part() {
        let names = "[channels.a-b]\n[channels.A_B]\n";
        for (variable, key, is_of_listen, is_of_channels) in [
            ("CHANNELD_API", "api", false, false),
            ("CHANNELD_ADMIN", "admin", true, false),
            ("CHANNELD_ADMIN__", "admin.\"\"", false, false),
            ("CHANNELD_CHANNELS", "channels", false, true),
            ("CHANNELD_CHANNELS__A_B__ID", "channels.a_b", false, true),
            ("CHANNELD_VERIFICATION__", "verification.\"\"", false, false),
            ("CHANNELD_VERIFICATION", "verification", false, true),
        ] {
            let found = problems(names, (variable, "x"), read_listen);
            assert_eq!(found.iter().any(|found| found == key), is_of_listen, "{variable}: {found:?}");
            assert!(is_of_listen || found.is_empty(), "{variable}: {found:?}");
            let found = problems(names, (variable, "x"), |root| Ok(channel::read_all(root, false)));
            assert_eq!(found.iter().any(|found| found == key), is_of_channels, "{variable}: {found:?}");
        }
    }
}
