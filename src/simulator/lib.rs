//! The service, simulated: real proofs by made-up signers, and every fault there is.
//!
//! The service cannot be reached from a test, so this stands in for it: poll, search, single event, watcher, health,
//! authentication and the error envelope of spec/wire.md, over HTTP. Every open question of that page is an option, so
//! that a client can be held against each answer. [`Simulator`] runs in a test's own process and gives it hands to
//! publish, withhold, forge and break; `channeld simulate` runs it as a program.
//!
//! # Invariants
//!
//! * **Deterministic.** All but the time of day follows from [`Options::seed`], event by event and without a table, so a
//!   backlog of a million events starts at once.
//! * **Signed once.** A record that has been made is kept, so what a bench measures is its client.
//! * **Honest about itself.** [`Simulator::offsets`] says what a right verifier must find, event by event.
//!
//! # Cancellation
//!
//! Stopping or dropping a [`Simulator`] closes its listener and cuts the connections that are open.

#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

mod answer;
mod backend;
mod channel;
mod connection;
mod content;
mod contracts;
mod description;
mod envelope;
mod facts;
mod fault;
mod gate;
mod id;
mod kind;
mod log;
mod memory;
mod misbehaviour;
mod network;
mod options;
mod padding;
mod page;
mod payload;
mod publisher;
mod query;
mod random;
mod record;
mod roster;
mod routes;

pub use backend::Requests;
pub use description::WatcherStatus;
pub use fault::{Fault, Route};
pub use kind::{EventSpec, Honesty, Kind, Original, ReplayedId, Tampering};
pub use misbehaviour::{Misbehaving, Misbehaviour, NotMisbehaving};
pub use options::{GoBack, HasMore, LateProofs, NotAfter, NotTwoChannels, Options, Signing, Steal, Window};

use backend::Backend;
use channel::{Channel, now_ms};
use connection::{Connections, Control};
use network::Network;
use proof::event::ChannelId;
use proof::verify::{Address, Hash};

/// What a client has to know of a running simulator.
#[derive(Clone, Debug, Serialize)]
pub struct Announcement {
    /// Ends in `/v1`, without a slash behind it.
    pub base_url: String,
    /// The key that it accepts.
    pub api_key: String,
    /// The organisation whose events it has, in tenant `1`.
    pub org_id: String,
    /// What [`org_id`](Self::org_id) derives to.
    pub workflow_owner: Address,
    /// The signers of its network.
    pub valid_signers: Vec<Address>,
    /// How many of them sign each report.
    pub min_required_signatures: usize,
    /// The channels' ids; methods of [`Simulator`] name a channel by its place in this list.
    pub channels: Vec<ChannelId>,
    /// The ids of each channel's watchers.
    pub watchers: Vec<Vec<Uuid>>,
}

/// A running simulator. Ends when it is stopped or dropped.
pub struct Simulator {
    backend: Arc<Backend>,
    announcement: Announcement,
    stop: DropGuard,
    tasks: JoinSet<()>,
}

