//! What the system keeps of a file in memory: its end, and not all that was ever written.
//!
//! Written pages stay in memory until something else wants it. A file that only grows takes it from everything else on the
//! machine that way, and each new page is one that nobody has used for long: to write to it costs many times what it costs
//! where one was used a moment ago. Who follows the file reads its end.

use std::fs;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

/// So much of the end stays, for those who follow the file. They may always be so far behind.
const KEPT: u64 = 16 << 20;

/// It is let go of in such pieces. The system may hold what lies side by side as one large page, which it lets go of as a
/// whole or not at all; none is larger, and none lies across the border of two pieces.
const PIECE: u64 = 4 << 20;

/// Lets go of what is no longer at the end of a file, now that it has grown and is synced. A system that does not do so
/// has lost nothing but memory.
pub(super) fn let_go(file: &fs::File, grown: Range<u64>) {
    let passed = passed(grown);
    let Some(length) = passed.end.checked_sub(passed.start).and_then(std::num::NonZero::new) else { return };
    if let Err(error) = fadvise(file, passed.start, Some(length), Advice::DontNeed) {
        tracing::debug!(%error, "the system keeps what was written in memory");
    }
}

/// The pieces that the end of a file has left behind while it grew.
fn passed(grown: Range<u64>) -> Range<u64> {
    let border = |length: u64| length.saturating_sub(KEPT) / PIECE * PIECE;
    border(grown.start)..border(grown.end)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, IoSliceMut, Write};

    use rustix::io::{ReadWriteFlags, preadv2};

    use super::*;

    #[test]
    fn every_piece_is_passed_once_and_the_end_never() {
        let mut through = 0;
        for length in (0..100 << 20).step_by(700_001) {
            let passed = passed(length..length + 700_001);
            assert_eq!(passed.start, through);
            through = passed.end;
            assert!(through + KEPT <= length + 700_001 || through == 0, "{length}");
            assert!(through + KEPT + PIECE > length + 700_001, "{length}");
        }
    }

    #[test]
    fn what_was_passed_is_in_memory_no_more_and_the_end_is() {
        // Beside the test, because what is kept for a while only is often kept in nothing but memory.
        let place = std::env::current_exe().unwrap();
        let mut file = tempfile::tempfile_in(place.parent().unwrap()).unwrap();
        let (batch, mut length) = (vec![b'x'; 1_000_003], 0);
        while length < KEPT + 3 * PIECE {
            file.write_all(&batch).unwrap();
            file.sync_data().unwrap();
            let_go(&file, length..length + batch.len() as u64);
            length += batch.len() as u64;
        }
        let is_in_memory = |offset| {
            let byte = &mut [0];
            match preadv2(&file, &mut [IoSliceMut::new(byte)], offset, ReadWriteFlags::NOWAIT) {
                Ok(read) => read == 1,
                Err(error) => {
                    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::WouldBlock);
                    false
                }
            }
        };
        assert!((0..2 * PIECE).step_by(4096).all(|offset| !is_in_memory(offset)));
        assert!((length - KEPT..length).step_by(4096).all(is_in_memory));
    }
}
