//! Lists and sets cursors.

use std::collections::BTreeSet;

use tracing::warn;

use crate::api::{ChannelEntry, CursorMove, CursorPosition, ListCursors, SetCursors};
use crate::{Operations, Refusal, check_sink};
use ledger::{Change, Commit, Cursor, Ledger, SinkName};
use proof::event::Offset;
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    /// Returns the cursors, including the cursors of lanes that are no longer configured.
    pub(crate) async fn list_cursors(
        &self,
        request: &ListCursors,
    ) -> Result<Vec<ChannelEntry<CursorPosition>>, Refusal> {
        let positions = |channel: &ChannelRef, ledger: &Ledger| {
            let known = self.known(channel.id);
            let position = |(sink, cursor): (&SinkName, &Cursor)| CursorPosition {
                sink: sink.to_string(),
                configured: known.is_some_and(|known| known.sinks.contains(sink)),
                cursor: *cursor,
                due: ledger.owed(sink).count(),
            };
            ledger.cursors().iter().map(position).collect()
        };
        self.list(request.channel.as_deref(), positions).await
    }

    /// Describes the effect of setting the cursors. With `apply`, sets them.
    pub(crate) async fn set_cursors(&self, request: &SetCursors) -> Result<Vec<CursorMove>, Refusal> {
        let channel = self.find(&request.channel)?;
        let name = &channel.name;
        let owned = self.owned(&channel).await?;
        let stopped = request.apply.then(|| owned.running.try_lock());
        let moves = self.moves(&channel, request, &owned.leased.ledger())?;
        let Some(stopped) = stopped else { return Ok(moves) };
        let _stopped = stopped.map_err(|_| {
            Refusal::Failed(format!(
                "channel {name} is running and moves its cursors itself: pause the whole channel (`channeld pause {name}`), or stop the daemon"
            ))
        })?;
        // With `only_back`, a cursor that does not move is not set. Setting it would clear the position that its sink has
        // confirmed, and accept a sink that has lost its data.
        let set: Vec<_> = moves.iter().filter(|one| !request.only_back || one.from != one.to).collect();
        let change = |one: &&CursorMove| Change::SetCursor { sink: SinkName::from(&*one.sink), to: one.to };
        let above = Self::accepted_above(&channel, request, &moves, &owned.leased.ledger())?;
        let changes = set.iter().map(change).chain([Change::AcceptHistory { above }]);
        owned.leased.commit(Commit(changes.collect())).await?;
        self.recent.forget_above(channel.id, above);
        for CursorMove { sink, from, to, .. } in set {
            // A sink that is blocked because its position is missing waits for this call.
            self.handles.of(channel.id).sink_is_another(sink);
            owned.forget_accepted(sink);
            let [from, to] = [*from, *to].map(|cursor| cursor.through.map(Offset::get));
            warn!(target: ALWAYS, channel = %name, %sink, from, to, "cursor set by an operator");
        }
        Ok(moves)
    }

    /// Returns the offset above which the operator accepts the service's history: the new cursors, or a higher cursor that does not
    /// move. Below that one, events can still become visible, and the service must not change them. If the service's history has
    /// changed, it is accepted from the first difference on, also below the new cursors. Otherwise the difference would be found again.
    fn accepted_above(
        channel: &ChannelRef,
        request: &SetCursors,
        moves: &[CursorMove],
        ledger: &Ledger,
    ) -> Result<Option<Offset>, Refusal> {
        let stays = |sink: &SinkName| moves.iter().all(|one| *one.sink != **sink);
        let others = ledger.cursors().iter().filter(|(sink, _)| stays(sink));
        let highest = others.filter_map(|(_, cursor)| cursor.through).max();
        let agrees_through = ledger.contradiction().map(|contradiction| contradiction.agrees_through);
        if agrees_through.is_some_and(|agrees_through| highest > agrees_through) {
            return Err(Refusal::Usage(format!(
                "the service has other events than before below the cursors of other sinks of channel {}: move the cursors of all sinks, without --sink",
                channel.name
            )));
        }
        let above = request.to.through.max(highest);
        Ok(agrees_through.map_or(above, |agrees_through| above.min(agrees_through)))
    }

    /// Returns the moves of the lanes that are configured or have a cursor.
    fn moves(&self, channel: &ChannelRef, request: &SetCursors, ledger: &Ledger) -> Result<Vec<CursorMove>, Refusal> {
        let configured = self.known(channel.id).into_iter().flat_map(|known| &known.sinks);
        let sinks: BTreeSet<&SinkName> = ledger.cursors().keys().chain(configured).collect();
        let mut sinks: Vec<_> = sinks.into_iter().cloned().collect();
        if let Some(sink) = &request.sink {
            check_sink(&channel.name, sink, &sinks)?;
            sinks.retain(|known| **known == **sink);
        }
        if sinks.is_empty() {
            return Err(Refusal::Usage(format!("the channel {} is not configured and has no cursor", channel.name)));
        }
        let from = |sink: &SinkName| ledger.cursor(sink).unwrap_or_default();
        let to = |from: Cursor| if request.only_back { from.min(request.to) } else { request.to };
        Ok(sinks.iter().map(|sink| CursorMove::between(sink, from(sink), to(from(sink)))).collect())
    }
}

