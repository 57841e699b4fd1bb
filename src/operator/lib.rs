//! What an operator sees and asks of a daemon: one typed API, served on two listeners.
//!
//! [`Operations`] carries out every request. A command reaches those of a running daemon by `ask`, over the control
//! [`Socket`]; where no daemon runs, it opens the state and calls its own. The admin [`Listener`] serves the reading half
//! over TCP.
//!
//! # Invariants
//!
//! * **Nothing is delivered from here.** An event that is released or redelivered becomes late, durably and in one commit. It
//!   is verified again, and a lane delivers it.
//! * **Through the claim.** A channel is changed as its owner changes it; one that no task of this process owns is claimed
//!   for the one request.
//! * **Quarantined events and dead letters go at an operator's request only,** and each change is logged.
//! * **Cursors are set only while their channel stands still.**
//!
//! # Cancellation
//!
//! A change is one commit, finished whether or not its answer is awaited. Many events are changed `AT_ONCE` to a commit.

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
pub mod server;
mod socket;
mod state;
mod tail;

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
pub use socket::Socket;

use api::Entry;

/// How long a channel may be on its way from one owner to another.
const OWNERLESS: Duration = Duration::from_secs(40);

/// Between two looks whether it has an owner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Events that are changed together.
const AT_ONCE: usize = 256;

/// Carries out what an operator asks.
#[derive(Clone, Debug)]
pub struct Operations {
    /// The version that answers, with its commit where that is known.
    pub version: String,
    /// The ledgers of all channels.
    pub ledgers: Arc<Ledgers>,
    /// The handles of the channels that run here.
    pub handles: Arc<Handles>,
    /// The proofs and events that were seen lately.
    pub recent: Arc<RecentEvents>,
    /// `None` where no daemon runs.
    pub daemon: Option<(Process, Reloads)>,
    /// What the instances that share the channels do; `None` where there is one.
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
    /// By which its events are verified.
    pub verifier: Verifier,
    /// What they may be about.
    pub expect: Arc<Expect>,
}

impl Operations {
    /// What `list` takes from the ledger of that channel or, without one, of every channel that is configured or of which
    /// anything is kept.
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

    /// A channel's ledger, to be read: that of its owner or, where it has none, as it was recorded.
    async fn ledger(&self, channel: &ChannelRef) -> Result<Arc<Mutex<Ledger>>, Refusal> {
        let handle = self.handles.of(channel.id);
        if self.cluster.is_some() {
            // What was shown before another owned the channel is of the past.
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

    /// The channel as this process owns it. Where it does not yet, the channel is claimed until the answer is dropped.
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

/// The channel of that configured name or, failing that, of that id. One that is not configured goes by its id.
///
/// # Errors
/// [`Refusal::Usage`] if it is neither.
pub fn find(channels: &[ConfiguredChannel], name_or_id: &str) -> Result<ChannelRef, Refusal> {
    if let Some(known) = channels.iter().find(|known| &*known.channel.name == name_or_id) {
        return Ok(known.channel.clone());
    }
    name_or_id.parse().map(|id| by_id(channels, id)).map_err(|_| {
        let names = names(channels);
        Refusal::Usage(format!("`{name_or_id}` is neither a configured channel ({names}) nor a UUID"))
    })
}

/// The configured names, for a message.
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

/// Checks that a channel, which has those sinks, has this one.
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
