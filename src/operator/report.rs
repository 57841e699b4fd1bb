//! The current status of the daemon, its channels and their lanes. `channeld status` prints it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::api::GetStatus;
use crate::feed::FeedHandle;
use crate::operations::Process;
use crate::request::ask_others;
use crate::{ConfiguredChannel, Operations, Refusal};
use channel::{Activity, ChannelStatus, Problem, StoredEvents};
use cluster::ClusterState;
use ledger::{Ledger, LostEntries};
use net::tasks::{joined, lock};
use record::ChannelRef;

pub(crate) mod api_keys;
mod condition;
pub(crate) mod discovery;
pub(crate) mod feed;
pub(crate) mod instances;
pub(crate) mod not_ready;
mod process;
mod reasons;
pub(crate) mod rejected_config;
mod shared_proofs;

use api_keys::{ApiKeyStatus, ApiKeys};
use feed::FeedStatus;
use instances::{InstanceStatus, instances};
use not_ready::{NotReady, NotReadyKind};
use rejected_config::RejectedConfig;

/// How long the report of a daemon waits for the recorded state of all channels that it has not claimed yet.
const RECORDED_WAIT: Duration = Duration::from_secs(2);

/// The complete status at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The version of channeld that made the report, with the commit if it is known.
    pub version: String,
    /// The process. `None` if no daemon runs: the report then describes the recorded state.
    pub daemon: Option<Process>,
    /// Whether the daemon is ready: `not_ready` is empty.
    pub ready: bool,
    /// Each entry of `not_ready` as a sentence.
    pub reasons: Vec<String>,
    /// Why the daemon is not ready.
    #[serde(default)]
    pub not_ready: Vec<NotReady>,
    /// The quarantined events of all channels together. Marked as full if the quarantine of any channel is full.
    pub quarantine: StoredEvents,
    /// The dead letters of all channels together. Marked as full if the dead letters of any channel are full.
    pub dead_letters: StoredEvents,
    /// Why the state cannot be written. `None` if no problem is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_error: Option<String>,
    /// The data that was lost because the state was damaged. Reported until an operator acknowledges the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostEntries>,
    /// Why the store of the state acknowledges commits before they are on a disk. `None` if it does not, or if that is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_early_ack: Option<String>,
    /// Problems that an operator must solve soon, one sentence each. They do not make the daemon unready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why the configuration that this instance read last was rejected. `None` if it is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_config: Option<RejectedConfig>,
    /// The API keys of this instance, by account and in the order of their use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_keys: Vec<ApiKeyStatus>,
    /// When the first of the API keys in use expires, if the operator has configured this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_expires: Option<Timestamp>,
    /// The memory that pages, events in progress and queues use, as `limits.memory` counts it.
    #[serde(default)]
    pub memory_bytes: usize,
    /// The feed of this instance. `None` without a feed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedStatus>,
    /// The instances that share the channels. Empty if the state belongs to one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,
    /// Why the latest heartbeat failed. `instances` is then out of date. `None` if the heartbeat succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_error: Option<String>,
    /// The names of the networks that only the service's list contains, by chain selector.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<u64, String>,
    /// The channels in the order of their names.
    pub channels: Vec<ChannelStatus>,
}

/// The ledger of a configured channel, or the reason why it is not here.
enum FoundLedger {
    Here(Arc<Mutex<Ledger>>),
    /// Another instance runs the channel.
    Elsewhere,
    /// The reason why the channel's state cannot be read.
    Unreadable(String),
}

impl Operations {
    /// Returns the status of all instances. If `here` is set, returns only the status of this instance.
    pub(crate) async fn status(&self, request: &GetStatus) -> Result<Report, Refusal> {
        if let Some(feed) = self.feed.as_ref().filter(|_| !request.here) {
            // If the table does not answer, the report contains the consumers as they were read before.
            feed.refresh().await;
        }
        let mut report = self.report().await?;
        if let Some(peers) = self.cluster.as_ref().filter(|_| !request.here) {
            for (name, answer) in ask_others(peers, &GetStatus { here: true }).await {
                report.add(&name, answer);
            }
            report.channels.sort_by(|one, other| one.channel.cmp(&other.channel));
            report.sum_up();
        }
        Ok(report)
    }

