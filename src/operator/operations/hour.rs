//! Records a sample of each channel every minute, and returns the samples of the last hour to clients that draw charts.
//!
//! # Invariants
//!
//! * **Only channels that run here are sampled.** If a channel runs in another instance, that instance has its samples.
//!
//! # Cancellation
//!
//! Every function can be dropped at any point.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::{ChannelEntry, GetLastHour, LastHour};
use crate::request::ask_others;
use crate::{ConfiguredChannel, Operations, Refusal};
use channel::Sample;
use proof::event::ChannelId;
use record::ChannelRef;

/// The interval between two checks whether a channel lacks the sample of this minute. It is short so that a channel that has
/// just started gets its first sample soon.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Records a sample of each channel that runs here, once per minute. Never ends.
pub async fn note_minutes(operations: watch::Receiver<Arc<Operations>>) {
    let mut looks = interval(LOOK_AGAIN);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let (operations, now) = (operations.borrow().clone(), Timestamp::now().as_second());
        for ConfiguredChannel { channel, sinks, .. } in &*operations.channels {
            let handle = operations.handles.of(channel.id);
            if let Some(owned) = handle.owned() {
                let (ledger, mut board) = (owned.leased.ledger(), handle.board());
                let lag = board.lag(sinks, &ledger);
                board.hour.note(now, lag);
            }
        }
    }
}

impl Operations {
    /// Returns the last hour of the requested channels, with the samples of all instances. If `here` is set, returns
    /// only the samples of this instance.
    pub(crate) async fn last_hour(&self, request: &GetLastHour) -> Result<Vec<ChannelEntry<LastHour>>, Refusal> {
        let mut hours = self.last_hour_here(request)?;
        let Some(peers) = self.cluster.as_ref().filter(|_| !request.here) else { return Ok(hours) };
        let channels = hours.iter().map(|hour| hour.channel_id.to_string()).collect();
        let mut samples: BTreeMap<ChannelId, Vec<Sample>> = BTreeMap::new();
        // The samples of an instance that does not answer are missing. The status names this instance.
        for (_, answer) in ask_others(peers, &GetLastHour { channels, here: true }).await {
            for other in answer.unwrap_or_default() {
                samples.entry(other.channel_id).or_default().extend(other.facts.samples);
            }
        }
        for hour in &mut hours {
            hour.facts.samples.extend(samples.remove(&hour.channel_id).unwrap_or_default());
            hour.facts.samples.sort_by_key(|sample| sample.at);
        }
        Ok(hours)
    }

    /// Returns the last hour as this instance has seen it. If the channel runs here, the last sample describes the present
    /// moment.
    pub(crate) fn last_hour_here(&self, request: &GetLastHour) -> Result<Vec<ChannelEntry<LastHour>>, Refusal> {
        let now = Timestamp::now().as_second();
        let channels: Vec<_> = if request.channels.is_empty() {
            self.channels.iter().map(|known| known.channel.clone()).collect()
        } else {
            request.channels.iter().map(|channel| self.find(channel)).collect::<Result<_, _>>()?
        };
        let hour =
            |channel: &ChannelRef| ChannelEntry::of(channel, LastHour { samples: self.samples(channel.id, now) });
        Ok(channels.iter().map(hour).collect())
    }

    fn samples(&self, channel: ChannelId, now: i64) -> Vec<Sample> {
        let handle = self.handles.of(channel);
        let mut samples: Vec<_> = handle.board().hour.samples(now).collect();
        if let Some(owned) = handle.owned()
            && samples.last().is_none_or(|last| last.at < now)
        {
            let sinks = self.known(channel).map_or(&[][..], |known| &known.sinks);
            let (ledger, board) = (owned.leased.ledger(), handle.board());
            samples.push(board.hour.sample(now, board.lag(sinks, &ledger)));
        }
        samples
    }
}
