//! `[channels.NAME]`: the channels to read, where each begins, and its sinks.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use strum::VariantArray;

use super::account;
use super::filter;
use super::verification::Levels;
use crate::config::reading::values::{duration, positive_duration};
use crate::config::reading::{Reported, Section, all};
use crate::config::settings_list::SettingsList;
use ::channel::{Expect, OffsetOrTime, SignedField, Start, Verification};
use ::record::{ChannelRef, Filter};
use api::AccountName;
use net::time::Time;
use operator::ConfiguredChannel;
use proof::event::ChannelId;

/// The values of `start`.
const START: &str = "must be \"earliest\", \"latest\", an offset (a whole number, 0 or larger), or a time, such as \
                     \"2026-11-01T00:00:00Z\", \"@1793491200\" (Unix seconds) or \"7d\" (that long ago)";

/// `[channels.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The channel's name in the configuration, and its id at the service. Both are unique.
    pub channel: ChannelRef,
    /// Whether `[discover]` has added the channel. Otherwise the operator's files configure it.
    pub discovered: bool,
    /// The account whose key reads the channel, and whose organization owns its events.
    pub account: AccountName,
    /// The names of the channel's sinks, in the operator's order: at least one, each defined, none twice.
    pub sinks: Vec<String>,
    /// Filters by the name of a sink. Each filter replaces the sink's own filter for this channel.
    pub filters: BTreeMap<String, Filter>,
    /// Where reading begins while the channel has no cursor.
    pub start: Start,
    /// For how long after an event was read, an event with a lower offset may still become visible. With zero, the
    /// channel does not look for such events.
    pub settle: Duration,
    /// How often the channel's sinks are compared with the service's history; `None`: never.
    pub compare: Option<Duration>,
    /// The requirements for the channel's events.
    pub verification: Verification,
}

impl Channel {
    /// Describes the channel for `channeld check`.
    pub fn shown(&self) -> SettingsList {
        let Self { channel, account, sinks, start, verification, .. } = self;
        let signers = &verification.verifier.signers;
        let expect = verification.expect.lists().map(|(what, values)| (<&str>::from(what), values));
        let start = match start {
            Start::Earliest => json!("earliest"),
            Start::Latest => json!("latest"),
            Start::Offset(offset) => json!(offset),
            Start::Time(time) => json!(time.to_string()),
        };
        let mut shown = vec![
            ("name", json!(channel.name)),
            ("id", json!(channel.id)),
            ("account", json!(account)),
            ("start", start),
            ("sinks", json!(sinks)),
            ("workflow_owner", json!(verification.verifier.workflow_owner)),
            ("min_required_signatures", json!(signers.required())),
            ("valid_signers", json!(signers.addresses())),
            ("expect", json!(expect.collect::<BTreeMap<_, _>>())),
            ("unsigned", json!(<&str>::from(verification.unsigned))),
            ("ordering", json!(<&str>::from(verification.ordering))),
        ];
        shown.extend(self.discovered.then_some(("discovered", json!(true))));
        shown
    }

    /// Returns the part that the requests of operators need.
    pub fn for_operator(&self) -> ConfiguredChannel {
        ConfiguredChannel {
            channel: self.channel.clone(),
            discovered: self.discovered,
            account: self.account.clone(),
            sinks: self.sinks.iter().map(|sink| sink.as_str().into()).collect(),
            verifier: (*self.verification.verifier).clone(),
            expect: self.verification.expect.clone(),
        }
    }
}

/// Reads every configured channel, in the order of their names. Channels with mistakes are left out. If `may_be_empty` is not set,
/// at least one channel must be configured.
pub(crate) fn read_all(root: &Section<'_>, may_be_empty: bool) -> Vec<Channel> {
    let (channels, sinks) = (root.section("channels"), root.section("sinks").names().unwrap_or_default());
    let names = channels.names();
    if names.as_ref().is_ok_and(Vec::is_empty) && !may_be_empty {
        root.wrong(
            "channels",
            "no channel is configured; add a [channels.NAME] table with its id and sinks, or set [discover]",
        );
    }
    let names = names.unwrap_or_default();
    if names.is_empty() {
        // Report mistakes in [verification] even if no channel is configured.
        let _ = Levels::shared(root).read(Expect::default());
    }
    let mut ids = BTreeMap::new();
    let read = |name: &String| {
        channels.check_name(name);
        let channel = channels.section(name);
        let identity = read_id(&channel, &mut ids).map(|id| ChannelRef { name: name.as_str().into(), id });
        read(root, &channel, &sinks, identity).ok()
    };
    names.iter().filter_map(read).collect()
}

