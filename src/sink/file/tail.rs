//! The end of a file: a batch is there as a whole and synced, or it is not there.
//!
//! # Invariants
//!
//! * **All or nothing.** After a failed write or sync the file is cut back to the length before it: at once if the
//!   system lets us, and otherwise before the next write.
//! * **A failed sync is a failed write.** The system may have thrown the pages away while they still read as written.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

/// Small lines are written so many bytes at once.
const BUFFER: usize = 128 * 1024;

/// What is done to a file; a trait so that tests can make every step fail.
pub(super) trait Disk {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Writes all of these at its end, one after the other.
    fn append(&mut self, pieces: &[&[u8]]) -> io::Result<()>;
    /// Returns when its bytes and its length are on the disk.
    fn sync(&self) -> io::Result<()>;
    /// Cuts off everything from `length` on.
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

/// The end of a file that nothing else writes to.
#[derive(Debug)]
pub(super) struct Tail<D> {
    pub(super) disk: D,
    /// The length before a batch that was begun and is not durable.
    torn_at: Option<u64>,
}

impl<D: Disk> Tail<D> {
    /// Trusts what the file holds now.
    pub(super) fn new(disk: D) -> Self {
        Self { disk, torn_at: None }
    }

    /// Cuts off what a failed batch has left, and returns the file's length.
    pub(super) fn settle(&mut self) -> io::Result<u64> {
        let length = self.disk.length()?;
        let Some(torn_at) = self.torn_at else { return Ok(length) };
        // Another program may have emptied the file meanwhile: cutting must not make it longer.
        let settled = length.min(torn_at);
        if settled < length {
            self.disk.cut(settled)?;
        }
        self.torn_at = None;
        Ok(settled)
    }

    /// Writes and syncs a batch, in pieces that follow each other, or leaves nothing of it. Returns the length before.
    pub(super) fn append(&mut self, batch: &[&[u8]]) -> io::Result<u64> {
        let before = self.settle()?;
        self.torn_at = Some(before);
        let written = self.disk.append(batch).and_then(|()| self.disk.sync());
        match written {
            Ok(()) => self.torn_at = None,
            // If this fails too it is done before the next write; the first error is the one to report.
            Err(_) => drop(self.settle()),
        }
        written.map(|()| before)
    }
}

/// So much of a file's end stays in the system's memory, for programs that follow the file.
const CACHED: u64 = 16 << 20;

/// The rest is released in pieces of this size: no page of the system is larger or lies across the border of two, and it
/// releases a page as a whole or not at all.
const PIECE: u64 = 4 << 20;

/// Tells the system to keep only the end of a file in memory, now that it has grown and is synced. Otherwise a file that
/// only grows fills all memory, and each new page must first be taken from another use, which makes writing many times as
/// costly.
pub(super) fn release(file: &fs::File, grown: Range<u64>) {
    let pieces = passed(grown);
    let Some(length) = NonZero::new(pieces.end.saturating_sub(pieces.start)) else { return };
    if let Err(error) = fadvise(file, pieces.start, Some(length), Advice::DontNeed) {
        tracing::debug!(%error, "the system keeps what was written in memory");
    }
}

/// The pieces that the end of a file has left behind while it grew.
fn passed(grown: Range<u64>) -> Range<u64> {
    let border = |length: u64| length.saturating_sub(CACHED) / PIECE * PIECE;
    border(grown.start)..border(grown.end)
}

#[cfg(test)]
mod tests;
