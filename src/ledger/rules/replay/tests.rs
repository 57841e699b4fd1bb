use bytes::Bytes;

use super::*;
use crate::rules::tests::offset;
use crate::{Change, Commit, Ledger, Pending, Value};

/// A ledger and its entries in a store.
#[derive(Default)]
struct Stored {
    ledger: Ledger,
    store: BTreeMap<Key, Bytes>,
}

impl Stored {
    fn with(replays: impl IntoIterator<Item = Replay>) -> Self {
        let mut stored = Self::default();
        stored.commit(replays.into_iter().map(Change::StartReplay).collect(), false);
        stored
    }

    /// Applies a commit. If the write is lost, the process crashes, and the next one loads the ledger from the store.
    fn commit(&mut self, changes: Vec<Change>, is_lost: bool) {
        let effects = self.ledger.apply(Commit(changes)).unwrap();
        if is_lost {
            let entries = self.store.iter().map(|(key, value)| (key.clone(), Value::of(key, value)));
            self.ledger = Ledger::load(entries.collect(), 0).unwrap().0;
            return;
        }
        for (key, value) in effects.changes {
            match value {
                Some(value) => self.store.insert(key, value),
                None => self.store.remove(&key),
            };
        }
    }

    fn set(&mut self, state: ReplayState) {
        self.commit(vec![Change::SetReplay { id: 1, state }], false);
    }

    fn replay(&self) -> &Replay {
        &self.ledger.replays()[&1]
    }

    fn is_due(&self) -> bool {
        self.ledger.due_replay().is_some()
    }
}

fn replay(from: i64, to: i64) -> Replay {
    Replay::new(["a", "b"].map(SinkName::from).into(), offset(from), offset(to), 0)
}

fn event(value: i64) -> Pending {
    let (first_seen, json) = (0, Bytes::from_static(b"{}"));
    Pending { offset: offset(value), event_id: None, first_seen, received: None, appeared: false, json }
}

fn part(from: i64, to: i64, next: Option<i64>) -> Change {
    Change::ReleaseReplayed { id: 1, next: next.map(offset), events: (from..=to).map(event).collect() }
}

fn settle(sink: &str, value: i64) -> Change {
    Change::Settle { sink: sink.into(), key: EventKey { offset: offset(value), id: None } }
}

/// The next step of the replay, or the delivery of the lowest undelivered event.
fn next_step(ledger: &Ledger) -> Change {
    match ledger.due_replay() {
        Some((id, Replay { next: None, .. })) => Change::SetReplay { id, state: ReplayState::Done },
        Some((_, Replay { next: Some(next), to, .. })) => {
            let (from, last) = (next.get(), (next.get() + 1).min(to.get()));
            part(from, last, (last < to.get()).then_some(last + 1))
        }
        None => {
            let (key, late) = ledger.late().first_key_value().expect("a replay that is not due is being delivered");
            settle(late.owed.first().unwrap(), key.offset.get())
        }
    }
}

#[test]
fn crashes_neither_skip_nor_repeat_an_event() {
    for crashes in 0..1_u32 << 12 {
        let mut stored = Stored::with([replay(3, 7)]);
        let mut delivered = BTreeMap::new();
        for step in 0.. {
            let is_lost = step < 12 && crashes >> step & 1 == 1;
            let change = next_step(&stored.ledger);
            if let (Change::Settle { sink, key }, false) = (&change, is_lost) {
                *delivered.entry((key.offset.get(), sink.to_string())).or_insert(0) += 1;
            }
            stored.commit(vec![change], is_lost);
            if stored.replay().state.has_ended() {
                break;
            }
        }
        let expected = (3..=7).flat_map(|offset| ["a", "b"].map(|sink| ((offset, sink.to_owned()), 1)));
        assert_eq!(delivered, expected.collect::<BTreeMap<_, _>>(), "crashes {crashes:b}");
        assert_eq!(stored.replay().events, 5);
    }
}

#[test]
fn the_next_part_is_due_when_few_events_are_undelivered_and_the_end_when_none_is() {
    let mut stored = Stored::with([replay(1, 40)]);
    stored.commit(vec![part(1, 21, Some(22))], false);
    assert!(!stored.is_due(), "21 events are undelivered");
    stored.commit(vec![settle("a", 1)], false);
    assert!(!stored.is_due(), "sink b has not received the event");
    stored.commit(vec![settle("b", 1)], false);
    assert!(stored.is_due());
    assert_eq!(stored.ledger.undelivered(stored.replay()), 20);
    stored.commit(vec![part(22, 22, None)], false);
    stored.commit((2..=21).flat_map(|value| [settle("a", value), settle("b", value)]).collect(), false);
    assert!(!stored.is_due(), "one event is undelivered");
    stored.commit(vec![settle("a", 22), settle("b", 22)], false);
    assert!(stored.is_due());
}