impl Simulator {
    /// Starts listening and answering. With [`Options::prepared`] that takes the time of all the signatures.
    ///
    /// # Errors
    /// Where it cannot listen at the address.
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
        Ok(Self { backend, announcement, stop: stop.drop_guard(), tasks })
    }

    /// What a client has to know.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// Closes the listener, cuts what is open, and waits until all has ended.
    pub async fn stop(mut self) {
        drop(self.stop);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Adds events to a channel, as the shares of the options have it. They happen now.
    ///
    /// # Panics
    /// Here and below: where there is no such channel.
    pub fn publish(&self, channel: usize, events: u64) {
        self.channel(channel).state_mut().log.publish(events, now_ms());
    }

    /// Adds one event of choice to a channel and gives its offset.
    pub fn publish_one(&self, channel: usize, spec: EventSpec) -> i64 {
        self.channel(channel).state_mut().log.publish_one(spec, now_ms())
    }

    /// The service goes back in time: the newest events of a channel are no more, and others are published under their
    /// offsets.
    pub fn go_back(&self, channel: usize, events: u64) {
        self.channel(channel).state_mut().log.go_back(events);
    }

    /// Makes an event honest and complete from now on: a withheld proof comes, a forged or malformed record turns out
    /// to have been a fault of the service. The id and the offset stay.
    ///
    /// # Panics
    /// Where the channel has no event at that offset.
    pub fn prove(&self, channel: usize, offset: i64) {
        let found = self.channel(channel).state_mut().log.prove(offset);
        assert!(found, "channel {channel} has no event at offset {offset}");
    }

    /// Shows an event's payload and proof once more, as a new event of `into`, and gives its offset.
    ///
    /// # Panics
    /// Where channel `from` has no event at that offset.
    pub fn replay(&self, from: usize, offset: i64, into: usize, id: ReplayedId) -> i64 {
        let original = self.channel(from).state().log.original(offset, id);
        let original = original.unwrap_or_else(|| panic!("channel {from} has no event at offset {offset}"));
        self.publish_one(into, EventSpec::Displaced(original))
    }

    /// Puts other content, with a proof that holds, under an event's id and offset. [`prove`](Self::prove) undoes it.
    ///
    /// # Panics
    /// Where the channel has no event at that offset.
    pub fn contradict(&self, channel: usize, offset: i64) {
        let found = self.channel(channel).state_mut().log.contradict(offset);
        assert!(found, "channel {channel} has no event at offset {offset}");
    }

    /// The watchers of a channel are redeployed: what is published from now on comes from new workflows.
    pub fn redeploy(&self, channel: usize) {
        self.channel(channel).state_mut().log.redeploy();
    }

    /// The workflows of a channel's watchers, as they are now.
    pub fn workflow_ids(&self, channel: usize) -> Vec<Hash> {
        let (channel, state) = (self.channel(channel), self.channel(channel).state());
        let deployment = state.log.deployment(state.log.len());
        channel.roster.watchers.iter().map(|watcher| Hash(watcher.workflow_id(deployment))).collect()
    }

    /// The channel is archived from now on.
    pub fn archive(&self, channel: usize) {
        self.misbehave(channel, Some(Misbehaviour::Status(404)));
    }

    /// The channel misbehaves from now on, or behaves: what it does with events changes those that it has.
    pub fn misbehave(&self, channel: usize, how: Option<Misbehaviour>) {
        self.channel(channel).state_mut().log.misbehave(how);
    }

    /// The next requests, of whatever route but the health check, are answered with a fault. Faults come in the order
    /// in which they are asked for.
    pub fn fail_next(&self, fault: Fault, times: usize) {
        self.backend.faults.add(None, fault, times);
    }

    /// The next requests of one route are answered with a fault.
    pub fn fail_next_on(&self, route: Route, fault: Fault, times: usize) {
        self.backend.faults.add(Some(route), fault, times);
    }

    /// Accepts this key from now on, and no other.
    pub fn set_api_key(&self, key: &str) {
        self.backend.set_api_key(key);
    }

    /// Sets the status of a watcher.
    ///
    /// # Panics
    /// Where the channel has no such watcher.
    pub fn set_watcher_status(&self, channel: usize, watcher: Uuid, status: WatcherStatus) {
        let channel = self.channel(channel);
        let at = channel.roster.watchers.iter().position(|known| known.id == watcher);
        let at = at.expect("the watcher is one of the channel's");
        channel.state_mut().watcher_statuses[at] = status;
    }

    /// The truth: every event's offset in ascending order, and what a right verifier must find of it now.
    pub fn offsets(&self, channel: usize) -> Vec<(i64, Honesty)> {
        self.channel(channel).offsets()
    }

    /// How many requests came to each route.
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
        api_key: options.api_key(),
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
    // It ends only by `stop`: what cannot be accepted is tried again.
    let _ = axum::serve(connections, service).with_graceful_shutdown(stop.cancelled_owned()).await;
}
