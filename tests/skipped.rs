//! Says which tests were skipped, a line each, after all others have run.
//!
//! It is a test target of its own because the harness shows nothing of a test that passes. Cargo runs the targets in the
//! order of their names.

#![allow(clippy::unwrap_used, reason = "it fails as a test does")]

#[path = "it/support/machine/skip.rs"]
#[allow(dead_code, reason = "only the list is read here")]
mod skip;

fn main() {
    // A tool that asks which tests there are here.
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
