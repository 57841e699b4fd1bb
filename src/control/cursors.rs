//! The cursors: shown, and put elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::warn;

use super::{Answer, Move, Operations, Position, Refusal, check_sink};
use crate::event::Offset;
use crate::record::ChannelRef;
use crate::state::{Commit, Cursor, LaneKey};
use crate::telemetry::ALWAYS;

impl Operations {
    pub(super) fn cursors(&self, channel: Option<&str>) -> Result<Answer, Refusal> {
        let only = channel.map(|channel| self.find(channel)).transpose()?;
        let mut positions = Vec::new();
        for (lane, cursor) in self.state.cursors()? {
            if only.as_ref().is_none_or(|only| only.id == lane.channel) {
                positions.push(Position {
                    channel: self.channel(lane.channel).name.to_string(),
                    channel_id: lane.channel,
                    sink: lane.sink.to_string(),
                    configured: self.known(lane.channel).is_some_and(|known| known.sinks.contains(&lane.sink)),
                    cursor: cursor.through,
                    owed: self.state.lane(&lane)?.owed.len(),
                });
            }
        }
        Ok(Answer::Cursors(positions))
    }

    /// Says what putting the cursors elsewhere means or, with `apply`, does it.
    pub(super) async fn set_cursors(
        &self,
        channel: &str,
        sink: Option<&str>,
        to: Option<Offset>,
        apply: bool,
    ) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let moves = self.moves(&channel, sink, to)?;
        if apply {
            let handle = self.handles.of(channel.id);
            let _standing = handle.stand_still().ok_or_else(|| {
                Refusal::Failed(format!(
                    "channel {} is running, and moves its cursors itself: pause it as a whole (`channeld pause {}`), or stop the \
                     daemon",
                    channel.name, channel.name
                ))
            })?;
            let lane = |sink: &str| LaneKey { channel: channel.id, sink: sink.into() };
            let set = moves.iter().map(|moved| (lane(&moved.sink), Cursor { through: to })).collect();
            self.state.commit(Commit { set, ..Commit::default() }).await?;
            for Move { sink, from, to, .. } in &moves {
                let (from, to) = (Cursor { through: *from }, Cursor { through: *to });
                warn!(target: ALWAYS, channel = %channel.name, sink, %from, %to, "cursor set by an operator");
            }
        }
        Ok(Answer::Moves(moves))
    }

    fn moves(&self, channel: &ChannelRef, sink: Option<&str>, to: Option<Offset>) -> Result<Vec<Move>, Refusal> {
        let mut sinks = self.sinks_of(channel)?;
        if let Some(sink) = sink {
            check_sink(channel, sink, &sinks.into_iter().collect::<Vec<_>>())?;
            sinks = [Arc::from(sink)].into();
        }
        if sinks.is_empty() {
            return Err(Refusal::Usage(format!("the channel {} is not configured and has no cursor", channel.name)));
        }
        let each = |sink: Arc<str>| {
            let lane = LaneKey { channel: channel.id, sink };
            let from = self.state.lane(&lane)?.cursor.unwrap_or_default().through;
            Ok(Move::between(&lane.sink, from, to))
        };
        sinks.into_iter().map(each).collect()
    }

    /// Those that are configured, and those that have a cursor.
    fn sinks_of(&self, channel: &ChannelRef) -> Result<BTreeSet<Arc<str>>, Refusal> {
        let recorded = self.state.cursors()?.into_keys().filter(|lane| lane.channel == channel.id);
        let configured = self.known(channel.id).into_iter().flat_map(|known| known.sinks.iter().cloned());
        Ok(recorded.map(|lane| lane.sink).chain(configured).collect())
    }
}

impl Move {
    fn between(sink: &str, from: Option<Offset>, to: Option<Offset>) -> Self {
        // The start counts as the place below offset 0.
        let place = |cursor: Option<Offset>| cursor.map_or(-1, Offset::get);
        let distance = place(to).abs_diff(place(from));
        let (repeated, passed_over) = if to < from { (distance, 0) } else { (0, distance) };
        Self { sink: sink.to_owned(), from, to, repeated, passed_over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_says_how_far_it_goes_and_which_way() {
        let cases = [
            (Some(10), Some(3), (7, 0)),
            (Some(3), Some(10), (0, 7)),
            (Some(3), None, (4, 0)),
            (None, Some(0), (0, 1)),
            (None, None, (0, 0)),
        ];
        for (from, to, expected) in cases {
            let moved = Move::between("s", from.and_then(Offset::new), to.and_then(Offset::new));
            assert_eq!((moved.repeated, moved.passed_over), expected, "{from:?} to {to:?}");
        }
    }
}
