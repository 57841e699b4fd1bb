//! The current status of the daemon, its channels and their lanes. `channeld status` prints it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::operations::{Process, look};
use crate::{ConfiguredChannel, Operations, Refusal};

use channel::{
    Activity, ChannelStatus, Kept, LaneState, LaneStatus, NONE_VERIFIED, POLLS_IN_VAIN, Refill, what_to_check,
};
use cluster::Seen;
use ledger::store::shared::Ownership;
use ledger::{Contradiction, Cursor, Lost};
use record::ChannelRef;

mod belonging;
pub(crate) mod instances;
mod merged;

use belonging::Shared;
use instances::{InstanceStatus, instances};

/// A channel that has had no owner for less than this time is moving from one owner to another.
const MAY_BE_ORPHANED: Duration = Duration::from_secs(10);

/// The complete status at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version that answered, with its commit if it is known.
    pub version: String,
    /// The process. `None` if no daemon runs: the report then describes the recorded state.
    pub daemon: Option<Process>,
    /// Whether everything works as it should.
    pub ready: bool,
    /// Why the daemon is not ready.
    pub reasons: Vec<String>,
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
    /// The memory that pages, events in hand and queues use, as `limits.memory` counts it.
    #[serde(default)]
    pub memory_bytes: usize,
    /// The instances that share the channels. Empty if there is only one process.
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
            quarantine: Kept::default(),
            dead_letters: Kept::default(),
            state_error: self.ledgers.writes.trouble(),
            lost: self.ledgers.store.lost(),
            memory_bytes: self.handles.memory.held(),
            instances: Vec::new(),
            heartbeat_error: None,
            channels,
        };
        if let Some((seen, peers)) = seen.zip(self.cluster.as_ref()) {
            report.instances = instances(&seen, peers.membership.me(), &self.channels);
            report.reasons = of_cluster(&seen, &self.channels);
            report.heartbeat_error = seen.trouble;
        }
        report.reasons.splice(0..0, reasons(&report));
        report.sum_up();
        Ok(report)
    }
}

impl Report {
    /// Computes the totals and `ready` from the parts of the report.
    pub(crate) fn sum_up(&mut self) {
        self.quarantine = self.channels.iter().map(|channel| channel.quarantine).sum();
        self.dead_letters = self.channels.iter().map(|channel| channel.dead_letters).sum();
        self.ready = self.reasons.is_empty();
    }
}

/// Returns the reasons why the daemon is not ready. A pause by an operator is not a reason.
fn reasons(report: &Report) -> Vec<String> {
    if report.daemon.is_none() {
        let others = !report.instances.is_empty();
        return Vec::from_iter((!others).then(|| "no daemon runs".to_owned()));
    }
    let mut reasons = Vec::new();
    reasons.extend(report.state_error.as_ref().map(|error| format!("the state cannot be written: {error}")));
    if let Some(Lost { quarantined, dead_letters, kept, .. }) = &report.lost {
        let kept = kept.as_ref().map_or_else(String::new, |kept| format!(" (kept as it was found: {kept})"));
        reasons.push(format!(
            "{quarantined} quarantined events and {dead_letters} dead letters were lost to a damaged state{kept}: look at it, \
             and then run `channeld state acknowledge`"
        ));
    }
    for channel in &report.channels {
        let name = &channel.channel;
        reasons.extend(of_channel(channel).into_iter().map(|what| format!("channel {name}: {what}")));
        for lane in &channel.lanes {
            let what = match (&lane.error, &lane.reading) {
                (Some(error), _) if lane.state == LaneState::Blocked => Some(error.message.clone()),
                (_, Some(reading)) => of_activity(reading),
                _ => None,
            };
            let of_sink = what.into_iter().chain(of_position(lane)).chain(of_comparison(name, lane));
            reasons.extend(of_sink.map(|what| format!("channel {name}, sink {}: {what}", lane.sink)));
        }
    }
    reasons
}

/// Describes the difference between a sink's own position and the recorded cursor.
fn of_position(lane: &LaneStatus) -> Option<String> {
    if let Some(Refill { above, to }) = lane.refill {
        let above = Cursor { through: above };
        return Some(format!("it lost data: the events above {above} up to offset {to} are delivered again"));
    }
    let ahead = lane.ahead?;
    let cursor = Cursor { through: lane.cursor };
    Some(format!(
        "it holds events up to offset {ahead} and the state knows of {cursor}: the state is older; the events that the sink has \
         are skipped"
    ))
}

