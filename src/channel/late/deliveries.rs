//! Remembers a channel's late deliveries and their times. The ledger forgets late events when they are settled.
//!
//! # Invariants
//!
//! * **Bounded.** The newest [`KEPT`] deliveries are kept.
//! * **One process.** They outlive the runs and the configurations of the channel, but not the process.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use proof::event::Offset;

const KEPT: usize = 64;

/// The delivery of an event to a sink whose cursor was already past the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateDelivery {
    /// The offset of the event.
    pub offset: Offset,
    /// The sink's name in the configuration.
    pub sink: Arc<str>,
    /// When the sink accepted the event.
    pub at: Timestamp,
    /// Whether an operator requested the delivery. Otherwise the proof was late, or the event became visible late.
    pub is_asked_for: bool,
}

/// The newest delivery is the last.
#[derive(Debug, Default)]
pub struct LateDeliveries(VecDeque<LateDelivery>);

impl LateDeliveries {
    pub(crate) fn note(&mut self, delivery: LateDelivery) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(delivery);
    }

    /// Returns the late deliveries of one event.
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
