//! The records of a channel that have been made, kept so that a page costs its signatures once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::log::Cell;

/// Keeps so many records over all channels unless they are prepared, about 2.7 kB each. The oldest made go first.
pub(super) const KEPT_RECORDS: usize = 200_000;

/// Where the records of one channel are.
pub(super) struct Memory {
    cells: HashMap<u64, Cell>,
    order: VecDeque<u64>,
    bound: usize,
}

impl Memory {
    pub(super) fn new(bound: usize) -> Self {
        Self { cells: HashMap::new(), order: VecDeque::new(), bound }
    }

    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.order.clear();
    }

    /// The place of an event's record, empty until somebody makes it.
    pub(super) fn cell(&mut self, index: u64) -> Cell {
        if let Some(cell) = self.cells.get(&index) {
            return Arc::clone(cell);
        }
        if self.cells.len() >= self.bound
            && let Some(oldest) = self.order.pop_front()
        {
            self.cells.remove(&oldest);
        }
        self.order.push_back(index);
        Arc::clone(self.cells.entry(index).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_for_the_same_event_and_never_more_than_the_bound() {
        let mut memory = Memory::new(2);
        let first = memory.cell(1);
        assert!(Arc::ptr_eq(&first, &memory.cell(1)));
        memory.cell(2);
        memory.cell(3);
        assert_eq!((memory.cells.len(), memory.order.len()), (2, 2));
        assert!(!Arc::ptr_eq(&first, &memory.cell(1)));
    }
}
