//! Requests that control the daemon and its channels: reading the configuration again, polling now, pauses, cursors, and the
//! acknowledgement of lost data.

use jiff::Timestamp;
use tokio::sync::oneshot;
use tracing::warn;

use crate::api::{AcknowledgeLost, PollNow, Reload};
use crate::{Changes, Operations, Refusal};
use ledger::Lost;
use telemetry::ALWAYS;

pub(crate) mod changes;
mod cursors;
mod pauses;

impl Operations {
    /// Requests a reload from the daemon. If it fails, the daemon keeps its configuration.
    pub(crate) async fn reload(&self, _: &Reload) -> Result<Changes, Refusal> {
        let offline =
            || Refusal::Failed("no daemon is running; the next one reads the configuration when it starts".to_owned());
        let (_, reloads) = self.daemon.as_ref().ok_or_else(offline)?;
        let ending = || Refusal::Failed("the daemon is stopping and does not reload its configuration".to_owned());
        let (reply, answer) = oneshot::channel();
        reloads.send(reply).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?
    }

    /// Wakes the channel if it is waiting for its next poll.
    pub(crate) async fn poll_now(&self, request: &PollNow) -> Result<Timestamp, Refusal> {
        let channel = self.find(&request.channel)?;
        // If another instance owns the channel, the request is forwarded to it.
        let handle = self.handles.of(channel.id);
        if handle.owned().is_none() {
            drop(self.owned(&channel).await?);
        }
        let asked = Timestamp::now();
        handle.poll_now();
        Ok(asked)
    }

    /// Records that an operator has seen the loss, and returns the description of the loss.
    pub(crate) async fn acknowledge_lost(&self, _: &AcknowledgeLost) -> Result<Option<Lost>, Refusal> {
        let lost = self.ledgers.store.acknowledge_lost().await?;
        if let Some(Lost { quarantined, dead_letters, kept, .. }) = &lost {
            warn!(target: ALWAYS, quarantined, dead_letters, kept, "loss acknowledged by an operator");
        }
        Ok(lost)
    }
}
