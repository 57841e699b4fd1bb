//! A file system of a few bytes, to be filled.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::skipped;

/// A small file system. Unmounted when it is dropped.
pub(crate) struct Mount {
    pub(crate) at: PathBuf,
}

impl Mount {
    /// `None` where the operator of these tests has left out those that mount.
    pub(crate) fn new(at: PathBuf, size: &str) -> Option<Self> {
        if skipped("mount") {
            return None;
        }
        std::fs::create_dir(&at).unwrap();
        let mount = Self { at };
        mount.command("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        Some(mount)
    }

    pub(crate) fn remount(&self, options: &str) {
        self.command("mount", &["-o", &format!("remount,{options}")]);
    }

    fn command(&self, command: &str, arguments: &[&str]) {
        let done = Command::new(command).args(arguments).arg(&self.at).output();
        assert!(
            done.as_ref().is_ok_and(|done| done.status.success()),
            "this test needs to mount a file system, which root may (CHANNELD_TEST_SKIP=mount leaves it out): {done:?}"
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Also where something still stands in it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

/// Fills a file system to the last byte with one file, and gives its path.
pub(crate) fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("something-else");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [64 * 1024, 1] {
        let bytes = vec![b'x'; size];
        while std::io::Write::write_all(&mut file, &bytes).is_ok() {}
    }
    path
}
