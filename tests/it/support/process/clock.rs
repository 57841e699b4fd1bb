//! A clock that is not the machine's, by a library that is loaded into the daemon.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Setup, skip};

/// A clock of the daemon's own.
pub(crate) struct Clock {
    offset: PathBuf,
}

impl Clock {
    /// Gives the setup's daemons a clock; `None` where the test is skipped.
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
