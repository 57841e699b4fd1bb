//! Runs system programs, and checks whether this machine has the programs that a test needs and can trace processes.

use std::process::{Command, Output, Stdio};

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::skip::skip;

/// Whether these programs can be run. Otherwise the test is skipped.
pub(crate) fn programs(names: &[&str]) -> bool {
    // nginx and HAProxy only know the short option.
    let accepts = |name: &str, option: &str| {
        let output = Command::new(name).arg(option).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let runs = |name: &str| ["--version", "-v"].iter().any(|option| accepts(name, option));
    let missing: Vec<_> = names.iter().copied().filter(|name| !runs(name)).collect();
    if !missing.is_empty() {
        skip(&format!("the programs: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Runs a program, asserts that it succeeds, and returns its output.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    stdout
}

/// The lines that a program printed.
pub(crate) fn printed_lines(printed: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(printed).lines().map(str::to_owned).collect()
}

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
