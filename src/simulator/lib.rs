//! A simulation of the service, with real proofs by made-up signers, and with every known fault.
//!
//! Tests cannot reach the service, so this crate replaces it: poll, search, single event, channels, watcher, networks,
//! health, authentication and the error envelope of spec/wire.md, over HTTP. spec/wire.md also lists open questions about the
//! service. For each question, an option selects the simulator's behavior, so that a client can be tested with every
//! possible answer. [`Simulator`] runs in a test's own process and lets the test publish, withhold, forge and break
//! events. `channeld simulate` runs it as a program.
//!
//! # Invariants
//!
//! * **Deterministic.** Everything except the time of day is computed from [`Options::seed`]. Each event is computed
//!   on its own, without a stored table. A backlog of a million events is therefore available at once.
//! * **Signed once.** The newest records are kept with their signatures, so that a benchmark measures the client and
//!   not the signing.
//! * **The correct verdicts are known.** [`Simulator::offsets`] returns, for each event, the verdict that a correct
//!   verifier must reach.
//!
//! # Cancellation
//!
//! Stopping or dropping a [`Simulator`] closes its listener and cuts the open connections.

#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

mod channel;
mod event;
mod fault;
mod http;
mod keys;
mod misbehaviour;
mod options;
mod publisher;
mod random;
mod version;

pub use event::kind::{EventSpec, Honesty, Kind, Original, ReplayedId, Tampering};
pub use event::roster::{WatcherConfidence, WatcherStatus};
pub use fault::{Fault, Route};
pub use http::backend::Requests;
pub use keys::{Deny, ParseKeyError, RevokeKey};
pub use misbehaviour::{MisbehavingChannels, Misbehaviour, ParseMisbehaviourError};
pub use options::{GoBack, HasMore, LateProofs, Options, ParseAfterError, ParseStealError, Signing, Steal, Window};
pub use version::ApiVersion;

use channel::{Channel, now_ms};
use event::network::Network;
use http::backend::Backend;
use http::connection::{Connections, Control};
use http::routes;
use proof::event::ChannelId;
use proof::verify::{Address, Hash};

/// The facts about a running simulator that a client needs.
#[derive(Clone, Debug, Serialize)]
pub struct Announcement {
    /// The base URL. It ends in `/v1`, without a trailing slash.
    pub base_url: String,
    /// The first API key that the simulator accepts.
    pub api_key: String,
    /// The organization that owns the events, in tenant `1`.
    pub org_id: String,
    /// The workflow owner that is derived from [`org_id`](Self::org_id).
    pub workflow_owner: Address,
    /// The signers of the network.
    pub valid_signers: Vec<Address>,
    /// How many of the signers sign each report.
    pub min_required_signatures: usize,
    /// The ids of the channels. Methods of [`Simulator`] name a channel by its index in this list.
    pub channels: Vec<ChannelId>,
    /// The ids of each channel's watchers.
    pub watchers: Vec<Vec<Uuid>>,
}

/// A running simulator. It ends when it is stopped or dropped.
pub struct Simulator {
    backend: Arc<Backend>,
    announcement: Announcement,
    stop: DropGuard,
    tasks: JoinSet<()>,
}

