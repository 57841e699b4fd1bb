//! Memory for the lines of a batch.
//!
//! A line is allocated on one thread and freed on another, and it outlives the rest of its event. One allocation per line
//! fragments the heap: memory then grows for as long as a channel catches up. Other allocators do not help. The
//! measurements are in `src/api/buffers.rs`, which allocates the buffers for bodies.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;

use net::memory::{ChannelMemory, Reserved};

/// The most memory, in bytes, that is allocated in advance for later lines.
const AHEAD: usize = 256 << 10;

/// Writes lines one after another into a shared block of memory. The block is freed when its last line is dropped.
#[derive(Debug, Default)]
pub struct Lines {
    expected: usize,
    /// When the events were first read, as a timestamp and as text.
    pub(super) received: Option<(Timestamp, Arc<str>)>,
    /// The line that is being written.
    line: Vec<u8>,
    block: BytesMut,
    /// The reservation that accounts for the block.
    counted: Option<Arc<Reserved>>,
    memory: Arc<ChannelMemory>,
}

impl Lines {
    /// Prepares for about `expected` lines.
    pub fn of(expected: usize) -> Self {
        Self { expected, ..Self::default() }
    }

    /// Sets the time when the events of these lines were first read.
    #[must_use]
    pub fn received(self, at: Timestamp) -> Self {
        Self { received: Some((at, format!("{at:.3}").into())), ..self }
    }

    /// Counts the lines as memory of this channel.
    #[must_use]
    pub fn counted_by(self, memory: Arc<ChannelMemory>) -> Self {
        Self { memory, ..self }
    }

    /// Passes an empty buffer to `write`. Returns the line, the result of `write`, and the reservation, which must be kept
    /// as long as the line.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (Bytes, T, Option<Arc<Reserved>>) {
        self.line.clear();
        let written = write(&mut self.line);
        let length = self.line.len();
        if self.block.capacity() < length {
            // Assume that the remaining lines have the same length.
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
