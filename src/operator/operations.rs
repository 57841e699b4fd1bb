//! The data that every request works on: the ledgers, the running channels and their configuration. This file also
//! reads the recorded data of events.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::api::{ChannelEntry, DeadLetter, GetAccounts, GetJourney, Journey, Refusal};
use crate::configured::{ConfiguredChannel, by_id, find};
use crate::feed::FeedHandle;
use crate::report::api_keys::ApiKeys;
use crate::report::discovery::Discovery;
use crate::report::rejected_config::RejectedConfig;
use channel::{Accounts, Handles, LeasedChannel, RecentEvents};
use cluster::Peers;
use ledger::{CommitError, Ledger, Ledgers, StateError};
use net::Chain;
use net::tasks::lock;
use proof::event::ChannelId;
use record::ChannelRef;
use telemetry::LogQueue;

pub(crate) mod changes;
mod consumers;
mod control;
mod cursors;
mod dead_letters;
pub(crate) mod hour;
mod quarantine;
mod replays;
pub(crate) mod tail;

use changes::Reloads;

/// How long a channel can be without an owner while it moves from one owner to another.
const OWNERLESS: Duration = Duration::from_secs(40);

/// The interval between two checks whether the channel has an owner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The largest number of quarantined events that are retried, or of dead letters that are replayed, in one commit.
const AT_ONCE: usize = 256;

/// A running daemon.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The process id of the daemon.
    pub pid: u32,
    /// When the daemon started.
    pub started: Timestamp,
    /// The number of log lines that standard error did not accept.
    #[serde(default)]
    pub log_lines_lost: u64,
}

/// Carries out the requests of operators.
#[derive(Clone, Debug)]
pub struct Operations {
    /// The version of this channeld, with the commit if it is known.
    pub version: String,
    /// The ledgers of all channels.
    pub ledgers: Arc<Ledgers>,
    /// The handles of the channels that run here.
    pub handles: Arc<Handles>,
    /// The proofs and events that were seen recently.
    pub recent: Arc<RecentEvents>,
    /// The daemon's process, and the queue of its reload requests. `None` if no daemon runs.
    pub daemon: Option<(Process, Reloads)>,
    /// The log of the daemon. `None` if no daemon runs.
    pub log: Option<LogQueue>,
    /// The API keys of the daemon's accounts. Empty if no daemon runs.
    pub api_keys: Vec<ApiKeys>,
    /// The last answer to the request for the service's list of channels. `None` if no daemon runs.
    pub discovery: Option<watch::Receiver<Discovery>>,
    /// The feed of the daemon. `None` without a feed.
    pub feed: Option<FeedHandle>,
    /// Why the configuration that was read last was rejected. `None` if it is in force.
    pub rejected_config: Option<RejectedConfig>,
    /// The instances that share the channels. `None` with one instance.
    pub cluster: Option<Peers>,
    /// The configured channels.
    pub channels: Arc<[ConfiguredChannel]>,
}

impl Operations {
    /// Returns the results of `list` for the ledger of this channel. If no channel is given, `list` is applied to every
    /// channel that is configured or has recorded data, except channels whose state is unreadable: the status reports
    /// them.
    pub(crate) async fn list<T>(
        &self,
        channel: Option<&str>,
        list: impl Fn(&ChannelRef, &Ledger) -> Vec<T>,
    ) -> Result<Vec<ChannelEntry<T>>, Refusal> {
        let is_one = channel.is_some();
        let channels = if let Some(channel) = channel {
            vec![self.find(channel)?]
        } else {
            let mut ids = self.ledgers.store.channels().await?;
            ids.extend(self.channels.iter().map(|known| known.channel.id));
            ids.into_iter().map(|id| by_id(&self.channels, id)).collect()
        };
        let mut listed = Vec::new();
        for channel in channels {
            let ledger = match self.ledger(&channel).await {
                Err(Refusal::Unreadable(why)) if !is_one => {
                    warn!(channel = %channel.name, error = why, "a list lacks this channel, because its state cannot be read");
                    continue;
                }
                ledger => ledger?,
            };
            let found = list(&channel, &lock(&ledger));
            listed.extend(found.into_iter().map(|facts| ChannelEntry::of(&channel, facts)));
        }
        Ok(listed)
    }

