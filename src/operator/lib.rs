//! The requests of operators to a daemon: one typed API, served on two listeners.
//!
//! [`Operations`] carries out every request. A command sends its request by `ask`, over the control [`Socket`], to the
//! `Operations` of a running daemon. If no daemon runs, the command opens the state and calls its own `Operations`. The
//! admin [`Listener`] serves the reading half over TCP.
//!
//! # Invariants
//!
//! * **Nothing is delivered from here.** An event that is released or replayed becomes late, durably and in one commit. It
//!   is verified again, and a lane delivers it.
//! * **Through the lease.** A request changes a channel in the same way as the channel's owner does. If no task of this
//!   process owns the channel, its lease is taken for this one request.
//! * **Quarantined events and dead letters are removed only at an operator's request,** and each change is logged.
//! * **Cursors are set only while their channel does not run.**
//!
//! # Cancellation
//!
//! A change is one commit. It is finished even if nobody waits for the answer. A change of many events uses one commit per
//! `AT_ONCE` events.

#![forbid(unsafe_code)]

use std::borrow::Borrow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use channel::{Expect, Handles, Owned, RecentEvents};
use cluster::Peers;
use ledger::{CommitError, Ledger, Ledgers, StateError};
use net::Chain;
use net::tasks::lock;
use proof::event::ChannelId;
use proof::verify::Verifier;
use record::ChannelRef;

#[expect(missing_docs, reason = "the module says once what its members mean")]
pub mod api;
mod belonging;
mod client;
mod cursors;
mod dead_letters;
mod elsewhere;
mod exposition;
mod hosts;
mod hour;
mod instances;
mod journey;
mod listener;
pub mod liveness;
mod pauses;
mod poll;
mod quarantine;
mod redeliver;
mod reload;
mod report;
mod request;
mod retry;
mod router;
pub mod runbook;
pub mod server;
mod signer_names;
mod socket;
mod state;
mod tail;
mod verifier;

pub use api::Refusal;
pub use client::ask;
pub use elsewhere::answer_others;
pub use hour::note_minutes;
pub use instances::{ChannelOwner, Cluster, InstanceStatus};
pub use listener::Listener;
pub use reload::{Changes, Difference, Reloading, Reloads};
pub use report::{Process, Report};
pub use request::Request;
pub use router::Sources;
pub use signer_names::SignerNames;
pub use socket::Socket;
pub use verifier::verifier_of;

use api::Entry;

/// How long a channel can be without an owner while it moves from one owner to another.
const OWNERLESS: Duration = Duration::from_secs(40);

/// The interval between two checks whether the channel has an owner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The number of events that are changed in one commit.
const AT_ONCE: usize = 256;

/// Carries out the requests of operators.
#[derive(Clone, Debug)]
pub struct Operations {
    /// The version that answers, with its commit if it is known.
    pub version: String,
    /// The ledgers of all channels.
    pub ledgers: Arc<Ledgers>,
    /// The handles of the channels that run here.
    pub handles: Arc<Handles>,
    /// The proofs and events that were seen recently.
    pub recent: Arc<RecentEvents>,
    /// `None` if no daemon runs.
    pub daemon: Option<(Process, Reloads)>,
    /// The instances that share the channels. `None` if there is only one instance.
    pub cluster: Option<Peers>,
    /// The configured channels.
    pub channels: Vec<ConfiguredChannel>,
}

/// A channel of the configuration.
#[derive(Clone, Debug)]
pub struct ConfiguredChannel {
    /// Its name and id.
    pub channel: ChannelRef,
    /// Its sinks, in the operator's order.
    pub sinks: Vec<Arc<str>>,
    /// Verifies the channel's events.
    pub verifier: Verifier,
    /// The expected contents of the channel's events.
    pub expect: Arc<Expect>,
}

impl Operations {
    /// Returns the results of `list` for the ledger of this channel. If no channel is given, `list` is applied to every
    /// channel that is configured or has recorded data.
    async fn list<T>(
        &self,
        channel: Option<&str>,
        list: impl Fn(&ChannelRef, &Ledger) -> Vec<T>,
    ) -> Result<Vec<Entry<T>>, Refusal> {
        let channels = if let Some(channel) = channel {
            vec![self.find(channel)?]
        } else {
            let mut ids = self.ledgers.store.channels().await?;
            ids.extend(self.channels.iter().map(|known| known.channel.id));
            ids.into_iter().map(|id| by_id(&self.channels, id)).collect()
        };
        let mut listed = Vec::new();
        for channel in channels {
            let ledger = self.ledger(&channel).await?;
            let found = look(&ledger, |ledger| list(&channel, ledger));
            listed.extend(found.into_iter().map(|facts| Entry::of(&channel, facts)));
        }
        Ok(listed)
    }

