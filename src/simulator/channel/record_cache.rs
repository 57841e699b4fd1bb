//! Keeps records after they are made, so that their signatures are computed only once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::event::log_entry::RecordCell;
use crate::misbehaviour::Misbehaviour;

/// The number of records that all channels together keep, unless all records are prepared. A record has about 2.7 kB. The
/// oldest records are dropped first.
pub(crate) const KEPT_RECORDS: usize = 200_000;

/// The values that determine a record: an event's number, and how its channel misbehaves.
pub(crate) type RecordKey = (u64, Option<Misbehaviour>);

/// The cells for the records of one channel.
pub(crate) struct RecordCache {
    cells: HashMap<RecordKey, RecordCell>,
    order: VecDeque<RecordKey>,
    bound: usize,
}

impl RecordCache {
    pub(crate) fn new(bound: usize) -> Self {
        Self { cells: HashMap::new(), order: VecDeque::new(), bound }
    }

    /// Returns the cell for an event's record. It is empty until the record is made.
    pub(crate) fn cell(&mut self, drawn: RecordKey) -> RecordCell {
        if let Some(cell) = self.cells.get(&drawn) {
            return Arc::clone(cell);
        }
        if self.cells.len() >= self.bound
            && let Some(oldest) = self.order.pop_front()
        {
            self.cells.remove(&oldest);
        }
        self.order.push_back(drawn);
        Arc::clone(self.cells.entry(drawn).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_events_is_stable_and_bounded() {
        let mut cache = RecordCache::new(2);
        let first = cache.cell((1, None));
        assert!(Arc::ptr_eq(&first, &cache.cell((1, None))));
        cache.cell((2, None));
        cache.cell((3, None));
        assert_eq!((cache.cells.len(), cache.order.len()), (2, 2));
        assert!(!Arc::ptr_eq(&first, &cache.cell((1, None))));
    }
}
