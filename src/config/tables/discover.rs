//! `[discover]`: which of the organization's channels are added while the daemon runs, and the settings that they get.
//!
//! The daemon records the channels that it has found. The record is in the state directory. They become channels of the configuration here, so
//! that the daemon, its reload and every command have the same channels.
//!
//! # Invariants
//!
//! * **No channel twice.** A channel that the operator's files configure is not added.
//! * **A name stays.** The name of an added channel follows from the name that the channel had when it was found, and changes only if
//!   the operator gives the same name to another channel.

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::channel::{self, Channel};
use crate::config::key::plain;
use crate::config::reading::values::{duration_in, text_if};
use crate::config::reading::{NAME_LIMIT, Reading, Reported, Section, all};
use ::ledger::store::StateSettings;
use ::ledger::store::discovered::{self, DiscoveredChannel};
use ::record::ChannelRef;

/// The values of `every`. A shorter interval would use a large part of the organization's rate limit.
const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// `[discover]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    /// Selects channels by their names at the service.
    pub pattern: ChannelPattern,
    /// How often the service is asked for its list.
    pub every: Duration,
    /// An added channel without its name and id.
    pub template: Channel,
}

/// Selects channels by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelPattern(Option<String>);

impl ChannelPattern {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "all" => Ok(Self(None)),
            pattern => {
                let requirement = "must be \"all\", or a pattern for the names of channels, such as \"payments-*\"";
                text_if(!pattern.is_empty(), pattern, requirement).map(|pattern| Self(Some(pattern)))
            }
        }
    }

    /// Whether the pattern selects a channel with this name at the service. A channel without a name is selected only by `all`.
    pub fn selects(&self, name: Option<&str>) -> bool {
        let Some(pattern) = &self.0 else { return true };
        let Some(name) = name else { return false };
        let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let mut parts = middle.split('*');
        let left = name.strip_prefix(start);
        let left = parts.try_fold(left, |left, part| left?.split_once(part).map(|(_, left)| Some(left)));
        left.flatten().is_some_and(|left| left.ends_with(end))
    }
}

impl Discover {
    /// The channels to add to the configured ones.
    fn added(&self, found: &[DiscoveredChannel], configured: &[Channel]) -> Vec<Channel> {
        let mut ids: BTreeSet<_> = configured.iter().map(|known| known.channel.id).collect();
        let mut names: BTreeSet<_> = configured.iter().map(|known| plain(&known.channel.name)).collect();
        let is_new =
            |found: &&DiscoveredChannel| self.pattern.selects(found.name.as_deref()) && ids.insert(found.channel_id);
        let channel = |found: &DiscoveredChannel| {
            let (text, id) = (found.name.as_deref().unwrap_or_default(), found.channel_id);
            let short = channel_name(text, "");
            let name = if names.insert(plain(&short)) { short } else { channel_name(text, &format!("-{id}")) };
            names.insert(plain(&name));
            Channel { channel: ChannelRef { name: name.into(), id }, ..self.template.clone() }
        };
        found.iter().filter(is_new).map(channel).collect()
    }
}

/// Makes a name for the configuration from any text. The name ends with `end`.
pub(crate) fn channel_name(text: &str, end: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let joined = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    let base = if joined.is_empty() { "channel" } else { &joined };
    let start = &base[..base.len().min(NAME_LIMIT - end.len())];
    format!("{}{end}", start.trim_end_matches('-'))
}

/// Reads `[discover]`. Returns `None` if the table is empty: no channel is then added.
pub(crate) fn read(root: &Section<'_>) -> Reading<Discover> {
    let table = root.section("discover");
    if table.names()?.is_empty() {
        return Ok(None);
    }
    let discover = all!(Discover {
        pattern: table.required("channels", ChannelPattern::parse),
        every: table.or("every", duration_in(INTERVALS), "5m"),
        template: channel::read_template(root, &table),
    });
    discover.map(Some)
}

