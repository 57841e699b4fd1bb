use bytes::Bytes;
use uuid::Uuid;

use super::*;
use proof::event::EventId;

const JSON: Bytes = Bytes::from_static(b"{}");

pub(crate) fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

/// An event without an id.
fn nameless(value: i64) -> EventKey {
    EventKey { offset: offset(value), id: None }
}

/// An event with this number as its id.
fn event(value: i64, id: u128) -> EventKey {
    EventKey { offset: offset(value), id: Some(EventId(Uuid::from_u128(id))) }
}

pub(crate) fn at(value: i64) -> Cursor {
    Cursor { through: Some(offset(value)) }
}

pub(crate) fn advance(sink: &str, to: i64) -> Change {
    Change::Advance { sink: sink.into(), to: at(to) }
}

fn owe(sink: &str, value: i64) -> Change {
    owe_event(sink, nameless(value))
}

fn owe_event(sink: &str, EventKey { offset, id: event_id }: EventKey) -> Change {
    let (first_seen, received) = (1_700_000_000, None);
    let event = Pending { offset, event_id, first_seen, received, appeared: false, json: JSON };
    Change::Owe { sink: sink.into(), event }
}

fn settle(sink: &str, value: i64) -> Change {
    Change::Settle { sink: sink.into(), key: nameless(value) }
}

pub(crate) fn quarantine(value: i64, json: &'static [u8]) -> Change {
    let (reason, detail) = ("malformed".to_owned(), "`headers` is missing".to_owned());
    let facts = Quarantined {
        offset: offset(value),
        event_id: None,
        reason,
        detail,
        at: 1_700_000_000,
        original: None,
        digest: None,
        received: None,
        bytes: 0,
    };
    Change::Quarantine(QuarantinedEvent { facts, json: Bytes::from_static(json) })
}

fn release(value: i64) -> Change {
    let sinks = ["a", "b"].map(SinkName::from).into();
    Change::Release { key: nameless(value), since: 1_700_000_000, sinks }
}

pub(crate) fn give_up(sink: &str, value: i64) -> Change {
    let facts = DeadLetterFacts {
        offset: offset(value),
        event_id: None,
        reason: "answered 503".to_owned(),
        attempts: 3,
        since: 1,
        at: 2,
        received: None,
        bytes: 0,
    };
    Change::GiveUp { sink: sink.into(), letter: DeadLetter { facts, json: JSON } }
}

fn proof(value: i64) -> Proof {
    Proof { digest: [u8::try_from(value).unwrap(); 16], offset: offset(value) }
}

/// A ledger and its entries in a store.
struct StoredLedger {
    ledger: Ledger,
    store: BTreeMap<Key, Bytes>,
}

impl StoredLedger {
    fn new() -> Self {
        Self { ledger: Ledger { proofs: Chunks::remembering(100), ..Ledger::default() }, store: BTreeMap::new() }
    }

