//! A small file system that a test can fill.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::run;
use super::skip::skip;

/// A small file system. It is unmounted when it is dropped.
pub(crate) struct Mount {
    pub(crate) at: PathBuf,
}

impl Mount {
    /// Returns `None` if no file system can be mounted: the test is skipped.
    pub(crate) fn new(at: PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self { at });
        }
        skip("to mount a file system, as root");
        None
    }

    pub(crate) fn remount(&self, options: &str) {
        run(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.at));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A lazy unmount works even if a file in it is still open.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

/// Fills a file system to the last byte with one file, and returns the path of the file.
pub(crate) fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("something-else");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [64 * 1024, 1] {
        let bytes = vec![b'x'; size];
        while std::io::Write::write_all(&mut file, &bytes).is_ok() {}
    }
    path
}
