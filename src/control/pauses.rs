//! Channels and sinks that stand still because an operator says so.

use tracing::warn;

use super::{Answer, Operations, Paused, Refusal, check_sink};

impl Operations {
    pub(super) fn pause(&self, channel: &str, sink: Option<&str>, paused: bool) -> Result<Answer, Refusal> {
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
            None => handle.change(|state| state.channel = paused),
            Some(sink) if paused => handle.pause_sink(sink),
            Some(sink) => handle.resume_sink(sink),
        };
        if changed {
            warn!(channel = %channel.name, sink, paused, "paused or resumed by an operator");
        }
        let now = handle.paused();
        Ok(Answer::Paused(Paused { changed, channel: now.channel, sinks: now.sinks.into_iter().collect() }))
    }
}
