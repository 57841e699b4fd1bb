//! The records of a channel that have been made, kept so that a page costs its signatures once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::log::Cell;
use super::misbehaviour::Misbehaviour;

/// Keeps so many records over all channels unless they are prepared, about 2.7 kB each. The oldest made go first.
pub(super) const KEPT_RECORDS: usize = 200_000;

/// What a record follows from: an event's number, and how its channel misbehaves.
pub(super) type Drawn = (u64, Option<Misbehaviour>);

/// Where the records of one channel are.
pub(super) struct Memory {
    cells: HashMap<Drawn, Cell>,
    order: VecDeque<Drawn>,
    bound: usize,
}

impl Memory {
    pub(super) fn new(bound: usize) -> Self {
        Self { cells: HashMap::new(), order: VecDeque::new(), bound }
    }

    /// The place of an event's record, empty until somebody makes it.
    pub(super) fn cell(&mut self, drawn: Drawn) -> Cell {
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
    fn the_same_place_for_the_same_event_and_never_more_than_the_bound() {
        let mut memory = Memory::new(2);
        let first = memory.cell((1, None));
        assert!(Arc::ptr_eq(&first, &memory.cell((1, None))));
        memory.cell((2, None));
        memory.cell((3, None));
        assert_eq!((memory.cells.len(), memory.order.len()), (2, 2));
        assert!(!Arc::ptr_eq(&first, &memory.cell((1, None))));
    }
}