/// Describes the events that the last comparison with the service did not find in the sink.
fn of_comparison(channel: &str, lane: &LaneStatus) -> Option<String> {
    let compared = lane.compared.as_ref()?;
    let (missing, first) = (compared.missing, compared.first_missing.first()?);
    let what = match missing {
        0 => return None,
        1 => format!("an event that the service has is missing, at offset {first}"),
        _ => format!("{missing} events that the service has are missing, the first at offset {first}"),
    };
    Some(format!("{what}: `channeld check --history {channel}` lists them and says how to deliver them"))
}

fn of_channel(channel: &ChannelStatus) -> Vec<String> {
    let ChannelStatus { activity, last_poll, quarantine, dead_letters, late_full, late_error, .. } = channel;
    let mut reasons = Vec::from_iter(of_activity(activity));
    if reasons.is_empty() && last_poll.is_none() && !matches!(activity, Activity::Paused | Activity::Elsewhere { .. }) {
        reasons.push("has not been read yet".to_owned());
    }
    // Skipped if the error itself is already a reason.
    if let Some(seconds) = channel.unanswered_seconds.filter(|_| reasons.is_empty()) {
        let why = activity.problem().map_or_else(String::new, |problem| format!(": {}", problem.message));
        reasons.push(format!("the service has not answered a poll for {seconds} s{why}"));
    }
    if let Some(cursor) = channel.newest_below {
        reasons.push(format!(
            "the service's newest event is below the cursor {cursor}: it may have gone back in time; look at what it shows, then \
             pause the channel and run `channeld cursor set --back-to`"
        ));
    }
    if let Some(Contradiction { offset, agrees_through, .. }) = channel.contradiction {
        let through = agrees_through.map_or_else(|| "earliest".to_owned(), |offset| offset.to_string());
        let name = &channel.channel;
        reasons.push(format!(
            "the service has another event at offset {offset} than the one that was read: it was probably restored from a \
             backup; new events are quarantined; to accept its history and read again from where it agrees: `channeld pause \
             {name}`, `channeld cursor set {name} --back-to {through} --yes`, `channeld resume {name}`"
        ));
    }
    reasons.extend(channel.shared_proofs.iter().map(|shared| belonging::reason(&channel.channel, shared)));
    if channel.polls_in_vain >= POLLS_IN_VAIN {
        reasons.push(format!(
            "the last {POLLS_IN_VAIN} answers say that there are more events, and show none that is new ({}): it does not move; \
             ask the service's operator",
            channel.shown_in_vain
        ));
    }
    if channel.rejected_in_a_row >= NONE_VERIFIED {
        reasons.push(format!(
            "{NONE_VERIFIED} of the last {NONE_VERIFIED} rejected ({}): check {}",
            channel.last_rejection,
            what_to_check(&channel.last_rejection)
        ));
    }
    for (kept, what, follows) in [
        (quarantine, "its quarantine is full", "reading stops before the next event that would be rejected"),
        (dead_letters, "its dead letters are full", "its sinks give up no event until there is room"),
    ] {
        if kept.full {
            reasons.push(format!("{what} ({} events, {} bytes): {follows}", kept.events, kept.bytes));
        }
    }
    if *late_full {
        reasons.push("its late events are full: reading waits for their proofs".to_owned());
    }
    if let Some(error) = late_error.as_ref().filter(|error| error.needs_attention) {
        reasons.push(format!("late proofs: {}", error.message));
    }
    reasons
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

/// Returns the problems with the sharing of channels.
fn of_cluster(seen: &Seen, configured: &[ConfiguredChannel]) -> Vec<String> {
    let trouble = seen.trouble.iter().map(|trouble| format!("no channel can be claimed: {trouble}"));
    let orphans = configured.iter().filter_map(|ConfiguredChannel { channel, .. }| {
        let Ownership::Orphaned { since } = seen.view.channels.get(&channel.id)? else { return None };
        let is_long = *since >= MAY_BE_ORPHANED && !seen.work.contains(&channel.id);
        is_long.then(|| format!("channel {}: has had no owner for {} s", channel.name, since.as_secs()))
    });
    trouble.chain(orphans).collect()
}

/// Returns the problem of an activity that requires an operator to act.
fn of_activity(activity: &Activity) -> Option<String> {
    match activity {
        Activity::Stopped => Some("does not run".to_owned()),
        Activity::Gone => Some("does not exist or is archived".to_owned()),
        Activity::InDoubt { error, .. } => Some(error.message.clone()),
        Activity::Waiting { error } if error.needs_attention => Some(error.message.clone()),
        // The caller reports these cases itself, with numbers.
        Activity::QuarantineFull
        | Activity::TooManyLate
        | Activity::Waiting { .. }
        | Activity::Paused
        | Activity::Reading
        | Activity::AwaitingMemory
        | Activity::Delivering
        | Activity::Idle
        | Activity::Elsewhere { .. }
        | Activity::AwaitingProof { .. } => None,
    }
}
