//! A clock that differs from the machine's clock: a library in the daemon's process changes the time.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Setup, skip};

/// The clock of a daemon.
pub(crate) struct Clock {
    offset: PathBuf,
}

impl Clock {
    /// Sets the clock of the setup's daemons. Returns `None` if the test is skipped.
    pub(crate) fn of(setup: &mut Setup) -> Option<Self> {
        let (library, offset) = (setup.path("clock.so"), setup.path("clock"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/process/clock.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
        if !built.is_ok_and(|built| built.status.success()) {
            skip("a C compiler named cc, and glibc");
            return None;
        }
        setup.set_environment("LD_PRELOAD", &library);
        setup.set_environment("STEPPED_CLOCK", &offset);
        Some(Self { offset })
    }

    /// Sets this clock ahead of the machine's clock.
    pub(crate) fn set(&self, seconds: i64) {
        let new = self.offset.with_extension("new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, &self.offset).unwrap();
    }
}
