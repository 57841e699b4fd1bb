//! Event ids: UUIDs whose last 48 bits encode the event's index, so that an event can be found by its id without a table.

use rand::Rng;
use uuid::Uuid;

use crate::random::{Purpose, draw, uuid};

/// The bits of an id that encode the index.
const INDEX_BITS: u64 = (1 << 48) - 1;

/// Returns the id of the event at an index.
pub(crate) fn of(seed: u64, channel: u64, index: u64) -> Uuid {
    let drawn = uuid(&mut draw(seed, Purpose::EventId, channel, index));
    let (high, low) = drawn.as_u64_pair();
    let hidden = (index ^ mask(seed, channel, high)) & INDEX_BITS;
    Uuid::from_u64_pair(high, (low & !INDEX_BITS) | hidden)
}

/// Returns the index of the event with this id. `None` if no event has this id.
pub(crate) fn index(seed: u64, channel: u64, id: Uuid) -> Option<u64> {
    let (high, low) = id.as_u64_pair();
    let index = (low ^ mask(seed, channel, high)) & INDEX_BITS;
    (of(seed, channel, index) == id).then_some(index)
}

fn mask(seed: u64, channel: u64, high: u64) -> u64 {
    draw(seed, Purpose::EventIdMask, channel, high).random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_resolves_only_in_its_own_channel() {
        for at in [0, 1, 999_999, INDEX_BITS] {
            let id = of(7, 2, at);
            assert_eq!((index(7, 2, id), index(7, 3, id), id.get_version_num()), (Some(at), None, 4));
        }
    }
}
