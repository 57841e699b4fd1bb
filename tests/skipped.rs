//! Lists the skipped tests, one per line, after all other tests.
//!
//! This is a separate test target because the test harness hides the output of tests that pass. Cargo runs the targets
//! in alphabetical order, so this one runs last.

#![allow(clippy::unwrap_used, reason = "it fails as a test does")]

#[path = "it/support/machine/skip.rs"]
#[allow(dead_code, reason = "only the list is read here")]
mod skip;

fn main() {
    // A tool asks for the list of tests. This target has none.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let list = skip::list();
    let Ok(skipped) = std::fs::read_to_string(&list) else { return println!("\nno test was skipped\n") };
    std::fs::remove_file(list).unwrap();
    let mut skipped: Vec<_> = skipped.lines().collect();
    skipped.sort_unstable();
    println!("\nskipped tests: {}", skipped.len());
    for test in skipped {
        println!("    {test}");
    }
    println!();
}
