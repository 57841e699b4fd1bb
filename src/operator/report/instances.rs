//! The instances that share the channels, and their ownership of channels.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::GetCluster;
use crate::configured::by_id;
use crate::{ConfiguredChannel, Operations, Refusal};
use cluster::ClusterState;
use ledger::store::shared::{Instance, InstanceId, Ownership};
use proof::event::ChannelId;

/// The instances and their channels, as the instance that answers saw them at its last heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// The living instances.
    pub instances: Vec<InstanceStatus>,
    /// Every channel that any living instance configures, or that has recorded data.
    pub channels: Vec<ChannelOwner>,
    /// Why the latest heartbeat failed. `instances` and `channels` are then out of date. `None` if the heartbeat
    /// succeeded.
    pub heartbeat_error: Option<String>,
}

/// A living instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// The id of the process.
    pub id: InstanceId,
    /// `cluster.instance` of its configuration.
    pub name: String,
    /// Whether this is the instance that answers.
    #[serde(rename = "self")]
    pub is_self: bool,
    /// How many channels the instance owns.
    pub channels: usize,
    /// Channels that other instances configure, but that are missing in the configuration of the instance `id`.
    pub not_configured: Vec<String>,
}

/// The owner of a channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelOwner {
    /// The name of the channel in the configuration, or its id.
    pub channel: String,
    /// The id of the channel.
    pub channel_id: ChannelId,
    /// The instance that owns the channel. `None` if no living instance owns it.
    pub instance: Option<InstanceId>,
    /// The name of that instance.
    pub owner: Option<String>,
    /// For how many seconds the channel has had no owner.
    pub ownerless_seconds: Option<u64>,
}

impl Operations {
    /// Returns the instances and the owners of the channels.
    #[expect(clippy::unused_async, reason = "every operation is async")]
    pub(crate) async fn cluster(&self, _: &GetCluster) -> Result<Cluster, Refusal> {
        let alone = "the state belongs to one process: instances exist only with state.backend = \"postgres\"";
        let peers = self.cluster.as_ref().ok_or_else(|| Refusal::Usage(alone.to_owned()))?;
        let seen = peers.seen.borrow().clone();
        let owner = |(id, ownership): (&ChannelId, &Ownership)| {
            let (instance, since) = match ownership {
                Ownership::Owned { by, .. } => (Some(*by), None),
                Ownership::Orphaned { since } => (None, Some(since.as_secs())),
            };
            ChannelOwner {
                channel: by_id(&self.channels, *id).name.to_string(),
                channel_id: *id,
                instance,
                owner: seen.view.owner(*id).map(|(_, instance)| instance.name.clone()),
                ownerless_seconds: since,
            }
        };
        let mut channels: Vec<_> = seen.view.channels.iter().map(owner).collect();
        channels.sort_by(|one, other| one.channel.cmp(&other.channel));
        let instances = instances(&seen, peers.membership.me(), &self.channels);
        Ok(Cluster { instances, channels, heartbeat_error: seen.trouble })
    }
}

pub(crate) fn instances(seen: &ClusterState, me: InstanceId, configured: &[ConfiguredChannel]) -> Vec<InstanceStatus> {
    let owned = seen.view.counts();
    let sharing = || seen.view.instances.iter().filter(|(_, instance)| instance.shares());
    let mut configurations = sharing().map(|(_, instance)| &instance.configured);
    let first = configurations.next();
    // Usually the configurations are equal and share one value. Comparing pointers then shows that no channel is missing.
    // Otherwise, the lists themselves are compared.
    let are_equal = configurations.all(|other| first.is_some_and(|first| Arc::ptr_eq(first, other)));
    let differing = sharing().filter(|_| !are_equal);
    let all: BTreeSet<_> = differing.flat_map(|(_, instance)| instance.configured.channels.iter().copied()).collect();
    let status = |(id, instance): (&InstanceId, &Instance)| InstanceStatus {
        id: *id,
        name: instance.name.clone(),
        is_self: *id == me,
        channels: owned.get(id).copied().unwrap_or_default(),
        not_configured: all
            .difference(&instance.configured.channels)
            .map(|id| by_id(configured, *id).name.to_string())
            .collect(),
    };
    let mut instances: Vec<_> = sharing().map(status).collect();
    instances.sort_by(|one, other| one.name.cmp(&other.name));
    instances
}
