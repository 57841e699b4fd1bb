//! The events of a channel that were delivered after later ones, and when: the ledger forgets them once they are settled.
//!
//! # Invariants
//!
//! * **Bounded.** The newest [`KEPT`] are kept.
//! * **Of one process.** They outlive the runs and the configurations of the channel, and end with the process.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use proof::event::Offset;

const KEPT: usize = 64;

/// One sink's delivery of an event that its cursor had passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateDelivery {
    /// The event's.
    pub offset: Offset,
    /// The sink's name in the configuration.
    pub sink: Arc<str>,
    /// When the sink had taken it.
    pub at: Timestamp,
    /// An operator had asked for it. Otherwise its proof came late.
    pub is_asked_for: bool,
}

/// The newest last.
#[derive(Debug, Default)]
pub struct LateDeliveries(VecDeque<LateDelivery>);

impl LateDeliveries {
    pub(crate) fn note(&mut self, delivery: LateDelivery) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(delivery);
    }

    /// Those of one event.
    pub fn of(&self, offset: Offset) -> impl Iterator<Item = &LateDelivery> {
        self.0.iter().filter(move |delivery| delivery.offset == offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let mut deliveries = LateDeliveries::default();
        let offset = |at: usize| Offset::new(at.try_into().unwrap()).unwrap();
        for at in 0..=KEPT {
            let delivery =
                LateDelivery { offset: offset(at), sink: "hook".into(), at: Timestamp::UNIX_EPOCH, is_asked_for: true };
            deliveries.note(delivery);
        }
        assert_eq!(deliveries.0.len(), KEPT);
        assert_eq!(deliveries.of(offset(0)).count(), 0);
        assert_eq!(deliveries.of(offset(KEPT)).count(), 1);
    }
}
