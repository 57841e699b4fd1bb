//! Memory for the lines of a batch.
//!
//! A line is made on one thread and freed on another, and lives longer than the rest of its event. One allocation a line
//! fragments the heap: memory then grows for as long as a channel catches up. Other allocators do not help; the buffers for
//! bodies (`src/api/buffers.rs`) have the figures.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;

use net::memory::{ChannelMemory, Reserved};

/// The most memory that is allocated ahead of the lines that need it.
const AHEAD: usize = 256 << 10;

/// Writes lines one behind the other into shared memory, which is freed with the last of them.
#[derive(Debug, Default)]
pub struct Lines {
    expected: usize,
    /// When the events were first read, and that as a text.
    pub(super) received: Option<(Timestamp, Arc<str>)>,
    /// The line that is being written.
    line: Vec<u8>,
    block: BytesMut,
    /// What the block counts as.
    counted: Option<Arc<Reserved>>,
    memory: Arc<ChannelMemory>,
}

impl Lines {
    /// For about so many lines.
    pub fn of(expected: usize) -> Self {
        Self { expected, ..Self::default() }
    }

    /// These lines, of events that were first read at that time.
    #[must_use]
    pub fn received(self, at: Timestamp) -> Self {
        Self { received: Some((at, format!("{at:.3}").into())), ..self }
    }

    /// These lines, counted as that channel's memory.
    #[must_use]
    pub fn counted_by(self, memory: Arc<ChannelMemory>) -> Self {
        Self { memory, ..self }
    }

    /// The line that `write` puts into an empty buffer, its result, and what has to be kept as long as the line.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (Bytes, T, Option<Arc<Reserved>>) {
        self.line.clear();
        let written = write(&mut self.line);
        let length = self.line.len();
        if self.block.capacity() < length {
            // Assumes that the lines to come are as long.
            let ahead = AHEAD.min(length.saturating_mul(self.expected));
            self.block = BytesMut::with_capacity(ahead.max(length));
            self.counted = Some(Arc::new(self.memory.exceed(ahead.max(length))));
        }
        self.expected = self.expected.saturating_sub(1);
        self.block.extend_from_slice(&self.line);
        (self.block.split().freeze(), written, self.counted.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(lines: &mut Lines, length: usize) -> Bytes {
        let (line, said, _) = lines.write(|line| line.resize(length, 7));
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
        assert_eq!(lines.block.capacity(), 0);
        let mut lines = Lines::of(usize::MAX);
        line(&mut lines, 100);
        assert_eq!(lines.block.capacity(), AHEAD - 100);
        line(&mut lines, 2 * AHEAD);
        assert_eq!(lines.block.capacity(), 0);
    }
}
