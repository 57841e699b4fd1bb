//! A map of fixed size that forgets what was put in first.
//!
//! # Invariants
//!
//! * **All of its memory at once.** It is taken, and written to, when the map is made: a process that has read a million
//!   events is no larger than one that has read a few.
//! * **Keys are prints.** They are spread evenly over 64 bits by a hash that nobody outside knows the key of, so that
//!   nobody can make them crowd, and the map takes them for what they stand for.

/// A hash that is keyed anew in each process.
pub(super) type Print = u64;

/// What a slot holds that leads nowhere.
const FREE: u32 = u32::MAX;

/// The entries in the order in which they were put in, and slots that lead to them: each entry has its slot where its key
/// says, or in the next free one after it.
#[derive(Debug)]
pub(super) struct Recent<V> {
    capacity: usize,
    /// A ring, once it is full.
    entries: Vec<(Print, V)>,
    /// Where the next entry goes: the oldest one is there, once the ring is full.
    next: usize,
    /// At least twice as many as entries, so that ways are short.
    slots: Box<[u32]>,
}

impl<V: Copy> Recent<V> {
    /// Room for that many. What `blank` is does not matter.
    pub(super) fn of(capacity: usize, blank: V) -> Self {
        assert!(0 < capacity && capacity < FREE as usize, "entries are numbered by 32 bits");
        let mut entries = vec![(Print::MAX, blank); capacity];
        entries.clear();
        let slots = vec![FREE; (2 * capacity).next_power_of_two()].into();
        Self { capacity, entries, next: 0, slots }
    }

    pub(super) fn get(&self, key: Print) -> Option<V> {
        self.slot(key).map(|slot| self.entries[self.slots[slot] as usize].1)
    }

    /// Puts in or changes. What is changed keeps its turn to be forgotten.
    pub(super) fn set(&mut self, key: Print, value: V) {
        if let Some(slot) = self.slot(key) {
            self.entries[self.slots[slot] as usize].1 = value;
            return;
        }
        if self.entries.len() < self.capacity {
            self.entries.push((key, value));
        } else {
            self.forget(self.entries[self.next].0);
            self.entries[self.next] = (key, value);
        }
        let free = self.way(key).find(|&slot| self.slots[slot] == FREE).expect("half of the slots are free");
        self.slots[free] = u32::try_from(self.next).expect("entries are numbered by 32 bits");
        self.next = (self.next + 1) % self.capacity;
    }

    /// The slots where that key may be, the likeliest first.
    fn way(&self, key: Print) -> impl Iterator<Item = usize> + use<V> {
        let (first, last) = (self.home(key), self.slots.len() - 1);
        (0..=last).map(move |step| (first + step) & last)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a part of a print is as good as all of it")]
    fn home(&self, key: Print) -> usize {
        key as usize & (self.slots.len() - 1)
    }

    /// The slot that leads to the entry of that key.
    fn slot(&self, key: Print) -> Option<usize> {
        let mut taken = self.way(key).take_while(|&slot| self.slots[slot] != FREE);
        taken.find(|&slot| self.entries[self.slots[slot] as usize].0 == key)
    }

    /// Frees the slot of a key, and moves up those behind it that would have no way across the gap.
    fn forget(&mut self, key: Print) {
        let Some(mut gap) = self.slot(key) else { return };
        let last = self.slots.len() - 1;
        let mut slot = (gap + 1) & last;
        while self.slots[slot] != FREE {
            let home = self.home(self.entries[self.slots[slot] as usize].0);
            // The way from its home to where it is leads over the gap.
            if (slot.wrapping_sub(home) & last) >= (slot.wrapping_sub(gap) & last) {
                self.slots[gap] = self.slots[slot];
                gap = slot;
            }
            slot = (slot + 1) & last;
        }
        self.slots[gap] = FREE;
    }
}

#[cfg(test)]
impl<V> Recent<V> {
    /// How many it remembers.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(Print, V)>() + size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    /// The same, as anybody would write it.
    struct Plain {
        capacity: usize,
        values: HashMap<Print, u8>,
        order: VecDeque<Print>,
    }

    impl Plain {
        fn set(&mut self, key: Print, value: u8) {
            if self.values.insert(key, value).is_none() {
                self.order.push_back(key);
            }
            if self.order.len() > self.capacity {
                self.values.remove(&self.order.pop_front().unwrap());
            }
        }
    }

    /// Keys of which many want the same slot, also the last ones, behind which the first come.
    fn key() -> impl Strategy<Value = Print> {
        (0..6_u64, 0..4_u64).prop_map(|(home, high)| (home + 61) % 64 + 64 * high)
    }

    proptest! {
        #[test]
        fn it_remembers_and_forgets_as_a_map_with_a_queue_does(
            capacity in 1..20_usize,
            done in prop::collection::vec((key(), any::<u8>()), 0..200),
        ) {
            let mut recent = Recent::of(capacity, 0);
            let mut plain = Plain { capacity, values: HashMap::new(), order: VecDeque::new() };
            for (key, value) in done {
                recent.set(key, value);
                plain.set(key, value);
                for known in 0..256 {
                    prop_assert_eq!(recent.get(known), plain.values.get(&known).copied());
                }
            }
        }
    }

    #[test]
    fn a_new_one_takes_all_the_memory_that_a_full_one_has() {
        let mut recent = Recent::of(1000, 0);
        let taken = recent.bytes();
        for key in 0..5000 {
            recent.set(key, 1);
        }
        assert_eq!((recent.len(), recent.bytes()), (1000, taken));
    }
}
