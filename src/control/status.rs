//! The daemon, its channels and their lanes as they are now: what is durable from the state, the rest from the channels
//! themselves. `channeld status` prints it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Answer, Known, Operations, Refusal};
use crate::channel::{Activity, LaneCondition, LaneNow, LaneStatus, Newest, Problem, Status};
use crate::event::{ChannelId, Offset};
use crate::state::{Cursor, Held, LaneKey};
use crate::verify::Address;
use crate::version;

/// Everything, for one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version that answered, with its commit where that is known.
    pub version: String,
    /// The process; none where no daemon runs, and this is what it left.
    pub daemon: Option<Process>,
    /// Whether everything is as it should be.
    pub ready: bool,
    /// Why it is not.
    pub reasons: Vec<String>,
    /// All channels together.
    pub quarantine: KeptReport,
    /// What sinks gave up on, all channels together.
    pub dead_letters: KeptReport,
    /// In the order of their names.
    pub channels: Vec<ChannelReport>,
}

/// A daemon that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Since when it runs.
    pub started: Timestamp,
}

/// What the quarantine, or the dead letters, hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptReport {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether there is no room for more.
    pub full: bool,
}

impl From<Held> for KeptReport {
    fn from(held: Held) -> Self {
        Self { events: held.events, bytes: held.bytes, full: held.is_full() }
    }
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
    /// The highest offset that the service has shown since the daemon started and that is believed: one that the service
    /// does not confirm counts no more once it was judged.
    pub newest: Option<Offset>,
    /// The newest offset less the processed: at most so many events are undelivered. None where the newest is not known.
    pub lag_events: Option<u64>,
    /// The age of the oldest event that some lane has not dealt with, see [`LaneReport`].
    pub oldest_undelivered_seconds: Option<u64>,
    /// When the service last answered with a page.
    pub last_poll: Option<Timestamp>,
    /// Events that wait for their proof.
    pub late: usize,
    /// What keeps late proofs from being asked for.
    pub late_error: Option<Problem>,
    /// What went wrong last with its reading since the daemon started, be it over or not.
    pub last_error: Option<Problem>,
    /// Events in the quarantine.
    pub quarantined: usize,
    /// The configured signers.
    pub signers: Vec<SignerReport>,
    /// How many of them an event needs; 0 where the channel does not run.
    pub required_signatures: usize,
    /// In the order of the configuration.
    pub lanes: Vec<LaneReport>,
}

/// A signer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignerReport {
    /// Its address.
    pub signer: String,
    /// When a signature of it was last counted; none before the first since the daemon started.
    pub last_seen: Option<Timestamp>,
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
    /// The newest offset less the cursor: at most so many events are undelivered.
    pub lag_events: Option<u64>,
    /// The age of the oldest event that it has not dealt with; 0 where there is none. By the event's own time while it is
    /// being offered, otherwise since the daemon has known that there is one.
    pub oldest_undelivered_seconds: Option<u64>,
    /// Batches that were read and wait for it.
    pub queued_batches: usize,
    /// What it does.
    #[serde(flatten)]
    pub status: LaneStatus,
}

