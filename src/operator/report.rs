//! The daemon, its channels and their lanes as they are now: what is durable from the state, the rest from the channels
//! themselves. `channeld status` prints it.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::GetStatus;
use super::{ConfiguredChannel, Operations, Refusal, look};
use crate::channel::{Activity, LaneCondition, LaneNow, LaneStatus, Newest, Problem, Status};
use crate::event::{ChannelId, Offset};
use crate::ledger::{DEAD_LETTERS, LATE, Ledger, Lost, QUARANTINE, Room};
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
    /// The quarantined events of all channels together; full where one channel's are.
    pub quarantine: KeptReport,
    /// What sinks gave up on, all channels together; full where one channel's are.
    pub dead_letters: KeptReport,
    /// Why the state cannot be written; none where it can, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_error: Option<String>,
    /// What was lost to a damaged state, until an operator acknowledges it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
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

impl KeptReport {
    fn of(room: Room, limit: Room) -> Self {
        Self { events: room.events, bytes: room.bytes, full: room.is_full(limit) }
    }

    /// All of them together; full where one is.
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        let none = Self { events: 0, bytes: 0, full: false };
        all.fold(none, |sum, one| Self {
            events: sum.events + one.events,
            bytes: sum.bytes + one.bytes,
            full: sum.full || one.full,
        })
    }

    fn reason(self, what: &str, follows: &str) -> Option<String> {
        let Self { events, bytes, full } = self;
        full.then(|| format!("its {what} full ({events} events, {bytes} bytes): {follows}"))
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
    /// What the quarantine takes.
    pub quarantine: KeptReport,
    /// What the dead letters take.
    pub dead_letters: KeptReport,
    /// Whether no more events may wait for their proof.
    pub late_full: bool,
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
    /// Everything as it is now.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub async fn report(&self) -> Result<Report, Refusal> {
        let mut channels = Vec::with_capacity(self.channels.len());
        for known in &self.channels {
            let ledger = self.ledger(&known.channel).await?;
            channels.push(look(&ledger, |ledger| self.channel_report(known, ledger)));
        }
        let quarantine = KeptReport::sum(channels.iter().map(|channel| channel.quarantine));
        let dead_letters = KeptReport::sum(channels.iter().map(|channel| channel.dead_letters));
        let (state_error, lost) = (self.ledgers.writes.trouble(), self.ledgers.store.lost());
        let reasons = reasons(self.daemon, state_error.as_deref(), lost.as_ref(), &channels);
        let version = version::text();
        let (daemon, ready) = (self.daemon, reasons.is_empty());
        Ok(Report { version, daemon, ready, reasons, quarantine, dead_letters, state_error, lost, channels })
    }

    /// Everything as it is now.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub async fn status(&self, _: &GetStatus) -> Result<Report, Refusal> {
        self.report().await
    }

    fn channel_report(&self, known: &ConfiguredChannel, ledger: &Ledger) -> ChannelReport {
        let (channel, handle) = (&known.channel, self.handles.of(known.channel.id));
        let (status, pauses) = (handle.status(), handle.pauses());
        let cursor = |sink: &Arc<str>| ledger.cursor(sink).and_then(|cursor| cursor.through);
        let newest = newest(&status, known.sinks.iter().map(cursor).max().flatten());
        let lane = |sink: &Arc<str>| {
            let stopped = || LaneStatus::stopped(pauses.channel || pauses.sinks.contains(&**sink));
            let (cursor, now) = (cursor(sink), status.lanes.get(&**sink));
            LaneReport {
                sink: sink.to_string(),
                cursor,
                owed: ledger.owed(sink).count(),
                lag_events: newest.map(|newest| lag(newest, cursor)),
                oldest_undelivered_seconds: newest.map(|newest| match lag(newest, cursor) {
                    0 => 0,
                    _ => age(now, &status.newest, cursor),
                }),
                queued_batches: now.map_or(0, |lane| lane.queued),
                status: now.map_or_else(stopped, |lane| lane.status.clone()),
            }
        };
        let lanes: Vec<_> = known.sinks.iter().map(lane).collect();
        let signer = |(signer, last_seen): (Address, _)| SignerReport { signer: signer.to_string(), last_seen };
        ChannelReport {
            channel: channel.name.to_string(),
            channel_id: channel.id,
            activity: status.activity,
            processed: lanes.iter().map(|lane| lane.cursor).min().flatten(),
            newest,
            lag_events: lanes.iter().map(|lane| lane.lag_events).max().flatten(),
            oldest_undelivered_seconds: lanes.iter().map(|lane| lane.oldest_undelivered_seconds).max().flatten(),
            last_poll: status.last_poll,
            late: ledger.late().len(),
            late_error: status.late_proofs,
            last_error: status.last_error,
            quarantined: ledger.quarantined().len(),
            quarantine: KeptReport::of(ledger.quarantine_room(), QUARANTINE),
            dead_letters: KeptReport::of(ledger.dead_letter_room(), DEAD_LETTERS),
            late_full: ledger.late_room().is_full(LATE),
            signers: status.signers.all().map(signer).collect(),
            required_signatures: status.signers.required(),
            lanes,
        }
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
    state_error: Option<&str>,
    lost: Option<&Lost>,
    channels: &[ChannelReport],
) -> Vec<String> {
    if daemon.is_none() {
        return vec!["no daemon runs".to_owned()];
    }
    let state = state_error.map(|error| format!("the state cannot be written: {error}"));
    let lost = lost.map(|Lost { quarantined, dead_letters, kept, .. }| {
        let kept = kept.as_ref().map_or_else(String::new, |kept| format!(" (kept as it was found: {kept})"));
        format!(
            "{quarantined} quarantined events and {dead_letters} dead letters were lost to a damaged state{kept}: look at it, \
             and then run `channeld state acknowledge`"
        )
    });
    state.into_iter().chain(lost).chain(channels.iter().flat_map(ChannelReport::reasons)).collect()
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
        let quarantine =
            self.quarantine.reason("quarantine is", "reading stops before the next event that would be rejected");
        let dead_letters =
            self.dead_letters.reason("dead letters are", "its sinks give up no event until there is room");
        let late_full = self.late_full.then(|| "its late events are full: reading waits for their proofs".to_owned());
        let full = [quarantine, dead_letters, late_full].into_iter().flatten();
        let full = full.map(move |what| format!("channel {channel}: {what}"));
        let late = self.late_error.iter().filter(|error| error.needs_attention);
        let late = late.map(move |error| format!("channel {channel}: late proofs: {}", error.message));
        reading.into_iter().chain(full).chain(late).chain(self.lanes.iter().filter_map(move |lane| {
            let what = match (&lane.status.error, &lane.status.reading) {
                (Some(error), _) if lane.status.state == LaneCondition::Blocked => error.message.clone(),
                (_, Some(reading)) => trouble(reading)?,
                _ => return None,
            };
            Some(format!("channel {channel}, sink {}: {what}", lane.sink))
        }))
    }
}

/// What is wrong where an operator must act.
fn trouble(activity: &Activity) -> Option<String> {
    match activity {
        Activity::Stopped => Some("does not run".to_owned()),
        Activity::Gone => Some("does not exist or is archived".to_owned()),
        Activity::InDoubt { error, .. } => Some(error.message.clone()),
        Activity::Waiting { error } if error.needs_attention => Some(error.message.clone()),
        // The channel says so once more, with numbers.
        Activity::QuarantineFull
        | Activity::TooManyLate
        | Activity::Waiting { .. }
        | Activity::Paused
        | Activity::Reading
        | Activity::Delivering
        | Activity::Idle
        | Activity::AwaitingProof { .. } => None,
    }
}
