//! The end of a file: a batch is there as a whole and synced, or it is not there.
//!
//! # Invariants
//!
//! * **All or nothing.** After a failed write or sync the file is cut back to the length before it: at once if the
//!   system lets us, and otherwise before the next write.
//! * **A failed sync is a failed write.** The system may have thrown the pages away while they still read as written, so
//!   nothing of such a batch is trusted: it is cut off and written anew.

use std::fs;
use std::io::{self, IoSlice, Write};

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
        let mut pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            match self.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// The end of a file that only we write to.
#[derive(Debug)]
pub(super) struct Tail<D> {
    disk: D,
    /// The length before a batch that was begun and has not become durable.
    torn_at: Option<u64>,
}

impl<D: Disk> Tail<D> {
    /// Trusts what the file holds now.
    pub(super) fn new(disk: D) -> Self {
        Self { disk, torn_at: None }
    }

    /// The file.
    pub(super) fn disk(&self) -> &D {
        &self.disk
    }

    /// Cuts off what a failed batch has left, and says how long the file is then.
    pub(super) fn settle(&mut self) -> io::Result<u64> {
        let length = self.disk.length()?;
        let Some(torn_at) = self.torn_at else { return Ok(length) };
        // Somebody may have emptied the file meanwhile: cutting must not make it longer.
        let settled = length.min(torn_at);
        if settled < length {
            self.disk.cut(settled)?;
        }
        self.torn_at = None;
        Ok(settled)
    }

    /// Writes and syncs a batch, in pieces that follow each other, or leaves nothing of it. Says how long the file was
    /// before.
    pub(super) fn append(&mut self, batch: &[&[u8]]) -> io::Result<u64> {
        let before = self.settle()?;
        self.torn_at = Some(before);
        let written = self.disk.append(batch).and_then(|()| self.disk.sync());
        match written {
            Ok(()) => self.torn_at = None,
            // If this fails too it is done before the next write; the first error is the one to tell.
            Err(_) => drop(self.settle()),
        }
        written.map(|()| before)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io::{Read, Seek};

    use super::*;

    /// A disk whose operations fail where the bits of `faults` say so, the first operation being the lowest bit.
    struct Faulty {
        bytes: RefCell<Vec<u8>>,
        synced: RefCell<Vec<u8>>,
        faults: u32,
        operations: Cell<u32>,
    }

    impl Faulty {
        fn new(faults: u32) -> Self {
            let held = b"held\n".to_vec();
            Self { bytes: held.clone().into(), synced: held.into(), faults, operations: Cell::new(0) }
        }

        fn operate(&self) -> io::Result<()> {
            let number = self.operations.replace(self.operations.get() + 1);
            if number < u32::BITS && self.faults & (1 << number) != 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
    }

    impl Disk for Faulty {
        fn length(&self) -> io::Result<u64> {
            self.operate()?;
            Ok(self.bytes.borrow().len() as u64)
        }

        fn append(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
            let (fault, bytes) = (self.operate(), pieces.concat());
            let fits = if fault.is_ok() { bytes.len() } else { bytes.len() / 2 };
            self.bytes.borrow_mut().extend_from_slice(&bytes[..fits]);
            fault
        }

        fn sync(&self) -> io::Result<()> {
            self.operate()?;
            self.synced.replace(self.bytes.borrow().clone());
            Ok(())
        }

        fn cut(&self, length: u64) -> io::Result<()> {
            self.operate()?;
            self.bytes.borrow_mut().truncate(usize::try_from(length).unwrap());
            Ok(())
        }
    }

    #[test]
    fn whichever_steps_fail_what_was_accepted_is_there_once_and_synced() {
        for faults in 0..1 << 12 {
            let mut tail = Tail::new(Faulty::new(faults));
            let mut expected = b"held\n".to_vec();
            for batch in [&b"one\ntwo\n"[..], b"three\n"] {
                while tail.append(&[batch]).is_err() {}
                expected.extend_from_slice(batch);
                assert_eq!(*tail.disk.synced.borrow(), expected, "{faults:b}");
                assert_eq!(*tail.disk.bytes.borrow(), expected, "{faults:b}");
            }
        }
    }

    #[test]
    fn a_failed_batch_is_cut_off_at_once_where_possible() {
        // The operations: length, append, sync, and then length and cut to settle.
        for fault in [0b10, 0b100] {
            let mut tail = Tail::new(Faulty::new(fault));
            tail.append(&[b"batch\n"]).unwrap_err();
            assert_eq!(*tail.disk.bytes.borrow(), b"held\n");
        }
    }

    #[test]
    fn cutting_never_makes_a_file_longer() {
        // Appending fails, and so does settling, so that the cut is still due when the file is empty.
        let mut tail = Tail::new(Faulty::new(0b110));
        tail.append(&[b"batch\n"]).unwrap_err();
        tail.disk.bytes.borrow_mut().clear();
        tail.append(&[b"batch\n"]).unwrap();
        assert_eq!(*tail.disk.bytes.borrow(), b"batch\n");
    }

    /// More than the system takes at a time.
    #[test]
    fn what_comes_in_many_pieces_is_written_as_one() {
        let mut file = tempfile::tempfile().unwrap();
        let pieces: Vec<_> = (0..5000_u32).map(|number| number.to_string().into_bytes()).collect();
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        Disk::append(&mut file, &pieces).unwrap();
        let mut written = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut written).unwrap();
        assert_eq!(written, pieces.concat());
    }
}