    /// Returns a channel's ledger for reading: the ledger of its owner or, if the channel has no owner, the recorded ledger.
    async fn ledger(&self, channel: &ChannelRef) -> Result<Arc<Mutex<Ledger>>, Refusal> {
        let handle = self.handles.of(channel.id);
        if self.cluster.is_some() {
            // The board still shows the ledger from before another instance owned the channel, so it is outdated.
            return match handle.owned() {
                Some(owned) => Ok(owned.claim.ledger.clone()),
                None => Ok(Arc::new(Mutex::new(self.ledgers.read(channel.id).await?))),
            };
        }
        let shown = handle.board().ledger.clone();
        match shown {
            Some(ledger) => Ok(ledger),
            None => Ok(self.owned(channel).await?.claim.ledger.clone()),
        }
    }

    /// Returns the channel as this process owns it. If this process does not own it yet, the lease is taken until the
    /// returned value is dropped.
    async fn owned(&self, channel: &ChannelRef) -> Result<Arc<Owned>, Refusal> {
        let (handle, since) = (self.handles.of(channel.id), Instant::now());
        loop {
            if let Some(owned) = handle.owned() {
                return Ok(owned);
            }
            if let Some((owner, name)) = self.cluster.as_ref().and_then(|peers| peers.owner(channel.id)) {
                return Err(Refusal::Elsewhere { channel: channel.name.to_string(), owner, name });
            }
            if let Some(claimed) = self.ledgers.try_claim(channel.id, self.recent.proofs_each()).await? {
                return Ok(handle.own(channel, claimed, &self.recent));
            }
            if since.elapsed() > OWNERLESS {
                let name = &channel.name;
                return Err(Refusal::Failed(format!("channel {name} is ending, and has not ended: try again")));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn find(&self, name_or_id: &str) -> Result<ChannelRef, Refusal> {
        find(&self.channels, name_or_id)
    }

    fn configured(&self, channel: &ChannelRef) -> Result<&ConfiguredChannel, Refusal> {
        self.known(channel.id).ok_or_else(|| {
            Refusal::Usage(format!("the channel {} is not configured: nothing says how to verify it", channel.name))
        })
    }

    fn known(&self, id: ChannelId) -> Option<&ConfiguredChannel> {
        self.channels.iter().find(|known| known.channel.id == id)
    }
}

/// Returns the channel with this configured name or, if there is none, with this id. The name of a channel that is not
/// configured is its id.
///
/// # Errors
/// [`Refusal::Usage`] if the text is neither a configured name nor an id.
pub fn find(channels: &[ConfiguredChannel], name_or_id: &str) -> Result<ChannelRef, Refusal> {
    if let Some(known) = channels.iter().find(|known| &*known.channel.name == name_or_id) {
        return Ok(known.channel.clone());
    }
    name_or_id.parse().map(|id| by_id(channels, id)).map_err(|_| {
        let names = names(channels);
        Refusal::Usage(format!("`{name_or_id}` is neither a configured channel ({names}) nor a UUID"))
    })
}

/// Returns the configured names as a list for a message.
pub fn names(channels: &[ConfiguredChannel]) -> String {
    let names: Vec<_> = channels.iter().map(|known| &*known.channel.name).collect();
    names.join(", ")
}

fn by_id(channels: &[ConfiguredChannel], id: ChannelId) -> ChannelRef {
    let known = channels.iter().find(|known| known.channel.id == id);
    known.map_or_else(|| ChannelRef { name: id.to_string().into(), id }, |known| known.channel.clone())
}

impl<T> Entry<T> {
    fn of(channel: &ChannelRef, facts: T) -> Self {
        Self { channel: channel.name.to_string(), channel_id: channel.id, facts }
    }
}

/// Checks that a channel with these sinks has this sink.
///
/// # Errors
/// [`Refusal::Usage`] if it does not.
pub fn check_sink(channel: &str, sink: &str, sinks: &[impl Borrow<str>]) -> Result<(), Refusal> {
    if sinks.iter().any(|known| known.borrow() == sink) {
        return Ok(());
    }
    let sinks = sinks.join(", ");
    Err(Refusal::Usage(format!("{sink} is no sink of channel {channel}, whose sinks are: {sinks}")))
}

/// Looks something up in a ledger.
fn look<T>(ledger: &Mutex<Ledger>, look: impl FnOnce(&Ledger) -> T) -> T {
    look(&lock(ledger))
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        Self::Failed(Chain(&error).to_string())
    }
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::Failed(Chain(&error).to_string())
    }
}
