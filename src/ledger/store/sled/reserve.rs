//! Descriptors that are kept for the state. Other parts of the process can use up all descriptors, for example connections to a
//! server that does not answer. The state then still has descriptors for the files that it writes and reads.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use net::shortage::Shortage;
use net::tasks::lock;

use crate::StateError;

/// How many descriptors are kept. The state has at most this number of files open for one moment.
const KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct Reserve(Mutex<Vec<File>>);

impl Reserve {
    /// Fails if the descriptors are not available, before anything of the state was opened.
    pub(super) fn open() -> Result<Self, StateError> {
        let kept = fill().map_err(|error| StateError::io("reserving descriptors for the state", error))?;
        Ok(Self(Mutex::new(kept)))
    }

    /// Does the work. If it lacks descriptors, does it again with the descriptors that are kept. The work must be repeatable.
    pub(super) fn during<T>(&self, mut work: impl FnMut() -> Result<T, StateError>) -> Result<T, StateError> {
        let done = work();
        if !done.as_ref().is_err_and(|error| error.shortage() == Some(Shortage::Descriptors)) {
            return done;
        }
        let mut kept = lock(&self.0);
        kept.clear();
        let done = work();
        // If this fails, the next use of the reserve fills it.
        if let Ok(filled) = fill() {
            *kept = filled;
        }
        done
    }
}

// A container may have no /dev.
fn fill() -> io::Result<Vec<File>> {
    (0..KEPT).map(|_| File::open("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_lacks_descriptors_is_repeated_with_the_reserve() {
        let reserve = Reserve::open().unwrap();
        let kept = || reserve.0.try_lock().map_or(0, |kept| kept.len());
        let mut attempts = 0;
        let lacking = || StateError::io("opening", io::Error::from_raw_os_error(24));
        let done = reserve.during(|| {
            attempts += 1;
            if attempts == 1 { Err(lacking()) } else { Ok(kept()) }
        });
        assert_eq!((done.unwrap(), attempts), (0, 2), "the reserve was released");
        assert_eq!(kept(), KEPT, "the reserve is filled again");
        let other = || StateError::io("opening", io::ErrorKind::NotFound.into());
        attempts = 0;
        let failed: Result<(), _> = reserve.during(|| {
            attempts += 1;
            Err(other())
        });
        assert!(failed.is_err() && attempts == 1);
    }
}
