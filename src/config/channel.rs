//! The channels: which are read, from where, and to which sinks.

use std::collections::BTreeMap;

use super::filter;
use super::keys::{Key, Keys, Reported};
use super::values::check_name;
use super::verification::{Level, Verification};
use crate::event::{ChannelId, Offset};
use crate::record::{ChannelRef, Filter};

/// `[channels.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name here and its id at the service. No other channel has either.
    pub channel: ChannelRef,
    /// The names of its sinks, in the operator's order: at least one, each defined, none twice.
    pub sinks: Vec<String>,
    /// Which events each of them is given, where its own filter is not the one.
    pub filters: BTreeMap<String, Filter>,
    /// Where reading begins as long as there is no cursor.
    pub start: Start,
    /// What it asks of its events.
    pub verification: Verification,
}

/// Where reading begins as long as there is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the channel's first event.
    Earliest,
    /// After its newest event.
    Latest,
    /// With the event at this offset, or else the first after it.
    Offset(Offset),
}

/// Reads every channel, in the order of their names. `sinks` are the names that may be used.
pub(super) fn read_all(keys: &mut Keys, sinks: &[String]) -> Result<Vec<Channel>, Reported> {
    let table = Key::new("channels");
    let shared = Level::read(keys, Key::new("verification"));
    let names = keys.names(&table)?;
    if names.is_empty() {
        return Err(keys.wrong(&table, "there is no channel; add a [channels.NAME] table with its id and sinks"));
    }
    let mut ids = BTreeMap::new();
    let channels: Vec<_> =
        names.into_iter().map(|name| read(keys, &table.at(&name), name, sinks, &shared, &mut ids)).collect();
    channels.into_iter().collect()
}

fn read(
    keys: &mut Keys,
    channel: &Key,
    name: String,
    sinks: &[String],
    shared: &Level,
    ids: &mut BTreeMap<ChannelId, Key>,
) -> Result<Channel, Reported> {
    check_name(keys, channel);
    let id = read_id(keys, &channel.at("id"), ids);
    let sinks = read_sinks(keys, &channel.at("sinks"), sinks);
    let filters =
        sinks.as_deref().map_or(Ok(BTreeMap::new()), |sinks| read_filters(keys, &channel.at("filters"), sinks));
    let start = keys.optional(&channel.at("start"), start);
    let verification = Level::read(keys, channel.at("verification")).over(shared, keys);
    Ok(Channel {
        channel: ChannelRef { name: name.into(), id: id? },
        sinks: sinks?,
        filters: filters?,
        start: start?.unwrap_or(Start::Earliest),
        verification: verification?,
    })
}

fn read_id(keys: &mut Keys, key: &Key, ids: &mut BTreeMap<ChannelId, Key>) -> Result<ChannelId, Reported> {
    let id = keys.required(key, |text| {
        text.trim().parse().map_err(|_| "must be the channel's UUID as the service shows it".to_owned())
    })?;
    match ids.insert(id, key.clone()) {
        None => Ok(id),
        Some(other) => Err(keys.wrong(key, format!("is the same as {other}; read each channel once"))),
    }
}

fn read_sinks(keys: &mut Keys, key: &Key, defined: &[String]) -> Result<Vec<String>, Reported> {
    let names = keys.list(key)?.ok_or_else(|| keys.missing(key))?;
    let mut outcome = if names.is_empty() { Err(keys.wrong(key, "is empty; name a sink")) } else { Ok(()) };
    for (index, name) in names.iter().enumerate() {
        if !defined.contains(name) {
            outcome = Err(keys.wrong(key, undefined(name, defined)));
        } else if names[..index].contains(name) {
            outcome = Err(keys.wrong(key, format!("names the sink {name:?} twice; name each sink once")));
        }
    }
    outcome.map(|()| names)
}

fn read_filters(keys: &mut Keys, table: &Key, sinks: &[String]) -> Result<BTreeMap<String, Filter>, Reported> {
    let mut filters = Ok(BTreeMap::new());
    for name in keys.names(table)? {
        let read = match filter::read(keys, &table.at(&name)) {
            Ok(_) if !sinks.contains(&name) => Err(keys
                .wrong(&table.at(&name), format!("is no sink of this channel, whose sinks are: {}", sinks.join(", ")))),
            read => read,
        };
        match (read, &mut filters) {
            (Ok(filter), Ok(filters)) => filters.extend(filter.map(|filter| (name, filter))),
            (Err(reported), _) => filters = Err(reported),
            (Ok(_), Err(_)) => {}
        }
    }
    filters
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
