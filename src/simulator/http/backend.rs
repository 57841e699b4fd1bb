//! The state that the routes and the methods for tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinError;

use super::envelope::RequestError;
use crate::channel::{Channel, now_ms};
use crate::event::network::Network;
use crate::fault::{Faults, Route};
use crate::keys::AcceptedKeys;
use crate::misbehaviour::Misbehaviour;
use crate::options::Options;
use crate::version::ApiVersion;
use proof::event::ChannelId;

/// The simulated service behind its routes.
pub(crate) struct Backend {
    pub(crate) channels: Vec<Arc<Channel>>,
    pub(crate) faults: Faults,
    pub(crate) requests: Counters,
    pub(crate) version: ApiVersion,
    pub(crate) keys: AcceptedKeys,
}

/// How many requests came to each route, whatever the answer was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Poll requests.
    pub poll: u64,
    /// Search requests.
    pub search: u64,
    /// Requests for one event.
    pub event: u64,
    /// Requests for a channel itself.
    pub channel: u64,
    /// Requests for a watcher.
    pub watcher: u64,
    /// Requests for the list of channels.
    pub channels: u64,
    /// Requests for the list of networks.
    pub networks: u64,
    /// Health checks.
    pub health: u64,
}

/// Counts requests.
#[derive(Default)]
pub(crate) struct Counters([AtomicU64; 8]);

impl Counters {
    pub(crate) fn count(&self, route: Route) {
        self.0[route as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Requests {
        let count = |route: Route| self.0[route as usize].load(Ordering::Relaxed);
        Requests {
            poll: count(Route::Poll),
            search: count(Route::Search),
            event: count(Route::Event),
            channel: count(Route::Channel),
            watcher: count(Route::Watcher),
            channels: count(Route::Channels),
            networks: count(Route::Networks),
            health: count(Route::Health),
        }
    }
}

impl Backend {
    pub(crate) fn new(options: &Options, network: &Arc<Network>) -> Self {
        let now_ms = now_ms();
        let channel = |number| Arc::new(Channel::new(options, number, network, now_ms));
        Self {
            channels: (0..options.channels as u64).map(channel).collect(),
            faults: Faults::new(options.seed, options.faults),
            requests: Counters::default(),
            version: options.api_version,
            keys: AcceptedKeys::new(options.accepted_keys(), &options.deny),
        }
    }

    /// Makes every record of every channel.
    pub(crate) async fn prepare(&self) -> Result<(), JoinError> {
        for channel in &self.channels {
            channel.prepare().await?;
        }
        Ok(())
    }

    /// Returns the channel with this id.
    pub(crate) fn channel(&self, id: &str) -> Result<&Arc<Channel>, RequestError> {
        let id: ChannelId = id.parse().map_err(|_| super::query::InvalidQuery("channel_id: not a UUID".to_owned()))?;
        let found = self.channels.iter().find(|channel| channel.roster.channel == id);
        found.ok_or_else(|| RequestError::not_found("CHANNEL_NOT_FOUND", "the channel does not exist"))
    }

    /// Returns how the channel in this path misbehaves. The path does not include the base.
    pub(crate) fn misbehaviour(&self, path: &str) -> Option<Misbehaviour> {
        let id: ChannelId = path.strip_prefix("/channels/")?.split('/').next()?.parse().ok()?;
        let channel = self.channels.iter().find(|channel| channel.roster.channel == id)?;
        channel.state().log.misbehaviour
    }

    /// Adds events to every channel.
    pub(crate) fn publish(&self, events: u64) {
        for channel in &self.channels {
            channel.state_mut().log.publish(events, now_ms());
        }
    }
}
