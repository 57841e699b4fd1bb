//! The shipped files for running and monitoring the daemon work. Each file is tested with the daemon or with the program
//! that reads the file.

use std::path::{Path, PathBuf};

mod container;
mod glossary;
mod helm;
mod image;
mod install;
mod manual;
mod runbook;
mod site;
mod systemd;
mod version;
mod watching;

/// The path of a shipped file.
fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(shipped(path)).unwrap()
}

/// The names of the alerts, in the order of the file.
fn alerts() -> Vec<String> {
    let rules = read("prometheus/alerts.yaml");
    let alerts: Vec<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    alerts
}
