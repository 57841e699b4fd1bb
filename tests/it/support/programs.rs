//! Programs of the system that stand at the other end: what they make of the files is what an operator's do.

use std::process::{Command, Output};

use super::skip::skip;

/// Whether these programs can be run. Otherwise the test is skipped.
pub(crate) fn programs(names: &[&str]) -> bool {
    let runs = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let missing: Vec<_> = names.iter().copied().filter(|name| !runs(name)).collect();
    if !missing.is_empty() {
        skip(&format!("the programs: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Runs a program to its good end, and gives what it printed.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    stdout
}
