//! The late deliveries of each lane.
//!
//! A late delivery does not move the position of a sink. If a sink is restored from a backup, its position therefore does not
//! tell which late deliveries the backup contains. The ledger records them, each with the sink's position at that time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::{SinkName, encode};
use super::key::{Changes, Key};
use proof::event::{EventKey, Offset};

/// The number of late deliveries that are recorded for a lane. A further one replaces the oldest.
pub const LATE_DELIVERIES: usize = 1_000;

/// An event that a sink has accepted below its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateDelivery {
    /// The event.
    pub event: EventKey,
    /// The position of the sink when the event was delivered. A later delivery never has a lower position.
    pub after: Option<Offset>,
}

/// The late deliveries of a channel, by sink and number. A lane begins with number 1. If its first number is higher, older
/// deliveries were forgotten.
#[derive(Clone, Debug, Default)]
pub(super) struct LateDeliveries(BTreeMap<SinkName, BTreeMap<u64, LateDelivery>>);

impl LateDeliveries {
    pub(super) fn load(&mut self, sink: SinkName, number: u64, delivery: LateDelivery) {
        self.0.entry(sink).or_default().insert(number, delivery);
    }

    pub(super) fn add(&mut self, sink: &SinkName, delivery: LateDelivery, changes: &mut Changes) {
        let of_sink = self.0.entry(sink.clone()).or_default();
        let number = of_sink.last_key_value().map_or(1, |(last, _)| last + 1);
        changes.push((Key::LateDelivery(number, sink.clone()), Some(encode(&delivery))));
        of_sink.insert(number, delivery);
        while of_sink.len() > LATE_DELIVERIES
            && let Some((oldest, _)) = of_sink.pop_first()
        {
            changes.push((Key::LateDelivery(oldest, sink.clone()), None));
        }
    }

    /// Forgets the deliveries after positions above `through`.
    pub(super) fn forget_after(&mut self, sink: &SinkName, through: Option<Offset>, changes: &mut Changes) {
        let Some(of_sink) = self.0.get_mut(sink) else { return };
        while let Some(last) = of_sink.last_entry().filter(|last| last.get().after > through) {
            changes.push((Key::LateDelivery(*last.key(), sink.clone()), None));
            last.remove();
        }
        if of_sink.is_empty() {
            self.0.remove(sink);
        }
    }

    pub(super) fn of(&self, sink: &str) -> impl Iterator<Item = &LateDelivery> {
        self.0.get(sink).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn are_known_since(&self, sink: &str, position: Option<Offset>) -> bool {
        let first = self.0.get(sink).and_then(BTreeMap::first_key_value);
        first.is_none_or(|(number, oldest)| *number == 1 || oldest.after < position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{at, offset};
    use crate::{Change, Commit, Entries, Ledger, Value};

    fn note(number: i64, after: i64) -> Change {
        let event = EventKey { offset: offset(number), id: None };
        Change::NoteLateDelivery { sink: "a".into(), delivery: LateDelivery { event, after: Some(offset(after)) } }
    }

    fn offsets(ledger: &Ledger) -> Vec<i64> {
        ledger.late_deliveries("a").map(|delivery| delivery.event.offset.get()).collect()
    }

    #[test]
    fn late_deliveries_are_recorded_in_order_and_those_after_a_higher_position_are_forgotten() {
        let (mut ledger, mut store) = (Ledger::default(), Entries::new());
        let set = Change::SetCursor { sink: "a".into(), to: at(15) };
        for changes in [vec![note(3, 10), note(1, 15), note(2, 20)], vec![set], vec![note(4, 15)]] {
            for (key, value) in ledger.apply(Commit(changes)).unwrap().changes {
                match value {
                    Some(value) => store.insert(key.clone(), Value::of(&key, &value)),
                    None => store.remove(&key),
                };
            }
        }
        assert_eq!(offsets(&ledger), [3, 1, 4]);
        assert_eq!(offsets(&Ledger::load(store, 0).unwrap().0), [3, 1, 4]);
        assert!(ledger.knows_late_deliveries_since("a", None));
    }

    #[test]
    fn the_oldest_late_deliveries_are_forgotten_and_this_is_known() {
        let (mut ledger, most) = (Ledger::default(), i64::try_from(LATE_DELIVERIES).unwrap());
        ledger.apply(Commit((0..most + 2).map(|number| note(number, 5_000 + number)).collect())).unwrap();
        assert!(offsets(&ledger).into_iter().eq(2..most + 2));
        for (position, is_known) in [(5_000, false), (5_002, false), (5_003, true)] {
            assert_eq!(ledger.knows_late_deliveries_since("a", Some(offset(position))), is_known, "{position}");
        }
    }
}
