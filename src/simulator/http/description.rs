//! Channels and watchers as the service describes them (spec/wire.md, "Requests").

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use crate::channel::Channel;
use crate::channel::page::PageRequest;
use crate::event::content::{json, rfc3339};
use crate::event::contracts::SERVICES;
use crate::event::roster::WatcherStatus;
use crate::misbehaviour::Misbehaviour;
use crate::version::ApiVersion;
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
struct ChannelList {
    channels: Vec<ChannelRecord>,
    has_more: bool,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence_level: Option<&'static str>,
    workflow_id: Hash,
    created_at: String,
}

/// Returns a channel's own description.
pub(crate) fn channel(channel: &Channel) -> String {
    json(&record(channel))
}

/// Returns a page of the list of channels. `request.offset` is the number of channels before the page.
pub(crate) fn channels(channels: &[Arc<Channel>], request: PageRequest) -> String {
    let before = usize::try_from(request.offset.unwrap_or(0)).unwrap_or(usize::MAX);
    let listed: Vec<_> = channels.iter().filter(|channel| channel.state().is_listed).collect();
    let rest = listed.get(before..).unwrap_or_default();
    let page = rest.iter().take(request.limit).map(|channel| record(channel)).collect();
    json(&ChannelList { channels: page, has_more: rest.len() > request.limit })
}

fn record(channel: &Channel) -> ChannelRecord {
    let is_archived = channel.state().log.misbehaviour == Some(Misbehaviour::Status(404));
    ChannelRecord {
        channel_id: channel.roster.channel,
        name: format!("simulated channel {}", channel.number),
        description: "Its events are made up",
        status: if is_archived { "archived" } else { "active" },
        created_at: rfc3339(CREATED_AT),
    }
}

/// Returns one watcher of a channel, if it exists.
pub(crate) fn watcher(channel: &Channel, id: Uuid, version: ApiVersion) -> Option<String> {
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
        confidence_level: version.has_confidence_level().then_some("finalized"),
        workflow_id: Hash(watcher.workflow_id(state.log.deployment(state.log.len()))),
        created_at: rfc3339(CREATED_AT),
    }))
}
