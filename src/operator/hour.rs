//! The last hour of the channels: noted minute by minute, and shown to clients that draw it.
//!
//! # Invariants
//!
//! * **Only what works here is noted.** Of a channel that another instance works, that instance knows the time.
//!
//! # Cancellation
//!
//! At any point.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::api::{Entry, GetLastHour, LastHour};
use super::instances::ask_others;
use super::{ConfiguredChannel, Operations, Refusal, look};
use channel::Sample;
use proof::event::ChannelId;
use record::ChannelRef;

/// Between two looks whether a channel lacks the sample of this minute: one that begins has its first one soon.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Notes once in each minute how the channels are that work here.
pub async fn note_minutes(operations: watch::Receiver<Arc<Operations>>) -> Infallible {
    let mut looks = interval(LOOK_AGAIN);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let operations = operations.borrow().clone();
        operations.note_minute(Timestamp::now().as_second());
    }
}

impl Operations {
    fn note_minute(&self, now: i64) {
        for ConfiguredChannel { channel, sinks, .. } in &self.channels {
            let handle = self.handles.of(channel.id);
            let Some(owned) = handle.owned() else { continue };
            look(&owned.claim.ledger, |ledger| {
                let mut board = handle.board();
                let lag = board.lag(sinks, ledger);
                board.hour.note(now, lag);
            });
        }
    }

    /// The last hour of the channels that are asked for, as this instance and, unless only `here` is asked for, the others
    /// have seen it.
    pub(super) async fn last_hour(&self, request: &GetLastHour) -> Result<Vec<Entry<LastHour>>, Refusal> {
        let mut hours = self.last_hour_here(request)?;
        let Some(peers) = self.cluster.as_ref().filter(|_| !request.here) else { return Ok(hours) };
        let channels = hours.iter().map(|hour| hour.channel_id.to_string()).collect();
        let mut samples: BTreeMap<ChannelId, Vec<Sample>> = BTreeMap::new();
        // What an instance knows that does not answer is missing. The status says which one that is.
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

    /// As this instance has seen it. The last sample is of this moment where the channel works here.
    pub(super) fn last_hour_here(&self, request: &GetLastHour) -> Result<Vec<Entry<LastHour>>, Refusal> {
        let now = Timestamp::now().as_second();
        let channels: Vec<_> = if request.channels.is_empty() {
            self.channels.iter().map(|known| known.channel.clone()).collect()
        } else {
            request.channels.iter().map(|channel| self.find(channel)).collect::<Result<_, _>>()?
        };
        let hour = |channel: &ChannelRef| Entry::of(channel, LastHour { samples: self.samples(channel.id, now) });
        Ok(channels.iter().map(hour).collect())
    }

    fn samples(&self, channel: ChannelId, now: i64) -> Vec<Sample> {
        let handle = self.handles.of(channel);
        let mut samples: Vec<_> = handle.board().hour.samples(now).collect();
        if let Some(owned) = handle.owned()
            && samples.last().is_none_or(|last| last.at < now)
        {
            let sinks = self.known(channel).map_or(&[][..], |known| &known.sinks);
            samples.push(look(&owned.claim.ledger, |ledger| {
                let board = handle.board();
                board.hour.sample(now, board.lag(sinks, ledger))
            }));
        }
        samples
    }
}