    /// Returns the events of a channel that may be missing in its sinks, each with the reason.
    pub(crate) async fn accounts(&self, request: &GetAccounts) -> Result<Accounts, Refusal> {
        let channel = self.find(&request.channel)?;
        let ledger = self.ledger(&channel).await?;
        Ok(self.handles.of(channel.id).accounts(&ledger).await)
    }

    /// Returns the recorded data of one event, from the channel's ledger. When every sink has processed the event, the
    /// ledger contains nothing about it except the cursors. Only the instance that made a late delivery knows about the
    /// delivery.
    pub(crate) async fn journey(&self, request: &GetJourney) -> Result<Journey, Refusal> {
        let GetJourney { channel, offset } = request;
        let channel = self.find(channel)?;
        let ledger = self.ledger(&channel).await?;
        let delivered_late = self.handles.of(channel.id).board().late.of(*offset).cloned().collect();
        let ledger = lock(&ledger);
        let dead_letters = ledger.dead_letters().iter().filter(|((key, _), _)| key.offset == *offset);
        Ok(Journey {
            delivered_late,
            late: ledger.late_at(*offset).next().cloned(),
            quarantined: ledger.quarantined_at(*offset).next().cloned(),
            dead_letters: dead_letters.map(DeadLetter::of).collect(),
        })
    }

    /// Returns a channel's ledger for reading: the ledger of its owner or, if the channel has no owner, the recorded ledger.
    pub(crate) async fn ledger(&self, channel: &ChannelRef) -> Result<Arc<Mutex<Ledger>>, Refusal> {
        let handle = self.handles.of(channel.id);
        if self.cluster.is_some() {
            // If another instance owns the channel, the ledger on the board is outdated: it is from before the change of
            // owner.
            return match handle.owned() {
                Some(owned) => Ok(owned.leased.ledger.clone()),
                None => Ok(Arc::new(Mutex::new(self.ledgers.read(channel.id).await?))),
            };
        }
        let shown = handle.board().ledger.clone();
        match shown {
            Some(ledger) => Ok(ledger),
            None => Ok(self.owned(channel).await?.leased.ledger.clone()),
        }
    }

    /// Returns the channel together with its lease. If this process does not own the channel yet, it takes the lease and
    /// keeps the lease until the returned value is dropped.
    pub(crate) async fn owned(&self, channel: &ChannelRef) -> Result<Arc<LeasedChannel>, Refusal> {
        let (handle, since) = (self.handles.of(channel.id), Instant::now());
        loop {
            if let Some(owned) = handle.owned() {
                return Ok(owned);
            }
            if let Some((owner, name)) = self.cluster.as_ref().and_then(|peers| peers.owner(channel.id)) {
                return Err(Refusal::Elsewhere { channel: channel.name.to_string(), owner, name });
            }
            if let Some(lease) = self.ledgers.try_claim(channel.id, self.recent.proofs_each()).await? {
                return Ok(handle.own(channel, lease, &self.recent));
            }
            if since.elapsed() > OWNERLESS {
                return Err(Refusal::Failed(format!("channel {} is still stopping: try again", channel.name)));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    pub(crate) fn find(&self, name_or_id: &str) -> Result<ChannelRef, Refusal> {
        find(&self.channels, name_or_id)
    }

    pub(crate) fn configured(&self, channel: &ChannelRef) -> Result<&ConfiguredChannel, Refusal> {
        self.known(channel.id).ok_or_else(|| {
            Refusal::Usage(format!("the channel {} is not configured, so its events cannot be verified", channel.name))
        })
    }

    pub(crate) fn known(&self, id: ChannelId) -> Option<&ConfiguredChannel> {
        self.channels.iter().find(|known| known.channel.id == id)
    }
}

impl<T> ChannelEntry<T> {
    pub(crate) fn of(channel: &ChannelRef, facts: T) -> Self {
        Self { channel: channel.name.to_string(), channel_id: channel.id, facts }
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        Self::Failed(Chain(&error).to_string())
    }
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        let text = Chain(&error).to_string();
        match error {
            StateError::UnreadableEntry { .. } => Self::Unreadable(text),
            _ => Self::Failed(text),
        }
    }
}