#[test]
fn a_part_of_a_paused_or_cancelled_replay_changes_nothing() {
    let mut stored = Stored::with([replay(1, 40)]);
    stored.set(ReplayState::Paused);
    stored.commit(vec![part(1, 3, Some(4))], false);
    assert_eq!((stored.replay().next, stored.ledger.late().len()), (Some(offset(1)), 0));
    assert!(!stored.is_due());
    stored.set(ReplayState::Running);
    assert!(stored.is_due());
    stored.set(ReplayState::Cancelled);
    stored.commit(vec![part(1, 3, Some(4))], false);
    stored.set(ReplayState::Running);
    assert_eq!((stored.replay().state, stored.ledger.late().len()), (ReplayState::Cancelled, 0));
}

#[test]
fn pending_events_keep_half_of_their_room() {
    let mut stored = Stored::with([replay(20_000, 30_000)]);
    let half = i64::try_from(LATE.events / 2).unwrap();
    let owe = |value| Change::Owe { sink: "a".into(), event: event(value) };
    stored.commit((1..half).map(owe).collect(), false);
    assert!(stored.is_due());
    stored.commit(vec![owe(half)], false);
    assert!(!stored.is_due());
}

#[test]
fn a_new_replay_replaces_the_oldest_that_has_ended() {
    let mut stored = Stored::with((0..REPLAYS).map(|_| replay(1, 2)));
    for id in [3, 2] {
        stored.commit(vec![Change::SetReplay { id, state: ReplayState::Cancelled }], false);
    }
    stored.commit(vec![Change::StartReplay(replay(5, 6))], false);
    let ids: Vec<_> = stored.ledger.replays().keys().copied().collect();
    assert_eq!(ids, [1].into_iter().chain(3..=REPLAYS as u64 + 1).collect::<Vec<_>>());
    assert!(!stored.store.contains_key(&Key::Replay(2)));
}

#[test]
fn only_the_row_of_a_replayed_event_says_that_it_is_replayed() {
    let mut stored = Stored::with([replay(1, 40)]);
    let owe = |value, sink: &str| Change::Owe { sink: sink.into(), event: event(value) };
    stored.commit(vec![owe(1, "a"), owe(1, "b"), part(1, 2, Some(3)), owe(2, "a")], false);
    let row = |value| {
        let key = EventKey { offset: offset(value), id: None };
        let row = String::from_utf8(stored.store[&Key::Late(key)].to_vec()).unwrap();
        (stored.ledger.late()[&key].replayed, row)
    };
    let owed = r#""owed":["a","b"]"#;
    let (pending, row_of_pending) = row(1);
    assert!(!pending && row_of_pending.contains(owed) && !row_of_pending.contains("replayed"), "{row_of_pending}");
    let (replayed, row_of_replayed) = row(2);
    assert!(replayed && row_of_replayed.contains(owed) && row_of_replayed.contains(r#""replayed":true"#));
    assert!(row_of_replayed.contains(r#""replayed_to":["a","b"]"#), "{row_of_replayed}");
}

#[test]
fn a_replay_concerns_only_the_sinks_that_did_not_wait_for_the_event_already() {
    let mut stored = Stored::with([replay(1, 40)]);
    let owe = |value, sink: &str| Change::Owe { sink: sink.into(), event: event(value) };
    stored.commit(vec![owe(1, "a"), owe(1, "c"), part(1, 2, Some(3)), owe(2, "c")], false);
    let key = |value| EventKey { offset: offset(value), id: None };
    let replayed_to = |stored: &Stored, value| {
        let sinks = stored.ledger.late()[&key(value)].replayed_to.iter();
        sinks.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((replayed_to(&stored, 1), replayed_to(&stored, 2)), (vec!["b".into()], vec!["a".into(), "b".into()]));
    stored.commit(vec![settle("b", 1), settle("a", 2)], false);
    assert_eq!((replayed_to(&stored, 1), replayed_to(&stored, 2)), (vec![], vec!["b".to_owned()]));
    // An operator chooses one event. The operator has seen it, so it needs no further check.
    stored.commit(vec![Change::ReplayEvent { sink: "a".into(), event: event(5) }, owe(5, "b")], false);
    assert_eq!((replayed_to(&stored, 5), stored.ledger.late()[&key(5)].replayed), (vec!["a".to_owned()], false));
}
