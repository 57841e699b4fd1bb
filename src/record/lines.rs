//! Room for lines that follow each other.
//!
//! A line is made on one thread and dropped on another, and outlives everything else that was needed for its event. Room that
//! is taken for each by itself leaves an allocator with as many holes, and memory grows for as long as there is more to read.

use bytes::{Bytes, BytesMut};

/// No more room than this is taken ahead of the lines that need it.
const AHEAD: usize = 256 << 10;

/// Puts lines that follow each other into one piece of memory, which lasts as long as any of them.
#[derive(Debug, Default)]
pub struct Lines {
    expected: usize,
    /// The line that is being written.
    line: Vec<u8>,
    room: BytesMut,
}

impl Lines {
    /// For so many lines, or for more.
    #[must_use]
    pub fn of(expected: usize) -> Self {
        Self { expected, ..Self::default() }
    }

    /// The line that is written into an empty buffer, and what else comes of writing it.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (Bytes, T) {
        self.line.clear();
        let written = write(&mut self.line);
        let length = self.line.len();
        if self.room.capacity() < length {
            // As if those to come were as long.
            let ahead = AHEAD.min(length.saturating_mul(self.expected));
            self.room = BytesMut::with_capacity(ahead.max(length));
        }
        self.expected = self.expected.saturating_sub(1);
        self.room.extend_from_slice(&self.line);
        (self.room.split().freeze(), written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(lines: &mut Lines, length: usize) -> Bytes {
        let (line, said) = lines.write(|line| line.resize(length, 7));
        assert_eq!((line.to_vec(), said), (vec![7; length], ()));
        line
    }

    #[test]
    fn lines_stand_one_behind_the_other_as_far_as_there_is_room() {
        let mut lines = Lines::of(3);
        let [first, second, too_long, fourth] = [100, 200, 300, 50].map(|length| line(&mut lines, length));
        assert_eq!(second.as_ptr(), first.as_ptr_range().end);
        assert_ne!(too_long.as_ptr(), second.as_ptr_range().end);
        drop((first, second, too_long));
        assert_eq!(fourth, [7; 50][..]);
    }

    #[test]
    fn no_room_is_taken_for_what_is_not_expected_nor_much_ahead() {
        let mut lines = Lines::default();
        line(&mut lines, 100);
        assert_eq!(lines.room.capacity(), 0);
        let mut lines = Lines::of(usize::MAX);
        line(&mut lines, 100);
        assert_eq!(lines.room.capacity(), AHEAD - 100);
        line(&mut lines, 2 * AHEAD);
        assert_eq!(lines.room.capacity(), 0);
    }
}
