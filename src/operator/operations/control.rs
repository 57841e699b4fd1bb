//! Requests that control the daemon and its channels: reading the configuration again, polling now, pauses, and the
//! acknowledgement of lost data.

use jiff::Timestamp;
use tokio::sync::oneshot;
use tracing::field::display;
use tracing::warn;

use crate::api::{AcknowledgeLost, PollNow, Reload, SetPaused};
use crate::{Changes, Operations, Refusal, check_sink};
use ledger::{LostEntries, Pause, SinkName};
use telemetry::ALWAYS;

impl Operations {
    /// Makes the daemon reload its configuration. If the reload fails, the daemon keeps its configuration.
    pub(crate) async fn reload(&self, _: &Reload) -> Result<Changes, Refusal> {
        let offline =
            || Refusal::Failed("no daemon is running; a daemon reads its configuration when it starts".to_owned());
        let (_, reloads) = self.daemon.as_ref().ok_or_else(offline)?;
        let ending = || Refusal::Failed("the daemon is stopping and does not reload its configuration".to_owned());
        let (reply, answer) = oneshot::channel();
        reloads.send(reply).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?
    }

    /// Wakes the channel if it waits for its next poll.
    pub(crate) async fn poll_now(&self, request: &PollNow) -> Result<Timestamp, Refusal> {
        let channel = self.find(&request.channel)?;
        // If another instance owns the channel, the request is forwarded to that instance.
        let handle = self.handles.of(channel.id);
        if handle.owned().is_none() {
            drop(self.owned(&channel).await?);
        }
        let asked = Timestamp::now();
        handle.poll_now();
        Ok(asked)
    }

    /// Records that an operator has seen the loss, and returns the description of the loss.
    pub(crate) async fn acknowledge_lost(&self, _: &AcknowledgeLost) -> Result<Option<LostEntries>, Refusal> {
        let lost = self.ledgers.store.acknowledge_lost().await?;
        if let Some(LostEntries { quarantined, dead_letters, kept, .. }) = &lost {
            warn!(target: ALWAYS, quarantined, dead_letters, kept, "loss acknowledged by an operator");
        }
        Ok(lost)
    }

    /// Pauses or resumes a channel or a sink. If a refusing sink is resumed, it is retried at once.
    pub(crate) async fn set_paused(&self, request: &SetPaused) -> Result<bool, Refusal> {
        let SetPaused { channel, sink, paused, until, accept_loss } = request;
        let channel = self.find(channel)?;
        let known = self.known(channel.id).ok_or_else(|| {
            Refusal::Usage(format!("the channel {} is not configured, so it cannot be paused or resumed", channel.name))
        })?;
        if let Some(sink) = sink {
            check_sink(&channel.name, sink, &known.sinks)?;
        }
        let pause = paused.then(|| Pause { since: Timestamp::now(), until: *until });
        let (owned, handle) = (self.owned(&channel).await?, self.handles.of(channel.id));
        let changed = owned.pause(&handle, sink.as_deref().map(SinkName::from), pause, *accept_loss).await?;
        if !changed
            && !paused
            && let Some(lost) = sink.as_deref().and_then(|sink| handle.lost_data(sink))
        {
            return Err(Refusal::Failed(lost.message));
        }
        if changed {
            let (channel, until) = (&channel.name, until.map(display));
            if *paused {
                warn!(%channel, sink, until, "paused by an operator");
            } else {
                warn!(%channel, sink, "resumed by an operator");
            }
        }
        Ok(changed)
    }
}
