//! The current status of the daemon, its channels and their lanes. `channeld status` prints it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::operations::{Process, look};
use crate::{ConfiguredChannel, Operations, Refusal};
use channel::{Activity, ChannelStatus, Kept};
use cluster::Seen;
use ledger::Lost;
use record::ChannelRef;

mod belonging;
mod condition;
pub(crate) mod instances;
mod merged;
pub(crate) mod not_ready;
mod reasons;

use belonging::Shared;
use instances::{InstanceStatus, instances};
use not_ready::{NotReady, NotReadyKind};

/// The complete status at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version that answered, with its commit if it is known.
    pub version: String,
    /// The process. `None` if no daemon runs: the report then describes the recorded state.
    pub daemon: Option<Process>,
    /// Whether everything works as it should.
    pub ready: bool,
    /// Why the daemon is not ready: the sentences of `not_ready`.
    pub reasons: Vec<String>,
    /// Why the daemon is not ready.
    #[serde(default)]
    pub not_ready: Vec<NotReady>,
    /// The quarantined events of all channels together. Full if the quarantine of one channel is full.
    pub quarantine: Kept,
    /// The dead letters of all channels together. Full if the dead letters of one channel are full.
    pub dead_letters: Kept,
    /// Why the state cannot be written. `None` if no problem is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_error: Option<String>,
    /// The data that was lost to a damaged state, until an operator acknowledges the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// The memory that pages, events in progress and queues use, as `limits.memory` counts it.
    #[serde(default)]
    pub memory_bytes: usize,
    /// The instances that share the channels. Empty if the state belongs to one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,
    /// Why there has been no heartbeat since the other instances were last seen. `None` if a heartbeat came in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_error: Option<String>,
    /// The channels in the order of their names.
    pub channels: Vec<ChannelStatus>,
}

impl Operations {
    /// Returns the current status of this instance.
    ///
    /// # Errors
    /// [`Refusal`] if the state cannot be read.
    pub async fn report(&self) -> Result<Report, Refusal> {
        let seen = self.cluster.as_ref().map(|peers| peers.seen.borrow().clone());
        let is_daemon = self.daemon.is_some();
        let mut channels = Vec::with_capacity(self.channels.len());
        let mut shared = Vec::with_capacity(self.channels.len());
        for known in &self.channels {
            let ConfiguredChannel { channel, sinks, expect, .. } = known;
            if let Some(seen) = seen.as_ref().filter(|seen| seen.is_elsewhere(channel.id, is_daemon)) {
                channels.push(elsewhere(channel, seen));
                shared.push(Shared::elsewhere(seen.view.held_back.get(&channel.id)));
                continue;
            }
            let (handle, ledger) = (self.handles.of(channel.id), self.ledger(channel).await?);
            let mut pauses = handle.pauses();
            let mut status = look(&ledger, |ledger| {
                if !is_daemon {
                    pauses.paused = ledger.paused().clone();
                }
                handle.board().status(channel, sinks, &pauses, ledger)
            });
            status.pinned = expect.lists().map(|(what, _)| <&str>::from(what).to_owned()).collect();
            channels.push(status);
            shared.push(look(&ledger, |ledger| Shared::of(known, ledger, &self.recent)));
        }
        belonging::tell(&self.channels, &shared, &mut channels);
        let mut report = Report {
            version: self.version.clone(),
            daemon: self.daemon.as_ref().map(|(process, _)| *process),
            ready: false,
            reasons: Vec::new(),
            not_ready: Vec::new(),
            quarantine: Kept::default(),
            dead_letters: Kept::default(),
            state_error: self.ledgers.writes.trouble(),
            lost: self.ledgers.store.lost(),
            memory_bytes: self.handles.memory.held(),
            instances: Vec::new(),
            heartbeat_error: None,
            channels,
        };
        let mut of_cluster = Vec::new();
        if let Some((seen, peers)) = seen.zip(self.cluster.as_ref()) {
            report.instances = instances(&seen, peers.membership.me(), &self.channels);
            of_cluster = reasons::of_cluster(&seen, &self.channels);
            report.heartbeat_error = seen.trouble;
        }
        report.assess(of_cluster);
        Ok(report)
    }
}

impl Report {
    /// Finds the reasons in the report itself, adds `others`, and computes everything that follows from them.
    pub fn assess(&mut self, others: Vec<NotReady>) {
        self.not_ready = self.own_reasons();
        self.not_ready.extend(others);
        self.sum_up();
    }

    /// Returns the reasons that are found in the report itself.
    fn own_reasons(&self) -> Vec<NotReady> {
        if self.daemon.is_none() {
            let others = !self.instances.is_empty();
            return Vec::from_iter((!others).then(|| NotReady::new(NotReadyKind::NoDaemon, "no daemon runs")));
        }
        let of_state = reasons::of_state(self.state_error.as_deref(), self.lost.as_ref());
        of_state.into_iter().chain(self.channels.iter().flat_map(reasons::of_channel)).collect()
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

    /// Returns the reasons that are about a channel or one of its sinks, by the channel's name.
    pub fn reasons_by_channel(&self) -> HashMap<&str, Vec<&NotReady>> {
        not_ready::by_channel(&self.not_ready)
    }
}

/// Returns the status of a channel that does not run here.
fn elsewhere(channel: &ChannelRef, seen: &Seen) -> ChannelStatus {
    let owner = seen.view.owner(channel.id).map(|(_, owner)| owner.name.clone());
    ChannelStatus {
        channel: channel.name.clone(),
        channel_id: channel.id,
        activity: Activity::Elsewhere { owner },
        ..ChannelStatus::default()
    }
}
