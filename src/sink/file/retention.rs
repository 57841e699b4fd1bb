//! Which closed files have had their time.
//!
//! # Invariants
//!
//! * **The file closed last stays,** whatever the bounds: a crash may leave lines in it that nobody has recorded.
//! * **A marked file stays, and counts for nothing.**

use jiff::Timestamp;

use super::closed::Closed;
use super::settings::Keep;

/// Those of the closed files, the oldest first, that are to be deleted.
pub(super) fn past<'a>(closed: &'a [Closed], keep: &Keep, now: Timestamp) -> Vec<&'a Closed> {
    let oldest = keep.time.and_then(|time| now.checked_sub(time).ok());
    let (mut files, mut size) = (0, 0_u64);
    let mut past = Vec::new();
    for (age, closed) in closed.iter().rev().enumerate().filter(|(_, closed)| !closed.marked) {
        files += 1;
        size = size.saturating_add(closed.size());
        let too_many = keep.files.is_some_and(|most| files > most.get());
        let too_large = keep.size.is_some_and(|most| size > most);
        let too_old = oldest.is_some_and(|oldest| closed.stamp.time() < oldest);
        if age > 0 && (too_many || too_large || too_old) {
            past.push(closed);
        }
    }
    past.reverse();
    past
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use super::*;
    use crate::sink::file::name::Stamp;

    /// Five files of ten bytes, an hour apart; of the one at `marked` an operator wants to keep it.
    fn files(marked: Option<usize>) -> Vec<Closed> {
        let file = |number: usize| Closed {
            stamp: Stamp::after(None, Timestamp::from_second(i64::try_from(number).unwrap() * 3600).unwrap()),
            name: number.to_string(),
            plain: Some(10),
            packed: [].into(),
            marked: marked == Some(number),
        };
        (0..5).map(file).collect()
    }

    #[test]
    fn each_bound_holds_and_the_last_and_the_marked_stay() {
        let now = Timestamp::from_second(5 * 3600).unwrap();
        let none = Keep::default();
        let count = |files| Keep { files: NonZeroUsize::new(files), ..none };
        let hours = |hours: u64| Keep { time: Some(Duration::from_secs(hours * 3600)), ..none };
        let bytes = |size| Keep { size: Some(size), ..none };
        for (keep, marked, expected) in [
            (none, None, ""),
            (count(2), None, "012"),
            (count(5), None, ""),
            (count(2), Some(3), "01"),
            (count(1), Some(4), "012"),
            (hours(3), None, "01"),
            (hours(0), None, "0123"),
            (hours(3), Some(0), "1"),
            (bytes(35), None, "01"),
            (bytes(1), None, "0123"),
            (bytes(35), Some(3), "0"),
            (Keep { files: NonZeroUsize::new(4), size: Some(25), ..none }, None, "012"),
        ] {
            let files = files(marked);
            let past: String = past(&files, &keep, now).iter().map(|closed| &*closed.name).collect();
            assert_eq!(past, expected, "{keep:?} {marked:?}");
        }
    }
}
