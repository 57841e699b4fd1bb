//! Whether this machine lets a test trace the daemon.

use std::process::{Command, Stdio};

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::skip::skip;

/// Whether a process can be traced. Otherwise the test is skipped.
pub(crate) fn can_trace() -> bool {
    let mut child = Command::new("/bin/sh").args(["-c", "read go"]).stdin(Stdio::piped()).spawn().unwrap();
    let traced = ptrace::seize(Pid::from_raw(i32::try_from(child.id()).unwrap()), ptrace::Options::empty());
    child.kill().unwrap();
    child.wait().unwrap();
    if let Err(errno) = traced {
        skip(&format!("to trace a process: {errno}"));
    }
    traced.is_ok()
}