    fn commit(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<Vec<Key>, Refusal> {
        let effects = self.ledger.apply(Commit(changes.into_iter().collect()))?;
        assert_eq!(effects.summary, self.ledger.summary());
        let mut keys = Vec::new();
        for (key, value) in effects.changes {
            match value {
                Some(value) => self.store.insert(key.clone(), value),
                None => self.store.remove(&key),
            };
            keys.push(key);
        }
        self.check();
        Ok(keys)
    }

    /// Checks that loading from the store gives the same ledger, and that the store keeps no unused body.
    fn check(&self) {
        let entry = |(key, value): (&Key, &Bytes)| (key.clone(), Value::of(key, value));
        let (loaded, _) = Ledger::load(self.store.iter().map(entry).collect(), self.ledger.proofs.capacity).unwrap();
        assert_eq!(format!("{loaded:?}"), format!("{:?}", self.ledger));
        for key in self.store.keys() {
            let needed = match key {
                Key::Body(at) => self.ledger.late.contains_key(at) || self.ledger.quarantined.contains_key(at),
                Key::DeadBody(at, sink) => self.ledger.dead_letters.contains_key(&(*at, sink.clone())),
                _ => true,
            };
            assert!(needed, "{key:?} is left over");
        }
    }

    fn body(&self, value: i64) -> Option<&Bytes> {
        self.store.get(&Key::Body(nameless(value)))
    }
}

#[test]
fn a_pending_event_is_kept_until_every_lane_that_passed_it_has_it() {
    let mut kept = StoredLedger::new();
    for sink in ["a", "b"] {
        kept.commit([owe(sink, 3), advance(sink, 3)]).unwrap();
    }
    kept.commit([settle("a", 3)]).unwrap();
    assert!(!kept.ledger.owes("a", &nameless(3)) && kept.ledger.owes("b", &nameless(3)));
    assert_eq!(kept.ledger.summary().late_from, Some(offset(3)));

    kept.commit([settle("b", 3)]).unwrap();
    assert_eq!((kept.ledger.late().len(), kept.body(3)), (0, None));
    assert_eq!(kept.ledger.late_room(), Room::default());
}

#[test]
fn the_bytes_of_a_pending_event_are_written_once() {
    let mut kept = StoredLedger::new();
    kept.commit([owe("a", 3), advance("a", 3)]).unwrap();
    let second = kept.commit([owe("b", 3), advance("b", 3)]).unwrap();
    assert!(!second.contains(&Key::Body(nameless(3))), "{second:?}");
}

#[test]
fn a_rejected_event_is_no_longer_pending() {
    let mut kept = StoredLedger::new();
    kept.commit([owe("a", 3), advance("a", 3)]).unwrap();
    kept.commit([quarantine(3, b"{1}")]).unwrap();
    assert_eq!((kept.ledger.late().len(), kept.ledger.quarantined().len()), (0, 1));
    assert_eq!(kept.body(3).unwrap(), "{1}");
}

#[test]
fn a_commit_that_would_decrease_a_cursor_changes_nothing() {
    let mut kept = StoredLedger::new();
    kept.commit([advance("a", 5)]).unwrap();
    let before = format!("{:?}", kept.ledger);

    let refused = kept.commit([owe("a", 2), quarantine(3, b"{}"), advance("a", 4)]);

    assert_eq!(refused, Err(Refusal { sink: "a".into(), from: at(5), to: at(4) }));
    assert_eq!(format!("{:?}", kept.ledger), before);
    assert_eq!(
        kept.commit([advance("a", 7), advance("a", 6)]),
        Err(Refusal { sink: "a".into(), from: at(7), to: at(6) }),
        "a cursor must not move back within a commit either"
    );
    assert_eq!(format!("{:?}", kept.ledger), before);
    kept.commit([Change::SetCursor { sink: "a".into(), to: at(2) }]).unwrap();
    assert_eq!(kept.ledger.cursor("a"), Some(at(2)), "an operator may move it back");
}

#[test]
fn a_quarantined_event_that_is_also_pending_keeps_its_bytes() {
    let mut kept = StoredLedger::new();
    kept.commit([quarantine(3, b"{1}")]).unwrap();
    kept.commit([owe("b", 3), advance("b", 3)]).unwrap();
    kept.commit([settle("b", 3)]).unwrap();
    assert_eq!(kept.body(3).unwrap(), "{1}");
}

#[test]
fn a_released_event_becomes_due_for_the_lanes_that_passed_it() {
    let mut kept = StoredLedger::new();
    kept.commit([quarantine(3, b"{1}"), advance("a", 3), advance("b", 2)]).unwrap();
    kept.commit([release(3)]).unwrap();
    assert!(kept.ledger.quarantined().is_empty());
    assert!(kept.ledger.owes("a", &nameless(3)) && !kept.ledger.owes("b", &nameless(3)));
    assert_eq!(kept.body(3).unwrap(), "{1}");
    kept.commit([settle("a", 3)]).unwrap();
    assert_eq!(kept.body(3), None);
}

#[test]
fn an_event_not_yet_passed_stays_in_the_quarantine() {
    let mut kept = StoredLedger::new();
    kept.commit([quarantine(3, b"{1}"), advance("a", 2)]).unwrap();
    kept.commit([release(3)]).unwrap();
    assert!(kept.ledger.quarantined().contains_key(&nameless(3)));
}

#[test]
fn dropping_an_event_deletes_its_bytes_unless_a_lane_needs_them() {
    for owed in [true, false] {
        let mut kept = StoredLedger::new();
        kept.commit([quarantine(3, b"{1}")]).unwrap();
        if owed {
            kept.commit([owe("b", 3), advance("b", 3)]).unwrap();
        }
        kept.commit([Change::DropQuarantined(nameless(3))]).unwrap();
        assert!(kept.ledger.quarantined().is_empty());
        assert_eq!(kept.body(3).is_some(), owed);
    }
}

#[test]
fn counts_and_bytes_stay_correct_through_every_change() {
    let mut kept = StoredLedger::new();
    kept.commit([quarantine(3, b"{1}"), quarantine(4, b"{22}")]).unwrap();
    assert_eq!(kept.ledger.quarantine_room(), Room { events: 2, bytes: 7 });
    kept.commit([quarantine(4, b"{333}")]).unwrap();
    assert_eq!(kept.ledger.quarantine_room(), Room { events: 2, bytes: 8 }, "the same event again");
    kept.commit([advance("a", 3), release(3)]).unwrap();
    assert_eq!(kept.ledger.quarantine_room(), Room { events: 1, bytes: 5 });
    assert_eq!(kept.ledger.late_room(), Room { events: 1, bytes: 3 });
    kept.commit([Change::DropQuarantined(nameless(4)), settle("a", 3)]).unwrap();
    assert_eq!((kept.ledger.quarantine_room(), kept.ledger.late_room()), (Room::default(), Room::default()));
}

#[test]
fn a_dead_letter_belongs_to_its_sink_and_owns_its_bytes() {
    let mut kept = StoredLedger::new();
    kept.commit([give_up("a", 3), give_up("b", 3)]).unwrap();
    kept.commit([give_up("a", 3)]).unwrap();
    assert_eq!(kept.ledger.dead_letter_room(), Room { events: 2, bytes: 4 });
    kept.commit([Change::DropDeadLetter { sink: "a".into(), key: nameless(3) }]).unwrap();
    assert_eq!(kept.ledger.dead_letter_room(), Room { events: 1, bytes: 2 });
}

#[test]
fn a_limit_applies_to_events_and_bytes() {
    let limit = Room { events: 2, bytes: 10 };
    assert!(!Room { events: 1, bytes: 9 }.is_full(limit));
    assert!(Room { events: 2, bytes: 2 }.is_full(limit) && Room { events: 1, bytes: 10 }.is_full(limit));
}

fn read(value: i64) -> Change {
    Change::Read(vec![KnownEvent { key: nameless(value), previous: None, digest: None }])
}

#[test]
fn a_cursor_that_was_set_does_not_count_as_read() {
    let mut kept = StoredLedger::new();
    let to = Cursor { through: Some(offset(50)) };
    kept.commit([read(1), advance("a", 1), Change::SetCursor { sink: "b".into(), to }]).unwrap();
    kept.commit([read(2), Change::Delivered(vec![proof(2)]), advance("a", 2)]).unwrap();
    let known: Vec<_> = kept.ledger.history().events().map(|event| event.key.offset.get()).collect();
    assert_eq!(known, [1, 2]);
    assert!(kept.store.keys().any(|key| matches!(key, Key::Proofs(_))), "the proof is remembered");
}

#[test]
fn an_event_that_appears_before_the_events_around_it_are_recorded_hides_none_of_them() {
    let mut kept = StoredLedger::new();
    kept.commit([Change::Appeared(KnownEvent { key: nameless(5), previous: None, digest: None })]).unwrap();
    kept.commit([read(2), read(6), Change::Delivered(vec![proof(2)]), advance("a", 6)]).unwrap();
    let known: Vec<_> = kept.ledger.history().events().map(|event| event.key.offset.get()).collect();
    assert_eq!(known, [2, 5, 6]);
    assert!(kept.store.keys().any(|key| matches!(key, Key::Proofs(_))), "the proof is remembered");
}

#[test]
fn delivered_proofs_are_remembered_once_and_the_oldest_evicted() {
    let mut kept = StoredLedger::new();
    for value in 1..=9 {
        for sink in ["a", "b"] {
            kept.commit([read(value), Change::Delivered(vec![proof(value)]), advance(sink, value)]).unwrap();
        }
    }
    let chunks = |kept: &StoredLedger| kept.store.keys().filter(|key| matches!(key, Key::Proofs(_))).count();
    assert_eq!(chunks(&kept), 9, "the second lane adds nothing");

    kept.ledger.proofs.capacity = 3;
    kept.commit([Change::DeliveredLate(proof(10))]).unwrap();

    let entries = kept.store.iter().filter(|(key, _)| matches!(key, Key::Proofs(_)));
    let entries = entries.map(|(key, value)| (key.clone(), Value::Bytes(value.clone())));
    let (_, proofs) = Ledger::load(entries.collect(), 3).unwrap();
    assert_eq!(proofs, [8, 9, 10].map(proof));
}

#[test]
fn every_key_round_trips_through_bytes() {
    let sink = || SinkName::from("hook");
    for key in [
        Key::Cursor(sink()),
        Key::Late(event(1, 9)),
        Key::Late(nameless(1)),
        Key::Quarantined(event(2, 9)),
        Key::Body(event(3, 9)),
        Key::Body(nameless(3)),
        Key::DeadLetter(event(4, 0), sink()),
        Key::DeadLetter(nameless(4), sink()),
        Key::DeadBody(event(5, 9 << 64), sink()),
        Key::Confirmed(sink()),
        Key::History,
        Key::Contradiction,
        Key::Asked,
        Key::Blocker,
        Key::Proofs(7),
        Key::Replay(7),
        Key::LateDelivery(7, sink()),
        Key::Version,
        Key::Summary,
        Key::Other(OtherKey { kind: "of-tomorrow".into(), key: Bytes::from_static(b"\0key") }),
    ] {
        assert_eq!(Key::parse(key.kind(), &key.bytes()).unwrap(), key);
    }
    assert!(Key::parse("late", &[0xff; 8]).is_err(), "a negative offset");
    assert!(Key::parse("blockers", &[1]).is_err());
}

#[test]
fn two_events_at_one_offset_are_kept_separately() {
    let mut kept = StoredLedger::new();
    let [first, second] = [event(3, 1), event(3, 2)];
    kept.commit([owe_event("a", first), advance("a", 3)]).unwrap();
    kept.commit([owe_event("a", second)]).unwrap();
    assert_eq!(kept.ledger.late().len(), 2);
    kept.commit([Change::Settle { sink: "a".into(), key: first }]).unwrap();
    assert!(!kept.ledger.owes("a", &first) && kept.ledger.owes("a", &second));
    assert!(kept.store.contains_key(&Key::Body(second)) && !kept.store.contains_key(&Key::Body(first)));

    for key in [first, second] {
        let Change::Quarantine(QuarantinedEvent { facts, json }) = quarantine(3, b"{}") else { unreachable!() };
        let facts = Quarantined { event_id: key.id, ..facts };
        kept.commit([Change::Quarantine(QuarantinedEvent { facts, json })]).unwrap();
        let Change::GiveUp { sink, letter } = give_up("a", 3) else { unreachable!() };
        let facts = DeadLetterFacts { event_id: key.id, ..letter.facts };
        kept.commit([Change::GiveUp { sink, letter: DeadLetter { facts, ..letter } }]).unwrap();
    }
    assert_eq!((kept.ledger.quarantined().len(), kept.ledger.dead_letters().len()), (2, 2));
    kept.commit([Change::DropQuarantined(first), Change::DropDeadLetter { sink: "a".into(), key: first }]).unwrap();
    assert!(kept.ledger.quarantined().keys().eq([&second]));
    assert!(kept.ledger.dead_letters().keys().map(|(key, _)| key).eq([&second]));
}

#[test]
fn a_chosen_cursor_is_unconfirmed() {
    let mut kept = StoredLedger::new();
    let confirmed = Confirmed { position: Some(offset(5)), last: Some(event(4, 1)) };
    kept.commit([advance("a", 5), Change::Confirm { sink: "a".into(), confirmed }]).unwrap();
    assert_eq!(kept.ledger.confirmed("a"), Some(confirmed));
    kept.commit([Change::SetCursor { sink: "a".into(), to: at(2) }]).unwrap();
    assert_eq!(kept.ledger.confirmed("a"), None);
}

#[test]
fn the_first_lane_that_passes_events_adds_them_to_the_history() {
    let mut kept = StoredLedger::new();
    let known = |value, id| KnownEvent { key: event(value, id), previous: None, digest: None };
    kept.commit([Change::Read(vec![known(1, 1), known(2, 1)]), advance("a", 2)]).unwrap();
    kept.commit([Change::Read(vec![known(1, 2), known(2, 2)]), advance("b", 2)]).unwrap();
    assert!(kept.ledger.history().events().copied().eq([known(1, 1), known(2, 1)]));

    let (agrees_through, since) = (Some(offset(1)), 7);
    let contradiction = Contradiction { offset: offset(2), known: None, found: None, agrees_through, since };
    kept.commit([Change::Contradict(contradiction)]).unwrap();
    assert_eq!(kept.ledger.contradiction(), Some(contradiction));
    kept.commit([Change::AcceptHistory { above: agrees_through }]).unwrap();
    assert!(kept.ledger.history().events().copied().eq([known(1, 1)]));
    assert_eq!(kept.ledger.contradiction(), None);
}

#[test]
fn keys_of_version_0_1_get_the_ids_of_their_events() {
    let mut kept = StoredLedger::new();
    for key in [event(3, 1), event(4, 1)] {
        kept.commit([owe_event("a", key)]).unwrap();
    }
    let Change::GiveUp { sink, letter } = give_up("a", 3) else { unreachable!() };
    let facts = DeadLetterFacts { event_id: event(3, 1).id, ..letter.facts };
    kept.commit([Change::GiveUp { sink, letter: DeadLetter { facts, ..letter } }]).unwrap();
    kept.commit([quarantine(5, b"{}"), advance("a", 5)]).unwrap();
    let old = |key: &Key| match key.clone() {
        Key::Late(event) => Key::Late(nameless(event.offset.get())),
        Key::Body(event) => Key::Body(nameless(event.offset.get())),
        Key::DeadLetter(event, sink) => Key::DeadLetter(nameless(event.offset.get()), sink),
        Key::DeadBody(event, sink) => Key::DeadBody(nameless(event.offset.get()), sink),
        other => other,
    };
    let entries = |store: &BTreeMap<Key, Bytes>| {
        store.iter().map(|(key, value)| (key.clone(), Value::of(key, value))).collect::<Entries>()
    };
    let mut store: BTreeMap<Key, Bytes> = kept.store.iter().map(|(key, value)| (old(key), value.clone())).collect();
    let mut loaded = entries(&store);
    let moves = rekey(&mut loaded).unwrap();
    assert_eq!(loaded, entries(&kept.store));
    for moved in moves {
        let json = store.get(&moved.body.0).cloned();
        for (key, value) in moved.changes(json) {
            match value {
                Some(value) => store.insert(key, value),
                None => store.remove(&key),
            };
        }
    }
    assert_eq!(store, kept.store);
}

#[test]
fn an_unreadable_entry_is_named_and_an_entry_of_an_unknown_kind_is_ignored() {
    let other = OtherKey { kind: "of-tomorrow".into(), key: Bytes::from_static(b"k") };
    let unknown = (Key::Other(other), Value::Bytes(Bytes::from_static(b"not JSON")));
    let cursor = |value: &'static [u8]| (Key::Cursor("a".into()), Value::Bytes(Bytes::from_static(value)));
    let (ledger, _) = Ledger::load([unknown.clone(), cursor(b"7")].into(), 0).unwrap();
    assert_eq!(ledger.cursor("a"), Some(at(7)));
    let error = Ledger::load([unknown, cursor(b"\xff")].into(), 0).unwrap_err();
    assert!(matches!(&error, StateError::UnreadableEntry { kind, key, .. } if (&**kind, &**key) == ("cursors", "61")));
    assert!(
        error
            .to_string()
            .starts_with("the entry `cursors` of the channel in the state, with key \\x61, cannot be read")
    );
}