impl Operations {
    /// Everything as it is now. Reads the state: off the async threads.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn report(&self) -> Result<Report, Refusal> {
        let cursors = self.state.cursors()?;
        let channels = self.channels.iter().map(|known| self.channel_status(known, &cursors));
        let channels = channels.collect::<Result<Vec<_>, _>>()?;
        // Last: what the channels say is in them, then, or on its way.
        let quarantine = KeptReport::from(*self.state.held().borrow());
        let dead_letters = KeptReport::from(*self.state.dead().borrow());
        let reasons = reasons(self.daemon, quarantine, dead_letters, &channels);
        let version = version::text();
        let (daemon, ready) = (self.daemon, reasons.is_empty());
        Ok(Report { version, daemon, ready, reasons, quarantine, dead_letters, channels })
    }

    pub(super) async fn status(&self) -> Result<Answer, Refusal> {
        let operations = self.clone();
        let report = tokio::task::spawn_blocking(move || operations.report()).await;
        let report = report.unwrap_or_else(|panic| Err(Refusal::Failed(panic.to_string())))?;
        Ok(Answer::Status(Box::new(report)))
    }

    fn channel_status(&self, known: &Known, cursors: &BTreeMap<LaneKey, Cursor>) -> Result<ChannelReport, Refusal> {
        let (channel, handle) = (&known.channel, self.handles.of(known.channel.id));
        let (status, paused) = (handle.status(), handle.paused());
        let late = self.state.late(channel.id)?;
        let cursor = |sink: &Arc<str>| {
            let cursor = cursors.get(&LaneKey { channel: channel.id, sink: sink.clone() });
            cursor.and_then(|cursor| cursor.through)
        };
        let newest = newest(&status, known.sinks.iter().map(cursor).max().flatten());
        let lane = |sink: &Arc<str>| {
            let standing = || LaneStatus::standing(paused.channel || paused.sinks.contains(&**sink));
            let (cursor, now) = (cursor(sink), status.lanes.get(&**sink));
            LaneReport {
                sink: sink.to_string(),
                cursor,
                owed: late.values().filter(|late| late.owed.contains(&**sink)).count(),
                lag_events: newest.map(|newest| lag(newest, cursor)),
                oldest_undelivered_seconds: newest.map(|newest| match lag(newest, cursor) {
                    0 => 0,
                    _ => age(now, &status.newest, cursor),
                }),
                queued_batches: now.map_or(0, |lane| lane.queued),
                status: now.map_or_else(standing, |lane| lane.status.clone()),
            }
        };
        let lanes: Vec<_> = known.sinks.iter().map(lane).collect();
        let signer = |(signer, last_seen): (Address, _)| SignerReport { signer: signer.to_string(), last_seen };
        Ok(ChannelReport {
            channel: channel.name.to_string(),
            channel_id: channel.id,
            activity: status.activity,
            processed: lanes.iter().map(|lane| lane.cursor).min().flatten(),
            newest,
            lag_events: lanes.iter().map(|lane| lane.lag_events).max().flatten(),
            oldest_undelivered_seconds: lanes.iter().map(|lane| lane.oldest_undelivered_seconds).max().flatten(),
            last_poll: status.last_poll,
            late: late.len(),
            late_error: status.late_proofs,
            last_error: status.last_error,
            quarantined: self.state.count_quarantined(channel.id)?,
            signers: status.signers.all().map(signer).collect(),
            required_signatures: status.signers.required(),
            lanes,
        })
    }
}

/// How far a channel goes that has been read up to `highest`: that far at the least, once the service has answered.
fn newest(status: &Status, highest: Option<Offset>) -> Option<Offset> {
    status.last_poll.and(status.newest.offset().max(highest))
}

/// How many offsets there are above `cursor`.
fn lag(newest: Offset, cursor: Option<Offset>) -> u64 {
    let processed = cursor.map_or(-1, Offset::get);
    u64::try_from(newest.get().saturating_sub(processed)).unwrap_or(0)
}

/// The age of the oldest event above `cursor`.
fn age(lane: Option<&LaneNow>, newest: &Newest, cursor: Option<Offset>) -> u64 {
    let offered = lane.and_then(|lane| lane.offers);
    let since = offered.or_else(|| newest.since(cursor));
    since.map_or(0, |since| u64::try_from(Timestamp::now().as_second() - since.as_second()).unwrap_or(0))
}

/// Why not everything is as it should be. What an operator has paused is.
fn reasons(
    daemon: Option<Process>,
    quarantine: KeptReport,
    dead_letters: KeptReport,
    channels: &[ChannelReport],
) -> Vec<String> {
    if daemon.is_none() {
        return vec!["no daemon runs".to_owned()];
    }
    let full = |kept: KeptReport, what: &str, follows: &str| {
        let KeptReport { events, bytes, full } = kept;
        full.then(|| format!("{what} full ({events} events, {bytes} bytes): {follows}"))
    };
    let quarantine = full(quarantine, "the quarantine is", "reading stops where evidence would be lost");
    let dead_letters = full(dead_letters, "the dead letters are", "no sink gives an event up any more");
    let full = quarantine.into_iter().chain(dead_letters);
    full.chain(channels.iter().flat_map(ChannelReport::reasons)).collect()
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
