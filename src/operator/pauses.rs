//! Channels and sinks that stand still because an operator asked for it.

use tracing::warn;

use super::api::{Pause, Paused, Resume};
use super::{Operations, Refusal, check_sink};

impl Operations {
    /// Pauses a channel, or one of its sinks.
    ///
    /// # Errors
    /// If the channel or the sink is not configured.
    #[expect(clippy::unused_async, reason = "every operation is async")]
    pub async fn pause(&self, request: &Pause) -> Result<Paused, Refusal> {
        self.set_paused(&request.channel, request.sink.as_deref(), true)
    }

    /// Resumes a channel, or one of its sinks. A sink that refuses is tried again at once.
    ///
    /// # Errors
    /// If the channel or the sink is not configured.
    #[expect(clippy::unused_async, reason = "every operation is async")]
    pub async fn resume(&self, request: &Resume) -> Result<Paused, Refusal> {
        self.set_paused(&request.channel, request.sink.as_deref(), false)
    }

    fn set_paused(&self, channel: &str, sink: Option<&str>, paused: bool) -> Result<Paused, Refusal> {
        let channel = self.find(channel)?;
        let known = self.known(channel.id).ok_or_else(|| {
            Refusal::Usage(format!(
                "the channel {} is not configured: there is nothing to pause or resume",
                channel.name
            ))
        })?;
        sink.map_or(Ok(()), |sink| check_sink(&channel, sink, &known.sinks))?;
        let handle = self.handles.of(channel.id);
        let changed = match sink {
            None => handle.pause_channel(paused),
            Some(sink) if paused => handle.pause_sink(sink),
            Some(sink) => handle.resume_sink(sink),
        };
        if changed {
            warn!(channel = %channel.name, sink, paused, "paused or resumed by an operator");
        }
        let now = handle.pauses();
        Ok(Paused { changed, channel: now.channel, sinks: now.sinks.into_iter().collect() })
    }
}