impl CursorMove {
    fn between(sink: &str, from: Cursor, to: Cursor) -> Self {
        // A cursor before the first event counts as offset -1.
        let offset = |cursor: Cursor| cursor.through.map_or(-1, Offset::get);
        let distance = offset(to).abs_diff(offset(from));
        let (repeated, passed_over) = if to < from { (distance, 0) } else { (0, distance) };
        Self { sink: sink.to_owned(), from, to, repeated, passed_over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::Contradiction;
    use record::testing::channel;

    /// Otherwise the ledger would keep events that the service no longer has, and the difference would be found again.
    #[test]
    fn a_changed_history_is_accepted_from_the_first_difference_on() {
        let cursor = |through: i64| Cursor { through: Offset::new(through) };
        let mut ledger = Ledger::default();
        ledger.apply(Commit(vec![Change::SetCursor { sink: "s".into(), to: cursor(500) }])).unwrap();
        let above = |ledger: &Ledger, to: i64| {
            let to = cursor(to);
            let request = SetCursors { channel: "c".into(), sink: None, to, only_back: false, apply: true };
            let moves = [CursorMove::between("s", ledger.cursor("s").unwrap(), to)];
            Operations::accepted_above(&channel(), &request, &moves, ledger).unwrap().map(Offset::get)
        };
        assert_eq!(above(&ledger, 520), Some(520));
        for (agrees_through, to, expected) in
            [(Some(470), 520, Some(470)), (Some(470), 470, Some(470)), (Some(470), 400, Some(400)), (None, 520, None)]
        {
            let agrees_through = agrees_through.and_then(Offset::new);
            let offset = Offset::new(471).unwrap();
            let contradiction = Contradiction { offset, known: None, found: None, agrees_through, since: 0 };
            ledger.apply(Commit(vec![Change::Contradict(contradiction)])).unwrap();
            assert_eq!(above(&ledger, to), expected, "{to}");
        }
    }

    #[test]
    fn a_cursor_move_reports_distance_and_direction() {
        let cases = [
            (Some(10), Some(3), (7, 0)),
            (Some(3), Some(10), (0, 7)),
            (Some(3), None, (4, 0)),
            (None, Some(0), (0, 1)),
            (None, None, (0, 0)),
        ];
        for (from, to, expected) in cases {
            let cursor = |through: Option<i64>| Cursor { through: through.and_then(Offset::new) };
            let moved = CursorMove::between("s", cursor(from), cursor(to));
            assert_eq!((moved.repeated, moved.passed_over), expected, "{from:?} to {to:?}");
        }
    }
}
