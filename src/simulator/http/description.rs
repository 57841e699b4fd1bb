//! Channels and watchers as the service describes them (spec/wire.md, "Requests").

use serde::Serialize;
use uuid::Uuid;

use crate::channel::Channel;
use crate::event::content::{json, rfc3339};
use crate::event::contracts::SERVICES;
use crate::event::roster::WatcherStatus;
use proof::event::ChannelId;
use proof::verify::Hash;

/// The creation time of everything, in Unix seconds.
const CREATED_AT: i64 = 1_735_689_600;

/// The network that runs the workflows of watchers.
const DON_FAMILY: &str = "simulated";

#[derive(Serialize)]
struct ChannelRecord {
    channel_id: ChannelId,
    name: String,
    description: &'static str,
    status: &'static str,
    created_at: String,
}

#[derive(Serialize)]
struct WatcherRecord<'a> {
    watcher_id: Uuid,
    channel_id: ChannelId,
    name: String,
    status: WatcherStatus,
    chain_selector: &'a str,
    address: &'a str,
    service: &'a str,
    events: Vec<&'a str>,
    don_family: &'a str,
    workflow_id: Hash,
    created_at: String,
}

/// Returns a channel's own description.
pub(crate) fn channel(channel: &Channel) -> String {
    json(&ChannelRecord {
        channel_id: channel.roster.channel,
        name: format!("simulated channel {}", channel.number),
        description: "Its events are made up",
        status: "active",
        created_at: rfc3339(CREATED_AT),
    })
}

/// Returns one watcher of a channel, if it exists.
pub(crate) fn watcher(channel: &Channel, id: Uuid) -> Option<String> {
    let at = channel.roster.watchers.iter().position(|watcher| watcher.id == id)?;
    let watcher = &channel.roster.watchers[at];
    let (service, state) = (&SERVICES[watcher.service], channel.state());
    Some(json(&WatcherRecord {
        watcher_id: watcher.id,
        channel_id: channel.roster.channel,
        name: format!("{} watcher", service.name),
        status: state.watcher_statuses[at],
        chain_selector: watcher.chain.selector,
        address: &watcher.address,
        service: service.name,
        events: service.events.iter().map(|emitted| emitted.name).collect(),
        don_family: DON_FAMILY,
        workflow_id: Hash(watcher.workflow_id(state.log.deployment(state.log.len()))),
        created_at: rfc3339(CREATED_AT),
    }))
}