    /// Returns the current status of this instance. The report is built outside the async threads: with a thousand channels
    /// that takes so long that other tasks would wait.
    ///
    /// # Errors
    /// [`Refusal`] if the state cannot be read.
    pub async fn report(&self) -> Result<Report, Refusal> {
        let seen = self.cluster.as_ref().map(|peers| peers.seen.borrow().clone());
        let mut ledgers = Vec::with_capacity(self.channels.len());
        let deadline = Instant::now() + RECORDED_WAIT;
        for ConfiguredChannel { channel, .. } in &*self.channels {
            let is_elsewhere = seen.as_ref().is_some_and(|seen| seen.is_elsewhere(channel.id, self.daemon.is_some()));
            ledgers.push(if is_elsewhere {
                FoundLedger::Elsewhere
            } else {
                match self.ledger_before(channel, deadline).await {
                    Err(Refusal::Unreadable(why)) => FoundLedger::Unreadable(why),
                    ledger => FoundLedger::Here(ledger?),
                }
            });
        }
        let operations = self.clone();
        Ok(joined(spawn_blocking(move || operations.report_of(seen, &ledgers)).await).await)
    }

    /// Returns a channel's ledger for the report. An instance reads the recorded ledger of a channel that it has not claimed yet.
    /// If the database does not answer, the report says so instead of failing.
    async fn ledger_before(&self, channel: &ChannelRef, deadline: Instant) -> Result<Arc<Mutex<Ledger>>, Refusal> {
        if self.daemon.is_none() || self.cluster.is_none() {
            return self.ledger(channel).await;
        }
        let late = || Refusal::Unreadable("the state's database has not answered yet".to_owned());
        // A statement that begins after the deadline would be sent, and then cancelled at once.
        if self.handles.of(channel.id).owned().is_none() && Instant::now() >= deadline {
            return Err(late());
        }
        match timeout_at(deadline, self.ledger(channel)).await {
            Ok(Err(Refusal::Failed(why))) => Err(Refusal::Unreadable(why)),
            Ok(ledger) => ledger,
            Err(_) => Err(late()),
        }
    }

    /// Builds the report from the ledgers of the configured channels.
    fn report_of(&self, seen: Option<ClusterState>, ledgers: &[FoundLedger]) -> Report {
        let is_daemon = self.daemon.is_some();
        let mut channels = Vec::with_capacity(self.channels.len());
        let mut duplicates = Vec::with_capacity(self.channels.len());
        for (known, ledger) in self.channels.iter().zip(ledgers) {
            let ConfiguredChannel { channel, sinks, expect, .. } = known;
            let ledger = match ledger {
                FoundLedger::Here(ledger) => ledger,
                FoundLedger::Unreadable(why) => {
                    channels.push(unreadable(channel, why.clone()));
                    duplicates.push(Vec::new());
                    continue;
                }
                FoundLedger::Elsewhere => {
                    let seen = seen.as_ref().expect("only a cluster has channels that run elsewhere");
                    channels.push(elsewhere(channel, seen));
                    duplicates.push(seen.view.held_back.get(&channel.id).cloned().unwrap_or_default());
                    continue;
                }
            };
            let handle = self.handles.of(channel.id);
            let mut pauses = handle.pauses();
            let ledger = lock(ledger);
            if !is_daemon {
                pauses.paused = ledger.paused().clone();
            }
            let mut status = handle.board().status(channel, sinks, &pauses, &ledger);
            status.pinned = expect.lists().map(|(what, _)| <&str>::from(what).to_owned()).collect();
            status.shared_workflows = shared_proofs::shared_workflows(known, &ledger, &self.channels);
            channels.push(status);
            let in_another = ledger
                .held_back(|digest| self.recent.shown_in(digest).filter(|original| original.channel_id != channel.id));
            duplicates.push(in_another);
        }
        for (status, known) in channels.iter_mut().zip(&*self.channels) {
            (status.account, status.discovered) = (known.account.clone(), known.discovered);
        }
        shared_proofs::report(&self.channels, duplicates, &mut channels);
        let log_lines_lost = self.log.as_ref().map_or(0, |log| log.lost.get());
        let mut report = Report {
            version: self.version.clone(),
            daemon: self.daemon.as_ref().map(|(process, _)| Process { log_lines_lost, ..*process }),
            state_error: self.ledgers.writes.trouble(),
            lost: self.ledgers.store.lost(),
            state_early_ack: self.ledgers.store.early_ack(),
            memory_bytes: self.handles.memory.held(),
            networks: record::learned_networks()
                .into_iter()
                .map(|(selector, name)| (selector, name.to_owned()))
                .collect(),
            rejected_config: self.rejected_config.clone(),
            channels,
            ..Report::default()
        };
        report.api_keys = self.api_keys.iter().flat_map(ApiKeys::statuses).collect();
        report.api_key_expires = self.api_keys.iter().filter_map(|keys| keys.expires).min();
        report.warnings = self.api_keys.iter().flat_map(|keys| keys.warnings(Timestamp::now())).collect();
        let discovery = self.discovery.as_ref().and_then(|discovery| discovery.borrow().warning());
        report.warnings.extend(discovery);
        if is_daemon {
            report.warnings.extend(process::warnings(self.log.as_ref()));
        }
        report.feed = self.feed.as_ref().map(FeedHandle::status);
        report.warnings.extend(report.feed.as_ref().and_then(FeedStatus::warning));
        let mut of_process: Vec<_> = self.rejected_config.iter().map(RejectedConfig::reason).collect();
        if let Some((seen, peers)) = seen.zip(self.cluster.as_ref()) {
            report.instances = instances(&seen, peers.membership.me(), &self.channels);
            of_process.extend(reasons::of_cluster(&seen, peers.membership.me(), &self.channels));
            of_process.extend(reasons::of_waits(&self.ledgers.store.waits()));
            report.heartbeat_error = seen.trouble;
        } else if is_daemon {
            of_process.extend(reasons::of_write(self.ledgers.writes.under_way()));
        }
        report.assess(of_process);
        report
    }
}

