//! The daemon, its channels and their lanes as they are now: what is durable from the state, the rest from the channels
//! themselves. `channeld status` prints it.

use serde::{Deserialize, Serialize};

use super::{Answer, Known, Operations, Refusal};
use crate::channel::{Activity, LaneCondition, LaneStatus, Problem};
use crate::event::{ChannelId, Offset};
use crate::state::LaneKey;

/// Everything, for one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version that answered.
    pub version: String,
    /// The process; none where no daemon runs, and this is what it left.
    pub daemon: Option<Process>,
    /// Whether everything is as it should be.
    pub ready: bool,
    /// Why it is not.
    pub reasons: Vec<String>,
    /// All channels together.
    pub quarantine: QuarantineReport,
    /// In the order of their names.
    pub channels: Vec<ChannelReport>,
}

/// A daemon that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Since when it runs.
    pub started: jiff::Timestamp,
}

/// What the quarantine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineReport {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether it takes no more.
    pub full: bool,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Its name in the configuration.
    pub channel: String,
    /// Its id.
    pub channel_id: ChannelId,
    /// What its reading does.
    #[serde(flatten)]
    pub activity: Activity,
    /// The last offset that every lane has dealt with; none before the first.
    pub processed: Option<Offset>,
    /// The highest offset that the service has shown since the daemon started. It is the service's word alone.
    pub newest: Option<Offset>,
    /// When the service last answered with a page.
    pub last_poll: Option<jiff::Timestamp>,
    /// Events that wait for their proof.
    pub late: usize,
    /// What keeps late proofs from being asked for.
    pub late_error: Option<Problem>,
    /// Events in the quarantine.
    pub quarantined: usize,
    /// In the order of the configuration.
    pub lanes: Vec<LaneReport>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReport {
    /// Its sink.
    pub sink: String,
    /// The last offset that it has dealt with; none before the first.
    pub cursor: Option<Offset>,
    /// Late events that it is owed.
    pub owed: usize,
    /// What it does.
    #[serde(flatten)]
    pub status: LaneStatus,
}

impl Operations {
    pub(super) fn status(&self) -> Result<Answer, Refusal> {
        let held = *self.state.held().borrow();
        let quarantine = QuarantineReport { events: held.events, bytes: held.bytes, full: held.is_full() };
        let channels = self.channels.iter().map(|known| self.channel_status(known)).collect::<Result<Vec<_>, _>>()?;
        let reasons = reasons(self.daemon, quarantine, &channels);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (daemon, ready) = (self.daemon, reasons.is_empty());
        Ok(Answer::Status(Box::new(Report { version, daemon, ready, reasons, quarantine, channels })))
    }

    fn channel_status(&self, known: &Known) -> Result<ChannelReport, Refusal> {
        let (channel, handle) = (&known.channel, self.handles.of(known.channel.id));
        let (status, paused) = (handle.status(), handle.paused());
        let lane = |sink: &std::sync::Arc<str>| {
            let recorded = self.state.lane(&LaneKey { channel: channel.id, sink: sink.clone() })?;
            let standing = || LaneStatus::standing(paused.channel || paused.sinks.contains(&**sink));
            Ok(LaneReport {
                sink: sink.to_string(),
                cursor: recorded.cursor.unwrap_or_default().through,
                owed: recorded.owed.len(),
                status: status.lanes.get(&**sink).cloned().unwrap_or_else(standing),
            })
        };
        let lanes = known.sinks.iter().map(lane).collect::<Result<Vec<_>, Refusal>>()?;
        Ok(ChannelReport {
            channel: channel.name.to_string(),
            channel_id: channel.id,
            activity: status.activity,
            processed: lanes.iter().map(|lane| lane.cursor).min().flatten(),
            newest: status.newest,
            last_poll: status.last_poll,
            late: self.state.late(channel.id)?.len(),
            late_error: status.late_proofs,
            quarantined: self.state.quarantined(channel.id)?.len(),
            lanes,
        })
    }
}

/// Why not everything is as it should be. What an operator has paused is.
fn reasons(daemon: Option<Process>, quarantine: QuarantineReport, channels: &[ChannelReport]) -> Vec<String> {
    if daemon.is_none() {
        return vec!["no daemon runs".to_owned()];
    }
    let full = quarantine.full.then(|| {
        let QuarantineReport { events, bytes, .. } = quarantine;
        format!("the quarantine is full ({events} events, {bytes} bytes): reading stops where evidence would be lost")
    });
    full.into_iter().chain(channels.iter().flat_map(ChannelReport::reasons)).collect()
}

impl ChannelReport {
    fn reasons(&self) -> impl Iterator<Item = String> {
        let channel = &self.channel;
        let reading = trouble(&self.activity)
            .or_else(|| {
                (self.last_poll.is_none() && self.activity != Activity::Paused)
                    .then(|| "has not been read yet".to_owned())
            })
            .map(|what| format!("channel {channel}: {what}"));
        let late = self.late_error.iter().filter(|error| error.needs_attention);
        let late = late.map(move |error| format!("channel {channel}: late proofs: {}", error.message));
        reading.into_iter().chain(late).chain(self.lanes.iter().filter_map(move |lane| {
            let what = match (&lane.status.error, &lane.status.reading) {
                (Some(error), _) if lane.status.state == LaneCondition::Blocked => error.message.clone(),
                (_, Some(reading)) => trouble(reading)?,
                _ => return None,
            };
            Some(format!("channel {channel}, sink {}: {what}", lane.sink))
        }))
    }
}

/// What is wrong where somebody must act.
fn trouble(activity: &Activity) -> Option<String> {
    match activity {
        Activity::Stopped => Some("does not run".to_owned()),
        Activity::Gone => Some("does not exist or is archived".to_owned()),
        Activity::TooManyLate => Some("too many events wait for their proof: reading waits for them".to_owned()),
        Activity::InDoubt { error, .. } => Some(error.message.clone()),
        Activity::Waiting { error } if error.needs_attention => Some(error.message.clone()),
        // The quarantine speaks for itself.
        Activity::QuarantineFull
        | Activity::Waiting { .. }
        | Activity::Paused
        | Activity::Reading
        | Activity::Delivering
        | Activity::Idle
        | Activity::AwaitingProof { .. } => None,
    }
}
