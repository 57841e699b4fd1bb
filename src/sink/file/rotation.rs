//! Closing the active file: when, and in which steps.
//!
//! A file is closed between two batches, by the one that would follow, or by the clock where none does; so no batch is
//! torn over two files. An empty file is never closed.
//!
//! # Invariants
//!
//! A crash may come between any two of the steps, and leaves:
//!
//! 1. What a failed batch left is cut off, a missing last line break is added, and the file is synced. *Then a crash:* the
//!    active file, as it would be without rotation.
//! 2. The file is renamed, onto nothing. *Then:* no active file. Which name the file has after a power loss is the file
//!    system's to say; it has one of the two.
//! 3. The directory is synced: nothing new is made under the old name before the new one is durable, or else the whole
//!    file could be left without a name. *Then:* no active file; the next start makes one.
//! 4. The new active file is made, given its owner and mode, locked, and the directory synced again. *Then:* an empty
//!    active file. The lines that nobody has recorded stand in the file closed last, where the next start finds them.
//!
//! Should step 4 fail, there is no active file, and the next batch begins with it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;

use super::closed::Shelf;
use super::finding::ends;
use super::index::Index;
use super::name::{Ends, Stamp};
use super::opening::{rename_new, sync_directory};
use super::settings::Rotation;
use super::tail::{Disk, Tail};

/// Whether a file of this length, written to last at `written`, is to be closed before so many bytes more.
pub(super) fn is_due(rotation: &Rotation, length: u64, more: u64, written: SystemTime, now: SystemTime) -> bool {
    let too_long = more > 0 && rotation.size.is_some_and(|size| length.saturating_add(more) > size);
    length > 0 && (too_long || rotation.every.is_some_and(|every| period(now, every) > period(written, every)))
}

/// How many times `every` has passed. The first second of the count began a day in UTC, and so does each of its multiples.
fn period(at: SystemTime, every: std::time::Duration) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / every.as_secs().max(1)
}

/// Closes a file: everything but making the next one. Gives its new path and its place among the closed ones.
pub(super) fn close(
    tail: &mut Tail<fs::File>,
    unended: bool,
    real: &std::path::Path,
    shelf: &Shelf,
    last: Option<Stamp>,
) -> io::Result<(PathBuf, Stamp)> {
    if unended {
        tail.append(&[b"\n"])?;
    }
    let length = tail.settle()?;
    tail.disk().sync()?;
    let standing = shelf.look()?.closed.last().map(|closed| closed.stamp);
    let seen = Index::load(shelf)?.seen;
    let stamp = Stamp::after(last.max(standing).max(seen), Timestamp::now());
    let ends = if shelf.name().has_offsets() { ends(tail.disk(), length)? } else { Ends::default() };
    let closed = shelf.path(&shelf.name().write(stamp, ends));
    rename_new(real, &closed)?;
    sync_directory(&closed)?;
    Ok((closed, stamp))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sink::file::name::ClosedName;
    use crate::sink::file::settings::Keep;

    fn rotation(size: Option<u64>, every: Option<u64>) -> Rotation {
        let name = ClosedName::parse("{time}").unwrap();
        let every = every.map(Duration::from_secs);
        Rotation { size, every, name, compression: None, keep: Keep::default(), latest_link: None }
    }

    #[test]
    fn a_file_is_closed_before_it_becomes_too_long_and_where_its_time_is_over() {
        let at = |hours: u64, seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600 + seconds);
        let (size, hourly, daily) =
            (rotation(Some(100), None), rotation(None, Some(3600)), rotation(None, Some(86_400)));
        for (rotation, length, more, written, now, expected) in [
            (&size, 90, 10, at(0, 0), at(9, 0), false),
            (&size, 90, 11, at(0, 0), at(0, 0), true),
            (&size, 0, 500, at(0, 0), at(0, 0), false),
            (&size, 500, 1, at(0, 0), at(0, 0), true),
            (&size, 500, 0, at(0, 0), at(0, 0), false),
            (&hourly, 1, 0, at(1, 3599), at(2, 0), true),
            (&hourly, 1, 1, at(1, 0), at(1, 3599), false),
            (&hourly, 0, 1, at(1, 0), at(5, 0), false),
            (&hourly, 1, 1, at(5, 0), at(1, 0), false),
            (&daily, 1, 1, at(23, 0), at(24, 0), true),
            (&daily, 1, 1, at(24, 0), at(47, 3599), false),
        ] {
            assert_eq!(is_due(rotation, length, more, written, now), expected, "{rotation:?} {length} {more}");
        }
    }
}
