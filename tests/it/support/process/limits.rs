//! The limits of a running daemon, and the descriptors that it keeps for a shortage.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::Daemon;

/// The directory that the daemon opens to keep a descriptor.
const RESERVE: &str = "/";

impl Daemon {
    /// Changes a limit. `None` is the highest limit.
    pub(crate) fn limit(&self, resource: Resource, to: Option<u64>) {
        let maximum = getrlimit(resource).maximum;
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap());
        prlimit(pid, resource, Rlimit { current: to.or(maximum), maximum }).unwrap();
    }

    /// The lowest limit of open files with which the descriptors that the daemon keeps for a shortage are usable, as far as they are
    /// open directories. During a shortage, other files and connections replace them. 0 if none is left.
    pub(crate) fn least_descriptors(&self) -> u64 {
        let kept = self.descriptors().filter(|(_, target)| target == Path::new(RESERVE));
        kept.map(|(number, _)| number + 1).max().unwrap_or_default()
    }

    /// How many descriptors below this number are free.
    pub(crate) fn free_descriptors(&self, below: u64) -> usize {
        usize::try_from(below).unwrap() - self.descriptors().filter(|(number, _)| *number < below).count()
    }

    /// How many descriptors the daemon keeps for a shortage as open directories.
    pub(crate) fn kept_descriptors(&self) -> usize {
        self.descriptors().filter(|(_, target)| target == Path::new(RESERVE)).count()
    }

    /// The open descriptors, and their targets: a path, or a text such as `socket:[123]`.
    fn descriptors(&self) -> impl Iterator<Item = (u64, PathBuf)> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        entries.filter_map(|entry| {
            let path = entry.unwrap().path();
            let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // A file that was closed in the meantime has no target.
            Some((number, fs::read_link(path).ok()?))
        })
    }
}
