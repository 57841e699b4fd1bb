//! Pauses and resumes channels and sinks at an operator's request.

use jiff::Timestamp;
use tracing::field::display;
use tracing::warn;

use crate::api::SetPaused;
use crate::{Operations, Refusal, check_sink};
use ledger::{Pause, SinkName};

impl Operations {
    /// If a refusing sink is resumed, it is retried at once.
    pub(crate) async fn set_paused(&self, request: &SetPaused) -> Result<bool, Refusal> {
        let SetPaused { channel, sink, paused, until } = request;
        let channel = self.find(channel)?;
        let known = self.known(channel.id).ok_or_else(|| {
            let name = &channel.name;
            Refusal::Usage(format!("the channel {name} is not configured, so it cannot be paused or resumed"))
        })?;
        if let Some(sink) = sink {
            check_sink(&channel.name, sink, &known.sinks)?;
        }
        let pause = paused.then(|| Pause { since: Timestamp::now(), until: *until });
        let (owned, handle) = (self.owned(&channel).await?, self.handles.of(channel.id));
        let changed = owned.pause(&handle, sink.as_deref().map(SinkName::from), pause).await?;
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
