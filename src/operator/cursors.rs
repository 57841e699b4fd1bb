//! The cursors: listed and set.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::api::{CursorMove, CursorPosition, ListCursors, SetCursors};
use super::{Operations, Refusal, check_sink, look};
use crate::channel::Command;
use crate::event::Offset;
use crate::ledger::{Ledger, SinkName};
use crate::record::ChannelRef;

impl Operations {
    /// The cursors of one channel or of all, those of lanes that are no longer configured included.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn list_cursors(&self, request: &ListCursors) -> Result<Vec<CursorPosition>, Refusal> {
        let mut positions = Vec::new();
        for channel in self.selected(request.channel.as_deref()).await? {
            let sinks = self.known(channel.id).map_or_else(Vec::new, |known| known.sinks.clone());
            let ledger = self.ledger(&channel).await?;
            look(&ledger, |ledger| {
                positions.extend(ledger.cursors().iter().map(|(sink, cursor)| CursorPosition {
                    channel: channel.name.to_string(),
                    channel_id: channel.id,
                    sink: sink.to_string(),
                    configured: sinks.contains(sink),
                    cursor: cursor.through,
                    owed: ledger.owed(sink).count(),
                }));
            });
        }
        Ok(positions)
    }

    /// Says what setting the cursors means or, with `apply`, does it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn set_cursors(&self, request: &SetCursors) -> Result<Vec<CursorMove>, Refusal> {
        let (channel, to) = (self.find(&request.channel)?, request.to);
        let ledger = self.ledger(&channel).await?;
        let sinks = look(&ledger, |ledger| self.sinks_of(&channel, ledger));
        let sinks = chosen(&channel, sinks, request.sink.as_deref())?;
        let moves = look(&ledger, |ledger| {
            let from = |sink: &SinkName| ledger.cursor(sink).unwrap_or_default().through;
            sinks.iter().map(|sink| CursorMove::between(sink, from(sink), to)).collect()
        });
        if request.apply {
            self.perform(&channel, Command::SetCursors { sinks, to }).await?;
        }
        Ok(moves)
    }

    /// Those that are configured, and those that have a cursor.
    fn sinks_of(&self, channel: &ChannelRef, ledger: &Ledger) -> BTreeSet<SinkName> {
        let configured = self.known(channel.id).into_iter().flat_map(|known| known.sinks.iter().cloned());
        ledger.cursors().keys().cloned().chain(configured).collect()
    }
}

fn chosen(channel: &ChannelRef, sinks: BTreeSet<SinkName>, sink: Option<&str>) -> Result<Vec<SinkName>, Refusal> {
    let sinks: Vec<_> = sinks.into_iter().collect();
    if let Some(sink) = sink {
        check_sink(channel, sink, &sinks)?;
        return Ok(vec![Arc::from(sink)]);
    }
    if sinks.is_empty() {
        return Err(Refusal::Usage(format!("the channel {} is not configured and has no cursor", channel.name)));
    }
    Ok(sinks)
}

impl CursorMove {
    fn between(sink: &str, from: Option<Offset>, to: Option<Offset>) -> Self {
        // The start counts as the place below offset 0.
        let place = |cursor: Option<Offset>| cursor.map_or(-1, Offset::get);
        let distance = place(to).abs_diff(place(from));
        let (repeated, passed_over) = if to < from { (distance, 0) } else { (0, distance) };
        Self { sink: sink.to_owned(), from, to, repeated, passed_over }
    }
}

#[cfg(test)]
mod tests;
