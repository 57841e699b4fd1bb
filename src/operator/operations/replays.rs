//! Starts, lists, pauses, resumes and cancels replays. The channel's task carries them out.

use jiff::Timestamp;
use tracing::warn;

use crate::api::{ChannelEntry, ListReplays, ReplayAction, SetReplay, StartReplay};
use crate::{Operations, Refusal, check_sink};
use channel::{LeasedChannel, ReplayStatus};
use ledger::{Change, Commit, Ledger, REPLAYS, Replay, ReplayId, ReplayState, SinkName};
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    /// Records one replay for each sink, so that no sink delays the replay of another. The channel carries them out while it
    /// runs.
    pub(crate) async fn start_replay(&self, request: &StartReplay) -> Result<Vec<ChannelEntry<ReplayStatus>>, Refusal> {
        let (channel, from, to) = (self.find(&request.channel)?, request.from, request.to);
        let mut sinks = self.configured(&channel)?.sinks.clone();
        if let Some(sink) = &request.sink {
            check_sink(&channel.name, sink, &sinks)?;
            sinks.retain(|known| **known == **sink);
        }
        if from > to {
            return Err(Refusal::Usage("the first offset is above the last offset".to_owned()));
        }
        let owned = self.owned(&channel).await?;
        check_start(&channel, &owned.leased.ledger(), request, &sinks)?;
        let since = Timestamp::now().as_second();
        let replays: Vec<_> = sinks.into_iter().map(|sink| Replay::new(vec![sink], from, to, since)).collect();
        owned.leased.commit(Commit(replays.iter().cloned().map(Change::StartReplay).collect())).await?;
        replays.iter().map(|replay| self.started(&channel, &owned, replay)).collect()
    }

    /// Logs a replay that was recorded, and returns its status.
    fn started(
        &self,
        channel: &ChannelRef,
        owned: &LeasedChannel,
        replay: &Replay,
    ) -> Result<ChannelEntry<ReplayStatus>, Refusal> {
        let is_new = |known: &Replay| {
            (&known.sinks, known.from, known.to, known.since) == (&replay.sinks, replay.from, replay.to, replay.since)
        };
        let id = owned.leased.ledger().replays().iter().rfind(|(_, known)| is_new(known)).map(|(id, _)| *id);
        let id = id.ok_or_else(|| Refusal::Failed("the replay has already ended".to_owned()))?;
        let (name, sink, from, to) = (&channel.name, replay.sinks.join(", "), replay.from.get(), replay.to.get());
        warn!(target: ALWAYS, channel = %name, sinks = sink, from, to, replay = id, "replay requested by an operator");
        self.replay(channel, owned, id)
    }

    /// Returns the recorded replays, including replays that have ended.
    pub(crate) async fn list_replays(&self, request: &ListReplays) -> Result<Vec<ChannelEntry<ReplayStatus>>, Refusal> {
        let replays =
            |channel: &ChannelRef, ledger: &Ledger| self.handles.of(channel.id).board().replays.statuses(ledger);
        self.list(request.channel.as_deref(), replays).await
    }

    /// Pauses, resumes or cancels a replay.
    pub(crate) async fn set_replay(&self, request: &SetReplay) -> Result<ChannelEntry<ReplayStatus>, Refusal> {
        let SetReplay { channel, id, action } = request;
        let channel = self.find(channel)?;
        let owned = self.owned(&channel).await?;
        let before = self.replay(&channel, &owned, *id)?.facts.state;
        if before.has_ended() {
            let (name, state) = (&channel.name, <&str>::from(before));
            return Err(Refusal::Usage(format!("replay {id} of channel {name} has already ended: it is {state}")));
        }
        let state = match action {
            ReplayAction::Pause => ReplayState::Paused,
            ReplayAction::Resume => ReplayState::Running,
            ReplayAction::Cancel => ReplayState::Cancelled,
        };
        owned.leased.commit(Commit(vec![Change::SetReplay { id: *id, state }])).await?;
        let state = <&str>::from(state);
        warn!(target: ALWAYS, channel = %channel.name, replay = id, state, "replay changed by an operator");
        self.replay(&channel, &owned, *id)
    }

    fn replay(
        &self,
        channel: &ChannelRef,
        owned: &LeasedChannel,
        id: ReplayId,
    ) -> Result<ChannelEntry<ReplayStatus>, Refusal> {
        let ledger = owned.leased.ledger();
        let replays = self.handles.of(channel.id).board().replays.statuses(&ledger);
        let found = replays.into_iter().find(|replay| replay.id == id);
        let missing = || {
            let name = &channel.name;
            Refusal::Usage(format!("channel {name} has no replay {id}: see `channeld replay --list`"))
        };
        Ok(ChannelEntry::of(channel, found.ok_or_else(missing)?))
    }
}

/// Checks that every sink has passed the range, and that one more replay for each sink can be recorded.
fn check_start(
    channel: &ChannelRef,
    ledger: &Ledger,
    request: &StartReplay,
    sinks: &[SinkName],
) -> Result<(), Refusal> {
    let name = &channel.name;
    for sink in sinks {
        let cursor = ledger.cursor(sink).unwrap_or_default();
        if cursor.through < Some(request.to) {
            return Err(Refusal::Usage(format!(
                "sink {sink} of channel {name} has reached offset {cursor}, and receives later events in order: nothing is delivered; choose a lower --to"
            )));
        }
    }
    let unfinished = ledger.replays().values().filter(|replay| !replay.state.has_ended()).count();
    // A channel can have more sinks than recorded replays. It can then have one replay for each sink.
    if unfinished > 0 && unfinished + sinks.len() > REPLAYS {
        return Err(Refusal::Failed(format!(
            "channel {name} has {unfinished} replays that have not ended, of at most {REPLAYS}, and each sink needs one: wait until replays end, or cancel some \
             (`channeld replay {name} --list`)"
        )));
    }
    Ok(())
}