impl Simulator {
    /// Starts listening and answering. With [`Options::prepared`], this includes computing all signatures.
    ///
    /// # Errors
    /// If the simulator cannot listen on the address.
    pub async fn start(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let network = Arc::new(Network::new(&options));
        let backend = Arc::new(Backend::new(&options, &network));
        if options.prepared {
            backend.prepare().await?;
        }
        let announcement = announce(listener.local_addr()?, &options, &network, &backend.channels);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&backend), stop.clone()));
        if let Some(spacing) = publisher::spacing(options.rate) {
            tasks.spawn(publisher::publish(Arc::clone(&backend), spacing, stop.clone()));
        }
        if let Some(go_back) = options.go_back {
            tasks.spawn(publisher::go_back(Arc::clone(&backend), go_back, stop.clone()));
        }
        for revoke in options.revoke_key {
            tasks.spawn(publisher::revoke(Arc::clone(&backend), revoke, stop.clone()));
        }
        Ok(Self { backend, announcement, stop: stop.drop_guard(), tasks })
    }

    /// Returns the address, the keys and the ids that a client needs.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// Closes the listener, cuts the open connections, and waits until all tasks have ended.
    pub async fn stop(mut self) {
        drop(self.stop);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Adds events that happen now to a channel. The shares in the options decide which of them are unsigned, late or
    /// forged.
    ///
    /// # Panics
    /// This method and the methods below panic if the channel does not exist.
    pub fn publish(&self, channel: usize, events: u64) {
        self.channel(channel).state_mut().log.publish(events, now_ms());
    }

    /// Adds the event that `spec` describes to a channel, and returns the offset of the event. An [`ApiVersion`] without
    /// the kind of the event publishes another kind.
    pub fn publish_one(&self, channel: usize, spec: EventSpec) -> i64 {
        self.channel(channel).state_mut().log.publish_one(spec, now_ms())
    }

    /// Makes the service go back in time: the newest events of a channel disappear, and different events are published under
    /// their offsets.
    pub fn go_back(&self, channel: usize, events: u64) {
        self.channel(channel).state_mut().log.go_back(events);
    }

    /// Makes an event honest and complete from now on: a withheld proof arrives, and a forged or malformed record is
    /// replaced with a correct one. The id and the offset do not change.
    ///
    /// # Panics
    /// If the channel has no event at this offset.
    pub fn prove(&self, channel: usize, offset: i64) {
        let found = self.channel(channel).state_mut().log.prove(offset);
        assert!(found, "channel {channel} has no event at offset {offset}");
    }

    /// Publishes an event's payload and proof again, as a new event of channel `into`, and returns its offset.
    ///
    /// # Panics
    /// If channel `from` has no event at this offset.
    pub fn replay(&self, from: usize, offset: i64, into: usize, id: ReplayedId) -> i64 {
        let original = self.channel(from).state().log.original(offset, id);
        let original = original.unwrap_or_else(|| panic!("channel {from} has no event at offset {offset}"));
        self.publish_one(into, EventSpec::Displaced(original))
    }

    /// Replaces the content and the proof of an event. Its id and offset do not change, and the new proof is valid.
    /// [`prove`](Self::prove) restores the original.
    ///
    /// # Panics
    /// If the channel has no event at this offset.
    pub fn contradict(&self, channel: usize, offset: i64) {
        let found = self.channel(channel).state_mut().log.contradict(offset);
        assert!(found, "channel {channel} has no event at offset {offset}");
    }

    /// Redeploys the watchers of a channel: events that are published from now on come from new workflows.
    pub fn redeploy(&self, channel: usize) {
        self.channel(channel).state_mut().log.redeploy();
    }

    /// Returns the current workflows of a channel's watchers.
    pub fn workflow_ids(&self, channel: usize) -> Vec<Hash> {
        let (channel, state) = (self.channel(channel), self.channel(channel).state());
        let deployment = state.log.deployment(state.log.len());
        channel.roster.watchers.iter().map(|watcher| Hash(watcher.workflow_id(deployment))).collect()
    }

    /// Archives the channel from now on.
    pub fn archive(&self, channel: usize) {
        self.misbehave(channel, Some(Misbehaviour::Status(404)));
    }

    /// Sets whether the list of channels contains the channel from now on.
    pub fn set_listed(&self, channel: usize, is_listed: bool) {
        self.channel(channel).state_mut().is_listed = is_listed;
    }

    /// Sets how the channel misbehaves from now on. `None` means that it behaves correctly. A misbehaviour that affects
    /// events changes the existing events too.
    pub fn misbehave(&self, channel: usize, how: Option<Misbehaviour>) {
        self.channel(channel).state_mut().log.misbehave(how);
    }

    /// Answers the next `times` requests with a fault. The fault applies to every route except the health check,
    /// the networks and the watchers. Faults
    /// are used in the order in which they were added.
    pub fn fail_next(&self, fault: Fault, times: usize) {
        self.backend.faults.add(None, fault, times);
    }

    /// Answers the next `times` requests of one route with a fault.
    pub fn fail_next_on(&self, route: Route, fault: Fault, times: usize) {
        self.backend.faults.add(Some(route), fault, times);
    }

    /// Accepts only this API key from now on.
    pub fn set_api_key(&self, key: &str) {
        self.backend.keys.set(key);
    }

    /// Answers this API key with 401 from now on.
    pub fn revoke_api_key(&self, key: &str) {
        self.backend.keys.revoke(key);
    }

    /// Answers this API key with 403 on a route from now on, because it lacks the scope.
    pub fn deny(&self, key: &str, route: Route) {
        self.backend.keys.deny(key, route);
    }

    /// Sets the status of a watcher.
    ///
    /// # Panics
    /// If the channel has no such watcher.
    pub fn set_watcher_status(&self, channel: usize, watcher: Uuid, status: WatcherStatus) {
        let channel = self.channel(channel);
        let at = channel.roster.watchers.iter().position(|known| known.id == watcher);
        let at = at.expect("the watcher is one of the channel's");
        channel.state_mut().watcher_statuses[at] = status;
    }

    /// Returns the truth: every event's offset in ascending order, and the verdict that a correct verifier must reach at
    /// this moment.
    pub fn offsets(&self, channel: usize) -> Vec<(i64, Honesty)> {
        self.channel(channel).offsets()
    }

    /// Returns how many requests came to each route.
    pub fn requests(&self) -> Requests {
        self.backend.requests.read()
    }

    fn channel(&self, channel: usize) -> &Channel {
        &self.backend.channels[channel]
    }
}

fn announce(at: SocketAddr, options: &Options, network: &Network, channels: &[Arc<Channel>]) -> Announcement {
    Announcement {
        base_url: format!("http://{at}{}", routes::BASE),
        api_key: options.accepted_keys().swap_remove(0),
        org_id: options.org_id.clone(),
        workflow_owner: network.owner(),
        valid_signers: network.addresses(),
        min_required_signatures: options.required,
        channels: channels.iter().map(|channel| channel.roster.channel).collect(),
        watchers: channels.iter().map(|channel| channel.roster.watcher_ids()).collect(),
    }
}

async fn serve(listener: TcpListener, backend: Arc<Backend>, stop: CancellationToken) {
    let connections = Connections::new(listener, stop.clone());
    let service = routes::router(backend).into_make_service_with_connect_info::<Control>();
    // The server ends only when `stop` fires: a connection that cannot be accepted is retried.
    let _ = axum::serve(connections, service).with_graceful_shutdown(stop.cancelled_owned()).await;
}
