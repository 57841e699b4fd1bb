//! Whether the sinks of a channel have every event that the service had when the process started.

use std::sync::Arc;

use crate::channel::controls::Handle;
use crate::status::Activity;
use crate::status::board::Board;
use ledger::Ledger;
use net::tasks::lock;

/// How far a channel has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    /// Each sink has every event up to the newest offset at the start of the process.
    Done,
    /// The channel reads and delivers, or waits for a proof or a sink.
    Working,
    /// The channel does not exist, or the service has not answered for some time.
    Unavailable,
}

impl Handle {
    /// Returns how far these sinks of the channel have caught up.
    pub fn catch_up(&self, sinks: &[Arc<str>]) -> CatchUp {
        let ledger = self.board().ledger.clone();
        // The ledger is locked before the board, as everywhere.
        let ledger = ledger.as_ref().map(|ledger| lock(ledger));
        let board = self.board();
        if ledger.is_some_and(|ledger| board.has_caught_up(sinks, &ledger)) {
            CatchUp::Done
        } else if board.status.activity == Activity::Gone || board.silence().is_some() {
            CatchUp::Unavailable
        } else {
            CatchUp::Working
        }
    }
}

impl Board {
    /// Returns whether each cursor has reached the newest offset at the start, and no event up to this offset is pending. An
    /// event is pending until its proof arrives, or until it is quarantined after the proof timeout.
    fn has_caught_up(&self, sinks: &[Arc<str>], ledger: &Ledger) -> bool {
        let Some(at_start) = self.newest_at_start.get().copied() else { return false };
        // If the service did not confirm the event at this offset, no cursor can reach the offset.
        let is_unconfirmed = self.newest.is_unconfirmed(at_start);
        let target = if is_unconfirmed { self.newest.offset().min(at_start) } else { at_start };
        sinks.iter().all(|sink| {
            let has_read = ledger.cursor(sink).is_some_and(|cursor| cursor.through >= target);
            has_read && !ledger.owed(sink).any(|(key, _)| Some(key.offset) <= target)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use api::Page;
    use ledger::{Change, Commit, Cursor, Pending};
    use proof::event::{Offset, RawEvent};

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn page(offset: i64) -> Page {
        let event = RawEvent { offset: at(offset), id: None, json: "{}".into() };
        Page { events: vec![event], has_more: false }
    }

    fn handle() -> (Handle, Arc<Mutex<Ledger>>) {
        let (handle, ledger) = (Handle::default(), Arc::<Mutex<Ledger>>::default());
        handle.board().ledger = Some(ledger.clone());
        (handle, ledger)
    }

    fn set_cursor(ledger: &Mutex<Ledger>, sink: &str, offset: i64) {
        let to = Cursor { through: Some(at(offset)) };
        lock(ledger).apply(Commit(vec![Change::SetCursor { sink: sink.into(), to }])).unwrap();
    }

    #[test]
    fn every_sink_must_reach_the_newest_offset_at_the_start() {
        let (handle, ledger) = handle();
        let sinks: [Arc<str>; 2] = ["a".into(), "b".into()];
        set_cursor(&ledger, "a", 10);
        assert_eq!(handle.catch_up(&sinks), CatchUp::Working, "the service was not asked yet");
        handle.board().polled(Some(at(9)), &page(10));
        assert_eq!(handle.catch_up(&sinks), CatchUp::Working, "a page from an offset does not show the newest event");
        handle.board().polled(None, &page(10));
        handle.board().polled(None, &page(50));
        assert_eq!(handle.catch_up(&sinks), CatchUp::Working, "the second sink has no cursor");
        set_cursor(&ledger, "b", 9);
        assert_eq!(handle.catch_up(&sinks), CatchUp::Working);
        set_cursor(&ledger, "b", 10);
        assert_eq!(handle.catch_up(&sinks), CatchUp::Done, "later events do not count");
    }

    #[test]
    fn a_pending_event_up_to_the_newest_offset_at_the_start_is_waited_for() {
        for (offset, expected) in [(10, CatchUp::Working), (11, CatchUp::Done)] {
            let (handle, ledger) = handle();
            handle.board().polled(None, &page(10));
            set_cursor(&ledger, "a", 11);
            let json = "{}".into();
            let (offset, event_id) = (at(offset), None);
            let event = Pending { offset, event_id, first_seen: 0, received: None, appeared: false, json };
            lock(&ledger).apply(Commit(vec![Change::Owe { sink: "a".into(), event }])).unwrap();
            assert_eq!(handle.catch_up(&["a".into()]), expected, "pending at {offset}");
        }
    }

    #[test]
    fn an_unconfirmed_offset_is_not_waited_for() {
        let (handle, ledger) = handle();
        handle.board().polled(None, &page(9_000_000));
        set_cursor(&ledger, "a", 10);
        assert_eq!(handle.catch_up(&["a".into()]), CatchUp::Working);
        handle.board().newest.placed(at(10), jiff::Timestamp::UNIX_EPOCH);
        handle.board().newest.unconfirmed(at(9_000_000));
        assert_eq!(handle.catch_up(&["a".into()]), CatchUp::Done);
    }

    #[test]
    fn an_empty_channel_needs_only_cursors_and_a_missing_channel_is_unavailable() {
        let (handle, ledger) = handle();
        handle.board().polled(None, &Page { events: Vec::new(), has_more: false });
        assert_eq!(handle.catch_up(&["a".into()]), CatchUp::Working);
        let to = Cursor::default();
        lock(&ledger).apply(Commit(vec![Change::SetCursor { sink: "a".into(), to }])).unwrap();
        assert_eq!(handle.catch_up(&["a".into()]), CatchUp::Done);
        let missing = Handle::default();
        missing.board().report(Activity::Gone);
        assert_eq!(missing.catch_up(&["a".into()]), CatchUp::Unavailable);
    }
}
