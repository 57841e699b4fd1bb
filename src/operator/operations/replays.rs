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
    /// Records a replay. The channel carries it out while it runs.
    pub(crate) async fn start_replay(&self, request: &StartReplay) -> Result<ChannelEntry<ReplayStatus>, Refusal> {
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
        let replay = Replay::new(sinks, from, to, Timestamp::now().as_second());
        owned.leased.commit(Commit(vec![Change::StartReplay(replay.clone())])).await?;
        let is_new = |known: &Replay| {
            (&known.sinks, known.from, known.to, known.since) == (&replay.sinks, from, to, replay.since)
        };
        let id = owned.leased.ledger().replays().iter().rfind(|(_, known)| is_new(known)).map(|(id, _)| *id);
        let id = id.ok_or_else(|| Refusal::Failed("the replay has already ended".to_owned()))?;
        let (name, sinks) = (&channel.name, replay.sinks.join(", "));
        warn!(target: ALWAYS, channel = %name, sinks, from = from.get(), to = to.get(), replay = id, "replay requested by an operator");
        self.replay(&channel, &owned, id)
    }

    /// Returns the recorded replays, including replays that have ended.
    pub(crate) async fn list_replays(&self, request: &ListReplays) -> Result<Vec<ChannelEntry<ReplayStatus>>, Refusal> {
        let replays = |channel: &ChannelRef, ledger: &Ledger| self.handles.of(channel.id).board().replays(ledger);
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
        let replays = self.handles.of(channel.id).board().replays(&ledger);
        let found = replays.into_iter().find(|replay| replay.id == id);
        let missing = || {
            let name = &channel.name;
            Refusal::Usage(format!("channel {name} has no replay {id}: see `channeld replay --list`"))
        };
        Ok(ChannelEntry::of(channel, found.ok_or_else(missing)?))
    }
}

/// Checks that every sink has passed the range, and that one more replay can be recorded.
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
    if unfinished >= REPLAYS {
        return Err(Refusal::Failed(format!(
            "channel {name} has {unfinished} replays that have not ended: wait until one ends, or cancel one (`channeld replay {name} --list`)"
        )));
    }
    Ok(())
}