/// Reads the settings that channels of `[discover]` have in common. Their name and id are placeholders.
pub(crate) fn read_template(root: &Section<'_>, table: &Section<'_>) -> Result<Channel, Reported> {
    let sinks = root.section("sinks").names()?;
    let placeholder = ChannelRef { name: table.key.name().into(), id: ChannelId::default() };
    let channel = read(root, table, &sinks, Ok(placeholder))?;
    Ok(Channel { discovered: true, ..channel })
}

fn read(
    root: &Section<'_>,
    table: &Section<'_>,
    defined: &[String],
    identity: Result<ChannelRef, Reported>,
) -> Result<Channel, Reported> {
    let levels = Levels::of_channel(root, table);
    let verification = levels.read(read_expect(&table.section("expect")));
    all!(Channel {
        channel: identity,
        account: account::of_channel(root, table),
        discovered: Ok(false),
        sinks: read_sinks(table, defined),
        filters: sinks.as_ref().map_or(Ok(BTreeMap::new()), |sinks| read_filters(&table.section("filters"), sinks)),
        start: read_start(table),
        settle: table.or("settle", duration, "30s"),
        compare: table.optional("compare", positive_duration),
        verification: verification.and_then(|found| found.ok_or_else(|| levels.without_owner())),
    })
}

/// `ids` contains the ids of the previous channels, with their keys.
fn read_id(channel: &Section<'_>, ids: &mut BTreeMap<ChannelId, String>) -> Result<ChannelId, Reported> {
    let id = channel.required("id", |text| {
        text.trim().parse().map_err(|_| "must be the channel's UUID as the service shows it".to_owned())
    })?;
    if let Some(other) = ids.insert(id, channel.key.at("id").to_string()) {
        channel.wrong("id", format!("is the same as {other}; read each channel once"));
    }
    Ok(id)
}

fn read_sinks(channel: &Section<'_>, defined: &[String]) -> Result<Vec<String>, Reported> {
    let names = channel.list("sinks")?.ok_or_else(|| channel.missing("sinks"))?;
    if names.is_empty() {
        channel.wrong("sinks", "is empty; name a sink");
    }
    for (index, name) in names.iter().enumerate() {
        if !defined.contains(name) {
            let known = match defined {
                [] => "but none is defined; add a [sinks.NAME] table".to_owned(),
                _ => format!("which is not one of those defined: {}", defined.join(", ")),
            };
            channel.wrong("sinks", format!("names the sink {name:?}, {known}"));
        } else if names[..index].contains(name) {
            channel.wrong("sinks", format!("names the sink {name:?} twice; name each sink once"));
        }
    }
    Ok(names)
}

fn read_filters(filters: &Section<'_>, sinks: &[String]) -> Result<BTreeMap<String, Filter>, Reported> {
    let mut read = BTreeMap::new();
    for name in filters.names()? {
        let Ok(Some(filter)) = filter::read(filters, &name) else { continue };
        if !sinks.contains(&name) {
            let message = format!("is not a sink of this channel, whose sinks are: {}", sinks.join(", "));
            filters.wrong(&name, message);
        }
        read.insert(name, filter);
    }
    Ok(read)
}

fn read_expect(expect: &Section<'_>) -> Expect {
    const EMPTY: &str = "is empty, so that every event would be rejected; list values, or remove it";
    let read = |what: &SignedField| {
        let canonical = |number, text: &str| {
            let value = what.canonical(text.trim());
            value.map_err(|wrong| format!("item {number} of the list {wrong}: no event can match it"))
        };
        Some((*what, expect.items(what.into(), EMPTY, canonical).ok()??))
    };
    Expect::of(SignedField::VARIANTS.iter().filter_map(read))
}

fn read_start(channel: &Section<'_>) -> Result<Start, Reported> {
    let start = channel.or("start", start, "earliest")?;
    if let Start::Time(Time::At(time)) = start
        && time > Timestamp::now()
    {
        channel.note("start", "is in the future; reading begins after the newest event");
    }
    Ok(start)
}

fn start(text: &str) -> Result<Start, String> {
    match text.trim() {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        other => match other.parse() {
            Ok(OffsetOrTime::Offset(offset)) => Ok(Start::Offset(offset)),
            Ok(OffsetOrTime::Time(time)) => Ok(Start::Time(time)),
            Err(_) => Err(START.to_owned()),
        },
    }
}
