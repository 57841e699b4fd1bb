//! Room for bodies, used again.
//!
//! A page takes as much as hundreds of events, and the next one a little more or less. Room that is taken anew for each leaves
//! holes behind that nothing fits into, and memory grows for as long as there is more to read.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// A body of so many bytes is long. What is shorter is left to the allocator.
const LONG: usize = 64 << 10;

/// So many rooms are kept: of a channel that catches up, one page is on its way, and two or three are in hand.
const KEPT: usize = 4;

/// A room that is larger is not kept.
const LARGEST: usize = 2 << 20;

/// Rooms that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Rooms(Mutex<Vec<Vec<u8>>>);

/// A body, as far as it has come. It gives its room back when nobody holds any of it.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Vec<u8>,
    rooms: Arc<Rooms>,
}

impl Rooms {
    /// Room for a body whose length is announced; zero where it is not known.
    pub(super) fn body(self: &Arc<Self>, announced: usize) -> Body {
        let may_be_long = announced == 0 || announced >= LONG;
        let mut bytes = if may_be_long { self.lock().pop().unwrap_or_default() } else { Vec::new() };
        bytes.reserve(announced);
        Body { bytes, rooms: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// The whole of it. A short one does not hold on to its room.
    pub(super) fn freeze(self) -> Bytes {
        if self.len() < LONG { Bytes::copy_from_slice(&self.bytes) } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        let mut rooms = self.rooms.lock();
        if (LONG..=LARGEST).contains(&bytes.capacity()) && rooms.len() < KEPT {
            bytes.clear();
            rooms.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rooms: &Arc<Rooms>, announced: usize, length: usize, byte: u8) -> Bytes {
        let mut body = rooms.body(announced);
        vec![byte; length].chunks(10_000).for_each(|chunk| body.push(chunk));
        body.freeze()
    }

    #[test]
    fn the_room_of_a_long_body_is_used_again_once_nobody_holds_any_of_it() {
        let rooms = Arc::<Rooms>::default();
        let first = read(&rooms, 0, 2 * LONG, 1);
        let (slice, room) = (first.slice(70_000..70_010), first.as_ptr());
        drop(first);
        let second = read(&rooms, 2 * LONG, 2 * LONG, 2);
        assert_ne!(second.as_ptr(), room, "a part of it is still held");
        assert_eq!(slice, [1; 10][..]);
        drop(slice);
        let third = read(&rooms, LONG, LONG, 3);
        assert_eq!((third.as_ptr(), third.len()), (room, LONG));
        assert!(third.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn a_short_body_holds_on_to_no_room() {
        let rooms = Arc::<Rooms>::default();
        drop(read(&rooms, 0, LONG, 1));
        let short = read(&rooms, 0, 100, 2);
        assert_eq!((rooms.lock().len(), short.len()), (1, 100));
        let announced = read(&rooms, 100, 100, 3);
        assert_eq!((rooms.lock().len(), announced.len()), (1, 100));
    }

    #[test]
    fn no_more_is_kept_than_a_few_rooms_that_are_not_too_large() {
        let rooms = Arc::<Rooms>::default();
        let held: Vec<_> = (0..2 * KEPT).map(|_| read(&rooms, 0, LONG, 1)).collect();
        drop(held);
        assert_eq!(rooms.lock().len(), KEPT);
        rooms.lock().clear();
        drop(read(&rooms, LARGEST + 1, LARGEST + 1, 1));
        assert!(rooms.lock().is_empty());
    }
}