/// Reads every channel, in the order of their names: the configured channels, and the channels that were found. Channels with
/// mistakes are left out.
pub(crate) fn read_channels(
    root: &Section<'_>,
    discover: &Result<Option<Discover>, Reported>,
    state: &Result<StateSettings, Reported>,
) -> Vec<Channel> {
    let mut channels = channel::read_all(root, !matches!(discover, Ok(None)));
    let (Ok(Some(discover)), Ok(state)) = (discover, state) else { return channels };
    let file = discovered::file(&state.path);
    root.reader.files.borrow_mut().note(&file);
    match discovered::read(&state.path) {
        Ok(found) => channels.extend(discover.added(&found, &channels)),
        // A command of a user who may not read the state works with the configured channels.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            root.note(
                "discover",
                format!("the added channels are unknown: {} cannot be read: {error}", file.display()),
            );
        }
        // If this error were ignored, a reload would stop the channels in the file.
        Err(error) => {
            let file = file.display();
            let remedy = "remove the file, and the channels are found again";
            root.wrong(
                "discover",
                format!("{file}, the list of the added channels, cannot be read: {error}; {remedy}"),
            );
        }
    }
    channels.sort_by(|one, other| one.channel.name.cmp(&other.channel.name));
    channels
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;
    use crate::config::effective::{Origin, Setting};
    use crate::config::{Config, ConfigError, ConfigText, Loaded};
    use proof::event::ChannelId;

    const TEXT: &str = "api.api_key = \"k\"\nverification.org_id = \"o\"\nsinks.out.type = \"stdout\"\n";
    const DISCOVER: &str = "[discover]\nchannels = \"pay*\"\nsinks = [\"out\"]\nstart = \"latest\"\n";

    fn id(number: u128) -> ChannelId {
        ChannelId(Uuid::from_u128(number))
    }

    /// The state directory in which these channels are remembered.
    fn state(found: &[(u128, &str)]) -> TempDir {
        let directory = TempDir::new().expect("a temporary directory");
        let channel = |(number, name): &(u128, &str)| DiscoveredChannel {
            channel_id: id(*number),
            name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
        };
        discovered::write(directory.path(), &found.iter().map(channel).collect::<Vec<_>>()).expect("a file");
        directory
    }

    fn texts(state: &TempDir, rest: &str) -> ConfigText {
        let text = format!("state.path = \"{}\"\n{TEXT}{rest}", state.path().display());
        ConfigText::written(&state.path().join("channeld.toml"), text)
    }

    fn load(state: &TempDir, rest: &str) -> Result<Loaded, ConfigError> {
        Config::of(texts(state, rest), [])
    }

    fn names(loaded: &Loaded) -> Vec<(String, bool)> {
        loaded.config.channels.iter().map(|it| (it.channel.name.to_string(), it.discovered)).collect()
    }

    #[test]
    fn found_channels_are_added_with_the_settings_of_the_table() {
        let state = state(&[(1, "pay b"), (2, "other"), (3, "pay a"), (4, "")]);
        let loaded = load(&state, DISCOVER).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(names(&loaded), [("pay-a".to_owned(), true), ("pay-b".to_owned(), true)]);
        let Config { channels, notes, .. } = &loaded.config;
        assert_eq!((channels[1].channel.id, &channels[1].sinks, notes.len()), (id(1), &vec!["out".to_owned()], 0));
        assert_eq!(channels[0].start, ::channel::Start::Latest);
        let (config, settings) =
            Config::loaded_settings(&texts(&state, DISCOVER), []).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.channels.len(), 2);
        let of = |key: &str| {
            settings.iter().find(|setting: &&Setting| setting.key == key).unwrap_or_else(|| panic!("{key}"))
        };
        assert_eq!(of("channels.pay-a.id").origin, Origin::Discovered);
        assert_eq!(of("channels.pay-a.start").inherits.as_deref(), Some("discover.start"));
        assert_eq!(of("channels.pay-a.verification.org_id").inherits.as_deref(), Some("verification.org_id"));
        assert!(!settings.iter().any(|setting| setting.key.ends_with("pay-a.channels")));
        assert!(load(&state, "").is_err(), "without the table, no channel is configured");
    }

    #[test]
    fn a_configured_channel_is_not_added_and_names_do_not_clash() {
        let state = state(&[(1, "pay a"), (2, "pay_A"), (3, "pay b"), (4, "pay c")]);
        let channel = |name: &str, number| format!("[channels.{name}]\nid = \"{}\"\nsinks = [\"out\"]\n", id(number));
        let configured = [DISCOVER.to_owned(), channel("mine", 3), channel("pay-c", 9)].concat();
        let loaded = load(&state, &configured).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = vec![("mine".to_owned(), false), ("pay-a".to_owned(), true), ("pay-c".to_owned(), false)];
        expected.extend([(format!("pay-A-{}", id(2)), true), (format!("pay-c-{}", id(4)), true)]);
        expected.sort();
        assert_eq!(names(&loaded), expected);
    }

    #[test]
    fn the_table_may_be_the_only_source_of_channels_and_its_mistakes_are_found_before_a_channel_is() {
        let state = state(&[]);
        let loaded = load(&state, DISCOVER).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((loaded.config.channels.len(), loaded.config.notes.len()), (0, 0));
        for (rest, key) in [
            ("[discover]\nsinks = [\"out\"]\n", "discover.channels"),
            ("[discover]\nchannels = \"all\"\n", "discover.sinks"),
            ("[discover]\nchannels = \"all\"\nsinks = [\"nowhere\"]\n", "discover.sinks"),
            ("[discover]\nchannels = \"all\"\nsinks = [\"out\"]\nid = \"x\"\n", "discover.id"),
            ("[discover]\nchannels = \"all\"\nsinks = [\"out\"]\nevery = \"0s\"\n", "discover.every"),
        ] {
            let error = load(&state, rest).err().unwrap_or_else(|| panic!("{rest} was accepted"));
            assert_eq!(error.problems.iter().map(|problem| &*problem.key).collect::<Vec<_>>(), [key], "{error}");
        }
    }

    #[test]
    fn a_change_of_the_remembered_channels_is_noticed_and_a_damaged_list_is_a_mistake() {
        let state = state(&[]);
        let loaded = load(&state, DISCOVER).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.files.again(), loaded.files);
        std::fs::write(discovered::file(state.path()), "[{").expect("a file");
        assert_ne!(loaded.files.again(), loaded.files);
        let error = load(&state, DISCOVER).err().expect("a mistake");
        assert!(error.to_string().contains("remove the file"), "{error}");
    }

    #[test]
    fn a_pattern_selects_names() {
        for (pattern, name, is_selected) in [
            ("all", Some("payments"), true),
            ("all", None, true),
            ("*", Some(""), true),
            ("*", None, false),
            ("payments", Some("payments"), true),
            ("payments", Some("payments-eu"), false),
            ("payments-*", Some("payments-eu"), true),
            ("payments-*", Some("payments-"), true),
            ("payments-*", Some("Payments-eu"), false),
            ("*-eu", Some("payments-eu"), true),
            ("*-eu", Some("payments-eu-2"), false),
            ("p*-*-eu", Some("payments-a-eu"), true),
            ("p*-*-eu", Some("payments-eu"), false),
            ("a*a", Some("a"), false),
            ("a**b", Some("ab"), true),
        ] {
            let parsed = ChannelPattern::parse(pattern).unwrap();
            assert_eq!(parsed.selects(name), is_selected, "{pattern} {name:?}");
        }
        assert!(ChannelPattern::parse(" ").is_err());
    }

    #[test]
    fn every_text_becomes_a_legal_name() {
        let id = "-7c9e6679-7425-40de-944b-e07fc1f90ae7";
        for (text, end, expected) in [
            ("Settlements (EU)", "", "Settlements-EU"),
            ("__a__b__", "", "a-b"),
            ("→", "", "channel"),
            ("", id, &*format!("channel{id}")),
            (&*"x".repeat(70), "", &*"x".repeat(64)),
            (&*format!("{}-y", "x".repeat(26)), id, &*format!("{}{id}", "x".repeat(26))),
        ] {
            assert_eq!(channel_name(text, end), expected);
        }
    }
}
