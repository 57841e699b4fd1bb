//! `[channels.NAME]`: which channels are read, from where, and to which sinks.

use std::collections::BTreeMap;

use super::filter;
use super::table::{Merged, Reported, Table};
use super::verification::{Level, Verification};
use crate::channel::Start;
use crate::event::{ChannelId, Offset};
use crate::operator::ConfiguredChannel;
use crate::record::{ChannelRef, Filter};

/// `[channels.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name here and its id at the service. No other channel has either.
    pub channel: ChannelRef,
    /// The names of its sinks, in the operator's order: at least one, each defined, none twice.
    pub sinks: Vec<String>,
    /// Which events a sink is given, where that differs from the sink's own filter.
    pub filters: BTreeMap<String, Filter>,
    /// Where reading begins as long as there is no cursor.
    pub start: Start,
    /// What its events must satisfy.
    pub verification: Verification,
}

impl Channel {
    /// What an operator's requests need to know of it.
    #[must_use]
    pub fn for_operator(&self) -> ConfiguredChannel {
        ConfiguredChannel {
            channel: self.channel.clone(),
            sinks: self.sinks.iter().map(|sink| sink.as_str().into()).collect(),
            verifier: self.verification.verifier.clone(),
        }
    }
}

/// Reads every channel, in the order of their names.
pub(super) fn read_all(merged: &mut Merged) -> Result<Vec<Channel>, Reported> {
    let sinks = merged.table("sinks").names().unwrap_or_default();
    let shared = Level::read(&mut merged.table("verification"));
    let names = merged.table("channels").names()?;
    if names.is_empty() {
        let message = "there is no channel; add a [channels.NAME] table with its id and sinks";
        return Err(merged.table("channels").wrong_itself(message));
    }
    let mut read_before = BTreeMap::new();
    let channels: Vec<_> =
        names.into_iter().map(|name| read(merged, &name, &sinks, &shared, &mut read_before)).collect();
    channels.into_iter().collect()
}

/// `read_before` are the ids of the channels before it, with their names.
fn read(
    merged: &mut Merged,
    name: &str,
    defined: &[String],
    shared: &Level,
    read_before: &mut BTreeMap<ChannelId, String>,
) -> Result<Channel, Reported> {
    let mut channels = merged.table("channels");
    let mut table = channels.table(name);
    table.check_name();
    let id = read_id(&mut table, read_before);
    let sinks = read_sinks(&mut table, defined);
    let filters =
        sinks.as_deref().map_or(Ok(BTreeMap::new()), |sinks| read_filters(&mut table.table("filters"), sinks));
    let start = table.optional("start", start);
    let verification = Level::read(&mut table.table("verification")).over(shared, merged);
    Ok(Channel {
        channel: ChannelRef { name: name.into(), id: id? },
        sinks: sinks?,
        filters: filters?,
        start: start?.unwrap_or(Start::Earliest),
        verification: verification?,
    })
}

fn read_id(table: &mut Table<'_>, read_before: &mut BTreeMap<ChannelId, String>) -> Result<ChannelId, Reported> {
    let id = table.required("id", |text| {
        text.trim().parse().map_err(|_| "must be the channel's UUID as the service shows it".to_owned())
    })?;
    match read_before.insert(id, table.key().at("id").to_string()) {
        None => Ok(id),
        Some(other) => Err(table.wrong("id", format!("is the same as {other}; read each channel once"))),
    }
}

fn read_sinks(table: &mut Table<'_>, defined: &[String]) -> Result<Vec<String>, Reported> {
    let names = table.list("sinks")?.ok_or_else(|| table.missing("sinks"))?;
    let mut outcome = if names.is_empty() { Err(table.wrong("sinks", "is empty; name a sink")) } else { Ok(()) };
    for (index, name) in names.iter().enumerate() {
        if !defined.contains(name) {
            outcome = Err(table.wrong("sinks", undefined(name, defined)));
        } else if names[..index].contains(name) {
            outcome = Err(table.wrong("sinks", format!("names the sink {name:?} twice; name each sink once")));
        }
    }
    outcome.map(|()| names)
}

fn read_filters(table: &mut Table<'_>, sinks: &[String]) -> Result<BTreeMap<String, Filter>, Reported> {
    let names = table.names()?;
    let read = |name: String| match filter::read(table, &name)? {
        _ if !sinks.contains(&name) => {
            let message = format!("is no sink of this channel, whose sinks are: {}", sinks.join(", "));
            Err(table.wrong(&name, message))
        }
        filter => Ok(filter.map(|filter| (name, filter))),
    };
    let filters: Vec<_> = names.into_iter().map(read).collect();
    filters.into_iter().filter_map(Result::transpose).collect()
}

fn undefined(name: &str, defined: &[String]) -> String {
    if defined.is_empty() {
        return format!("names the sink {name:?}, but none is defined; add a [sinks.NAME] table");
    }
    format!("names the sink {name:?}, which is not one of those defined: {}", defined.join(", "))
}

fn start(text: &str) -> Result<Start, String> {
    match text.trim() {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        number => match number.parse().ok().and_then(Offset::new) {
            Some(offset) => Ok(Start::Offset(offset)),
            None => Err("must be \"earliest\", \"latest\" or an offset, a whole number from 0".to_owned()),
        },
    }
}
