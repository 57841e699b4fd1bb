//! Tests faults at every step of an append, and which pages of a file stay in memory.

use std::cell::{Cell, RefCell};
use std::io::{IoSliceMut, Read, Seek};

use rustix::io::{ReadWriteFlags, preadv2};

use super::*;

/// A disk whose operations fail if their bit in `faults` is set. The lowest bit is the first operation.
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
fn accepted_lines_are_present_once_and_synced_whatever_fails() {
    for faults in 0..1 << 12 {
        let mut appender = Appender::new(Faulty::new(faults));
        let mut expected = b"held\n".to_vec();
        for batch in [&b"one\ntwo\n"[..], b"three\n"] {
            while appender.append(&[batch]).is_err() {}
            expected.extend_from_slice(batch);
            assert_eq!(*appender.disk.synced.borrow(), expected, "{faults:b}");
            assert_eq!(*appender.disk.bytes.borrow(), expected, "{faults:b}");
        }
    }
}

#[test]
fn a_failed_batch_is_cut_off_at_once_where_possible() {
    // The operations of a batch are length, append and sync. After a failure, length and cut remove the written part.
    for fault in [0b10, 0b100] {
        let mut appender = Appender::new(Faulty::new(fault));
        appender.append(&[b"batch\n"]).unwrap_err();
        assert_eq!(*appender.disk.bytes.borrow(), b"held\n");
    }
}

#[test]
fn truncating_never_extends_a_file() {
    // Appending and settling fail, so the file is cut later. By then another program has emptied it.
    let mut appender = Appender::new(Faulty::new(0b110));
    appender.append(&[b"batch\n"]).unwrap_err();
    appender.disk.bytes.borrow_mut().clear();
    appender.append(&[b"batch\n"]).unwrap();
    assert_eq!(*appender.disk.bytes.borrow(), b"batch\n");
}

/// The number of pieces exceeds the system's limit for one call.
#[test]
fn many_pieces_are_written_at_once() {
    let mut file = tempfile::tempfile().unwrap();
    let pieces: Vec<_> = (0..5000_u32).map(|number| number.to_string().into_bytes()).collect();
    let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
    Disk::append(&mut file, &pieces).unwrap();
    let mut written = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut written).unwrap();
    assert_eq!(written, pieces.concat());
}

#[test]
fn every_piece_is_passed_once() {
    let mut through = 0;
    for length in (0..100 << 20).step_by(700_001) {
        let passed = passed(length..length + 700_001);
        assert_eq!(passed.start, through);
        through = passed.end;
        assert!(through + CACHED <= length + 700_001 || through == 0, "{length}");
        assert!(through + CACHED + PIECE > length + 700_001, "{length}");
    }
}

#[test]
fn passed_pieces_are_released() {
    // The system may evict a page at any time, and keeps all pages of a file that it is still working on. Therefore several
    // files are tried, and one of them must show the expected result. On a busy machine, most of them do not.
    let mut seen = Vec::new();
    let is_released = (0..20).any(|_| {
        let (kept, stayed) = kept_and_stayed();
        seen.push((kept, stayed));
        kept > 0.9 && stayed < 0.1
    });
    assert!(is_released, "{seen:?}");
}

/// Two fractions: the batches whose end was in memory after they were written, and the released pages that stayed in
/// memory.
fn kept_and_stayed() -> (f64, f64) {
    // The file is created next to the test binary, because directories for temporary files are often in memory only.
    let place = std::env::current_exe().unwrap();
    let mut file = tempfile::tempfile_in(place.parent().unwrap()).unwrap();
    let is_in_memory = |file: &std::fs::File, offset| {
        let byte = &mut [0];
        match preadv2(file, &mut [IoSliceMut::new(byte)], offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => read == 1,
            Err(error) => {
                assert_eq!(std::io::Error::from(error).kind(), io::ErrorKind::WouldBlock);
                false
            }
        }
    };
    let (batch, mut length, mut batches, mut kept) = (vec![b'x'; 1_000_003], 0, 0_u32, 0_u32);
    while length < CACHED + 3 * PIECE {
        file.write_all(&batch).unwrap();
        file.sync_data().unwrap();
        release(&file, length..length + batch.len() as u64);
        length += batch.len() as u64;
        batches += 1;
        kept += u32::from(is_in_memory(&file, length - 1));
    }
    let (mut pages, mut stayed) = (0_u32, 0_u32);
    for offset in (0..2 * PIECE).step_by(4096) {
        pages += 1;
        stayed += u32::from(is_in_memory(&file, offset));
    }
    (f64::from(kept) / f64::from(batches), f64::from(stayed) / f64::from(pages))
}
