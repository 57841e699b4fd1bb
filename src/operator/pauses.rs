//! Channels and sinks that stand still because an operator asked for it.

use tracing::warn;

use super::api::SetPaused;
use super::{Operations, Refusal, check_sink};

impl Operations {
    /// A sink that refuses and is resumed is tried again at once.
    #[expect(clippy::unused_async, reason = "every operation is async")]
    pub(super) async fn set_paused(&self, request: &SetPaused) -> Result<bool, Refusal> {
        let SetPaused { channel, sink, paused } = request;
        let channel = self.find(channel)?;
        let known = self.known(channel.id).ok_or_else(|| {
            let name = &channel.name;
            Refusal::Usage(format!("the channel {name} is not configured: there is nothing to pause or resume"))
        })?;
        let handle = self.handles.of(channel.id);
        let changed = match sink {
            None => handle.pause_channel(*paused),
            Some(sink) => {
                check_sink(&channel, sink, &known.sinks)?;
                if *paused { handle.pause_sink(sink) } else { handle.resume_sink(sink) }
            }
        };
        if changed {
            warn!(channel = %channel.name, sink, paused, "paused or resumed by an operator");
        }
        Ok(changed)
    }
}