impl Report {
    /// Finds in the report itself why the daemon is not ready, adds the reasons in `others`, and computes everything that
    /// follows from them.
    pub fn assess(&mut self, others: Vec<NotReady>) {
        self.not_ready = if self.daemon.is_some() {
            let of_state = reasons::of_state(self.state_error.as_deref(), self.lost.as_ref());
            of_state.into_iter().chain(self.channels.iter().flat_map(reasons::of_channel)).collect()
        } else if self.instances.is_empty() {
            vec![NotReady::new(NotReadyKind::NoDaemon, "no daemon runs")]
        } else {
            Vec::new()
        };
        self.not_ready.extend(others);
        self.sum_up();
    }

    /// Computes everything that follows from the parts of the report: the totals, the sentences, `ready` and the
    /// conditions.
    fn sum_up(&mut self) {
        self.quarantine = self.channels.iter().map(|channel| channel.quarantine).sum();
        self.dead_letters = self.channels.iter().map(|channel| channel.dead_letters).sum();
        self.reasons = self.not_ready.iter().map(ToString::to_string).collect();
        self.ready = self.not_ready.is_empty();
        condition::set(&mut self.channels, &self.not_ready);
    }

    /// Adds the channels, reasons and warnings of another instance's report.
    fn add(&mut self, name: &str, answer: Result<Self, String>) {
        let (channels, reasons, warnings) = match answer {
            Ok(other) => (other.channels, other.not_ready, other.warnings),
            Err(why) => (Vec::new(), vec![NotReady::new(NotReadyKind::InstanceUnknown, why)], Vec::new()),
        };
        self.warnings.extend(warnings.into_iter().map(|warning| format!("instance {name}: {warning}")));
        let of_instance = |reason| NotReady { instance: Some(name.to_owned()), ..reason };
        self.not_ready.extend(reasons.into_iter().map(of_instance));
        for channel in channels {
            match self.channels.iter_mut().find(|known| known.channel_id == channel.channel_id) {
                Some(known) if channel.activity.is_here() && !known.activity.is_here() => *known = channel,
                Some(_) => {}
                None => self.channels.push(channel),
            }
        }
    }
}

/// Returns the status of a channel whose recorded state is unreadable. The channel does not run.
fn unreadable(channel: &ChannelRef, why: String) -> ChannelStatus {
    let (kind, since) = (Problem::STATE_NOT_READABLE.to_owned(), Timestamp::now());
    let error = Problem { kind, message: why, since, times: 1, needs_attention: true };
    ChannelStatus {
        channel: channel.name.clone(),
        channel_id: channel.id,
        activity: Activity::Waiting { error },
        ..ChannelStatus::default()
    }
}

/// Returns the status of a channel that does not run here.
fn elsewhere(channel: &ChannelRef, seen: &ClusterState) -> ChannelStatus {
    let owner = seen.view.owner(channel.id).map(|(_, owner)| owner.name.clone());
    ChannelStatus {
        channel: channel.name.clone(),
        channel_id: channel.id,
        activity: Activity::Elsewhere { owner },
        ..ChannelStatus::default()
    }
}
