//! Tests that this machine cannot run. Each is recorded, and `tests/skipped.rs` reports them at the end of the run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Records that the running test is skipped, and its requirement. The test then returns.
///
/// # Panics
///
/// If every test has to run, because `CHANNELD_TEST_REQUIRE` is set.
pub(crate) fn skip(needs: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let required = std::env::var_os("CHANNELD_TEST_REQUIRE").is_some_and(|value| !value.is_empty());
    assert!(!required, "{test} cannot run, and CHANNELD_TEST_REQUIRE is set: it needs {needs}");
    let mut list = File::options().append(true).create(true).open(list()).unwrap();
    list.write_all(format!("{test}: needs {needs}\n").as_bytes()).unwrap();
}

/// The file that lists the skipped tests of one run. A run is all test processes with the same parent, usually cargo.
pub(crate) fn list() -> PathBuf {
    let parent = rustix::process::getppid().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap();
    // Process ids are reused, so the name also has the start time: the 22nd field, the 20th after the name.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let started = fields.split(' ').nth(19).unwrap();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("skipped-{parent}-{started}"))
}
