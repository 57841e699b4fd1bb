//! Programs of the system that stand at the other end: what they make of the files is what an operator's do.

use std::process::{Command, Output};

use super::skipped;

/// Whether these programs can be run. `false` where the operator of these tests has left out those that need any.
pub(crate) fn programs(names: &[&str]) -> bool {
    if skipped("programs") {
        return false;
    }
    for name in names {
        let there = Command::new(name).arg("--version").output();
        assert!(
            there.is_ok(),
            "this test needs the program {name}: install it (apt-get install {}), or leave such tests out with \
             CHANNELD_TEST_SKIP=programs",
            names.join(" ")
        );
    }
    true
}

/// Runs a program to its good end, and gives what it printed.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    stdout
}
