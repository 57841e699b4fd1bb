use bytes::Bytes;
use uuid::Uuid;

use super::*;
use crate::event::EventId;

pub(crate) mod memory;

const JSON: Bytes = Bytes::from_static(b"{}");

pub(super) fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

pub(super) fn at(value: i64) -> Cursor {
    Cursor { through: Some(offset(value)) }
}

pub(super) fn advance(sink: &str, to: i64) -> Change {
    Change::Advance { sink: sink.into(), to: at(to) }
}

fn owe(sink: &str, value: i64) -> Change {
    let event_id = Some(EventId(Uuid::from_u128(u128::try_from(value).unwrap())));
    let event = Pending { offset: offset(value), event_id, first_seen: 1_700_000_000, received: None, json: JSON };
    Change::Owe { sink: sink.into(), event }
}

fn settle(sink: &str, value: i64) -> Change {
    Change::Settle { sink: sink.into(), offset: offset(value) }
}

fn quarantine(value: i64, json: &'static [u8]) -> Change {
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
    Change::Release { offset: offset(value), event_id: None, since: 1_700_000_000, sinks }
}

fn give_up(sink: &str, value: i64) -> Change {
    let facts = GivenUp {
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

/// A ledger, and what a store has of it.
struct Kept {
    ledger: Ledger,
    store: BTreeMap<Key, Bytes>,
}

impl Kept {
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

    /// A ledger that is loaded from the store is the ledger that wrote it, and no body is kept that nothing needs.
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
        self.store.get(&Key::Body(offset(value)))
    }
}

#[test]
fn a_late_event_is_owed_to_each_lane_that_passed_it_until_each_has_it() {
    let mut kept = Kept::new();
    for sink in ["a", "b"] {
        kept.commit([owe(sink, 3), advance(sink, 3)]).unwrap();
    }
    kept.commit([settle("a", 3)]).unwrap();
    assert!(!kept.ledger.owes("a", offset(3)) && kept.ledger.owes("b", offset(3)));
    assert_eq!(kept.ledger.summary().late_from, Some(offset(3)));

    kept.commit([settle("b", 3)]).unwrap();
    assert_eq!((kept.ledger.late().len(), kept.body(3)), (0, None));
    assert_eq!(kept.ledger.late_room(), Room::default());
}

#[test]
fn the_bytes_of_a_late_event_are_written_once_however_many_lanes_pass_it() {
    let mut kept = Kept::new();
    kept.commit([owe("a", 3), advance("a", 3)]).unwrap();
    let second = kept.commit([owe("b", 3), advance("b", 3)]).unwrap();
    assert!(!second.contains(&Key::Body(offset(3))), "{second:?}");
}

#[test]
fn a_rejected_event_waits_for_no_proof_any_more() {
    let mut kept = Kept::new();
    kept.commit([owe("a", 3), advance("a", 3)]).unwrap();
    kept.commit([quarantine(3, b"{1}")]).unwrap();
    assert_eq!((kept.ledger.late().len(), kept.ledger.quarantined().len()), (0, 1));
    assert_eq!(kept.body(3).unwrap(), "{1}");
}

#[test]
fn a_commit_that_would_move_a_cursor_back_changes_nothing() {
    let mut kept = Kept::new();
    kept.commit([advance("a", 5)]).unwrap();
    let before = format!("{:?}", kept.ledger);

    let refused = kept.commit([owe("a", 2), quarantine(3, b"{}"), advance("a", 4)]);

    assert_eq!(refused, Err(Refusal { sink: "a".into(), from: at(5), to: at(4) }));
    assert_eq!(format!("{:?}", kept.ledger), before);
    assert_eq!(
        kept.commit([advance("a", 7), advance("a", 6)]),
        Err(Refusal { sink: "a".into(), from: at(7), to: at(6) }),
        "nor within a commit"
    );
    assert_eq!(format!("{:?}", kept.ledger), before);
    kept.commit([Change::SetCursor { sink: "a".into(), to: at(2) }]).unwrap();
    assert_eq!(kept.ledger.cursor("a"), Some(at(2)), "an operator may");
}

#[test]
fn a_quarantined_event_keeps_its_bytes_when_it_is_late_for_another_lane_too() {
    let mut kept = Kept::new();
    kept.commit([quarantine(3, b"{1}")]).unwrap();
    kept.commit([owe("b", 3), advance("b", 3)]).unwrap();
    kept.commit([settle("b", 3)]).unwrap();
    assert_eq!(kept.body(3).unwrap(), "{1}");
}

#[test]
fn a_released_event_is_owed_to_the_lanes_that_passed_it_and_keeps_its_bytes() {
    let mut kept = Kept::new();
    kept.commit([quarantine(3, b"{1}"), advance("a", 3), advance("b", 2)]).unwrap();
    kept.commit([release(3)]).unwrap();
    assert!(kept.ledger.quarantined().is_empty());
    assert!(kept.ledger.owes("a", offset(3)) && !kept.ledger.owes("b", offset(3)));
    assert_eq!(kept.body(3).unwrap(), "{1}");
    kept.commit([settle("a", 3)]).unwrap();
    assert_eq!(kept.body(3), None);
}

#[test]
fn an_event_that_no_lane_has_passed_does_not_leave_the_quarantine() {
    let mut kept = Kept::new();
    kept.commit([quarantine(3, b"{1}"), advance("a", 2)]).unwrap();
    kept.commit([release(3)]).unwrap();
    assert!(kept.ledger.quarantined().contains_key(&offset(3)));
}

#[test]
fn a_dropped_event_takes_its_bytes_with_it_unless_a_lane_is_owed_them() {
    for owed in [true, false] {
        let mut kept = Kept::new();
        kept.commit([quarantine(3, b"{1}")]).unwrap();
        if owed {
            kept.commit([owe("b", 3), advance("b", 3)]).unwrap();
        }
        kept.commit([Change::DropQuarantined(offset(3))]).unwrap();
        assert!(kept.ledger.quarantined().is_empty());
        assert_eq!(kept.body(3).is_some(), owed);
    }
}

#[test]
fn what_is_kept_is_counted_through_all_that_changes_it() {
    let mut kept = Kept::new();
    kept.commit([quarantine(3, b"{1}"), quarantine(4, b"{22}")]).unwrap();
    assert_eq!(kept.ledger.quarantine_room(), Room { events: 2, bytes: 7 });
    kept.commit([quarantine(4, b"{333}")]).unwrap();
    assert_eq!(kept.ledger.quarantine_room(), Room { events: 2, bytes: 8 }, "the same event once more");
    kept.commit([advance("a", 3), release(3)]).unwrap();
    assert_eq!(kept.ledger.quarantine_room(), Room { events: 1, bytes: 5 });
    assert_eq!(kept.ledger.late_room(), Room { events: 1, bytes: 3 });
    kept.commit([Change::DropQuarantined(offset(4)), settle("a", 3)]).unwrap();
    assert_eq!((kept.ledger.quarantine_room(), kept.ledger.late_room()), (Room::default(), Room::default()));
}

#[test]
fn a_dead_letter_is_one_of_its_sink_and_its_bytes_go_with_it() {
    let mut kept = Kept::new();
    kept.commit([give_up("a", 3), give_up("b", 3)]).unwrap();
    kept.commit([give_up("a", 3)]).unwrap();
    assert_eq!(kept.ledger.dead_letter_room(), Room { events: 2, bytes: 4 });
    kept.commit([Change::DropDeadLetter { sink: "a".into(), offset: offset(3) }]).unwrap();
    assert_eq!(kept.ledger.dead_letter_room(), Room { events: 1, bytes: 2 });
}

#[test]
fn a_bound_is_reached_by_events_or_by_bytes() {
    let limit = Room { events: 2, bytes: 10 };
    assert!(!Room { events: 1, bytes: 9 }.is_full(limit));
    assert!(Room { events: 2, bytes: 2 }.is_full(limit) && Room { events: 1, bytes: 10 }.is_full(limit));
}

#[test]
fn delivered_proofs_are_remembered_once_and_the_oldest_are_forgotten() {
    let mut kept = Kept::new();
    for value in 1..=9 {
        for sink in ["a", "b"] {
            kept.commit([Change::Delivered(vec![proof(value)]), advance(sink, value)]).unwrap();
        }
    }
    let chunks = |kept: &Kept| kept.store.keys().filter(|key| matches!(key, Key::Proofs(_))).count();
    assert_eq!(chunks(&kept), 9, "the second lane adds nothing");

    kept.ledger.proofs.capacity = 3;
    kept.commit([Change::DeliveredLate(proof(10))]).unwrap();

    let entries = kept.store.iter().filter(|(key, _)| matches!(key, Key::Proofs(_)));
    let entries = entries.map(|(key, value)| (key.clone(), Value::Bytes(value.clone())));
    let (_, proofs) = Ledger::load(entries.collect(), 3).unwrap();
    assert_eq!(proofs, [8, 9, 10].map(proof));
}

#[test]
fn every_key_is_found_again_by_its_bytes() {
    let sink = || SinkName::from("hook");
    for key in [
        Key::Cursor(sink()),
        Key::Late(offset(1)),
        Key::Quarantined(offset(2)),
        Key::Body(offset(3)),
        Key::DeadLetter(offset(4), sink()),
        Key::DeadBody(offset(5), sink()),
        Key::Blocker,
        Key::Proofs(7),
        Key::Version,
        Key::Summary,
    ] {
        assert_eq!(Key::parse(Table::from(&key), &key.bytes()).unwrap(), key);
    }
    assert!(Key::parse(Table::Late, &[0xff; 8]).is_err(), "a negative offset");
    assert!(Key::parse(Table::Blocker, &[1]).is_err());
}
