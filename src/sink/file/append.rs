//! Appends batches to a file atomically: a batch is either complete and synced, or it is absent.
//!
//! # Invariants
//!
//! * **All or nothing.** After a failed write or sync the file is cut back to its earlier length. This happens immediately
//!   if the system allows it, and otherwise before the next write.
//! * **A failed sync is a failed write.** After a failed sync, the system may discard the written pages, although they can
//!   still be read.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

/// The size of the buffer that combines short lines into one write, in bytes.
const BUFFER: usize = 128 * 1024;

/// The operations on a file. It is a trait so that tests can make every operation fail.
pub(super) trait Disk {
    fn length(&self) -> io::Result<u64>;
    /// Writes all pieces at the end, one after the other.
    fn append(&mut self, pieces: &[&[u8]]) -> io::Result<()>;
    /// Returns when the bytes and the length are on the disk.
    fn sync(&self) -> io::Result<()>;
    fn cut(&self, length: u64) -> io::Result<()>;
}

impl Disk for fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut writer = BufWriter::with_capacity(BUFFER, self);
        pieces.iter().try_for_each(|piece| writer.write_all(piece))?;
        writer.flush()
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Appends batches to a file that nothing else writes to.
#[derive(Debug)]
pub(super) struct Appender<D> {
    pub(super) disk: D,
    /// The length before a batch that was started and is not durable.
    torn_at: Option<u64>,
}

impl<D: Disk> Appender<D> {
    pub(super) fn new(disk: D) -> Self {
        Self { disk, torn_at: None }
    }

    /// Cuts off the remains of a failed batch, and returns the file's length.
    pub(super) fn settle(&mut self) -> io::Result<u64> {
        let length = self.disk.length()?;
        let Some(torn_at) = self.torn_at else { return Ok(length) };
        // Another program may have emptied the file in the meantime: cutting must not make it longer.
        let settled = length.min(torn_at);
        if settled < length {
            self.disk.cut(settled)?;
        }
        self.torn_at = None;
        Ok(settled)
    }

    /// Writes the pieces of a batch and syncs them, or leaves nothing of the batch in the file. Returns the length before
    /// the batch.
    pub(super) fn append(&mut self, batch: &[&[u8]]) -> io::Result<u64> {
        let before = self.settle()?;
        self.torn_at = Some(before);
        let written = self.disk.append(batch).and_then(|()| self.disk.sync());
        match written {
            Ok(()) => self.torn_at = None,
            // If cutting fails too, it is repeated before the next write. The first error is reported.
            Err(_) => drop(self.settle()),
        }
        written.map(|()| before)
    }
}

/// How many bytes at the end of a file stay in the system's page cache, for programs that follow the file.
const CACHED: u64 = 16 << 20;

/// The size, in bytes, of the pieces in which the file before its last [`CACHED`] bytes is released from the cache. The
/// system releases only whole pages, and no page crosses the border between two pieces.
const PIECE: u64 = 4 << 20;

/// Tells the system to keep only the end of a file in memory, after the file has grown and was synced. Otherwise a file
/// that only grows fills all memory. Each new page must then be taken from another use, which makes writing many times more
/// expensive.
pub(super) fn release(file: &fs::File, grown: Range<u64>) {
    let pieces = passed(grown);
    let Some(length) = NonZero::new(pieces.end.saturating_sub(pieces.start)) else { return };
    if let Err(error) = fadvise(file, pieces.start, Some(length), Advice::DontNeed) {
        tracing::debug!(%error, "the system cannot release the cached pages of a file");
    }
}

/// The range of pieces that are no longer part of the cached end after a file has grown.
fn passed(grown: Range<u64>) -> Range<u64> {
    let border = |length: u64| length.saturating_sub(CACHED) / PIECE * PIECE;
    border(grown.start)..border(grown.end)
}

#[cfg(test)]
mod tests;
